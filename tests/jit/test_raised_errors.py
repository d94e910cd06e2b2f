"""Errors that a step raises carry numbers, tensors and causes as eager mode's do; and the call has changed nothing."""

from __future__ import annotations

import collections
import contextlib
import functools
import io
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import autojit as aj
from autojit import nn
from autojit.core.errors import IndexOutOfRangeError


class Error(Exception):
    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args)
        self.named = named


class Slotted(Exception):
    __slots__ = ("tensor",)


class Record:
    def __init__(self, total: Any) -> None:
        self.total = total

    def told(self) -> Any:
        return self.total


Pair = collections.namedtuple("Pair", "a b")


def _raise(error: BaseException) -> None:
    raise error


def _attributes(world: Any, x: Any) -> None:
    error = Error("m")
    error.tensor, error.number = x * 2, x.sum().item()  # type: ignore[attr-defined]
    error.nest = {"a": [x + 1, (x.mean().item(), None)]}  # type: ignore[attr-defined]
    error.itself = [error]  # type: ignore[attr-defined]
    raise error


def _slots(world: Any, x: Any) -> None:
    error = Slotted(1)
    error.tensor = x * 2
    raise error


def _cause(world: Any, x: Any) -> None:
    try:
        raise KeyError(x.sum().item())
    except KeyError as error:
        raise Error(x * 3) from error


def _context(world: Any, x: Any) -> None:
    try:
        raise KeyError(x.sum().item())
    except KeyError:
        raise Error(x * 3)  # noqa: B904


def _assertion(world: Any, x: Any) -> None:
    assert x.sum().item() > 100, (x, x * 2)


def _helper(world: Any, x: Any) -> None:
    def inner(y: Any) -> None:
        z = y * 2
        raise Error(z, {"same": z})

    inner(x + 1)


def _closure(world: Any, x: Any) -> None:
    total = x.sum().item()
    raise Error(lambda more=x * 2: (total, more))


def _changed_outside(world: Any, x: Any) -> None:
    world.state.add_(x)
    world.steps += 1
    world.table["k"] = x.sum().item()
    x.mul_(2)
    raise Error(world.state, world.scale, x, world.steps, world.table["k"])


def _noted(world: Any, x: Any) -> None:
    error = ValueError("m")
    error.add_note(f"{x} {x.sum().item():.2f}")
    raise error


def _exit(world: Any, x: Any) -> None:
    raise SystemExit(x.sum().item())


CASES: dict[str, Callable[[Any, Any], Any]] = {
    "number": lambda world, x: _raise(ValueError(x.sum().item())),
    "whole number": lambda world, x: _raise(ValueError(x.argmax().item(), x.shape, x.shape[0])),
    "tensor": lambda world, x: _raise(Error(x * 2, x > 2, x[0])),
    "argument": lambda world, x: _raise(Error(x, world.scale, world.w)),
    "history": lambda world, x: _raise(Error((x * world.w).sum(), x * world.w)),
    "named": lambda world, x: _raise(Error("m", a=x * 2, b=[x[0].item()])),
    "object": lambda world, x: _raise(Error(Record(x * 2), SimpleNamespace(n=x.sum().item()))),
    "method": lambda world, x: _raise(Error(Record(x * 2).told)),
    "partial": lambda world, x: _raise(Error(functools.partial(min, x.sum().item(), key=None))),
    "records": lambda world, x: _raise(Error(Pair(x, x[0].item()), collections.deque([x * 2]))),
    "key": lambda world, x: {}[x.sum().item()],
    "stop": lambda world, x: _raise(StopIteration(x * 2)),
    "group": lambda world, x: _raise(ExceptionGroup("g", [ValueError(x.sum().item()), Error(x * 2)])),
    "attributes": _attributes,
    "slots": _slots,
    "cause": _cause,
    "context": _context,
    "assertion": _assertion,
    "helper": _helper,
    "closure": _closure,
    "changed outside": _changed_outside,
    "note": _noted,
    "exit": _exit,
}


def picture(value: Any, world: Any, x: Any, depth: int = 0) -> Any:
    """What there is to see of a value."""
    see = functools.partial(picture, world=world, x=x, depth=depth + 1)
    kind = type(value)
    if depth > 6:
        return "deep"
    if isinstance(value, BaseException):
        names = ("args", "__dict__", "__cause__", "__context__", "__suppress_context__", "__notes__")
        more = ("exceptions", "code", "value", "tensor")
        return kind.__name__, "" if " at 0x" in str(value) else str(value), [
            see(getattr(value, name, None)) for name in (*names, *more)
        ]  # fmt: skip
    if isinstance(value, aj.Tensor):
        whose = next((k for k, t in (("scale", world.scale), ("w", world.w)) if t is value), "")
        return kind.__name__, value.tolist(), str(value.dtype), value.requires_grad, whose
    if isinstance(value, tuple | list | collections.deque):
        return kind.__name__, [see(part) for part in value]
    if isinstance(value, dict):
        return {key: see(part) for key, part in value.items()}
    if isinstance(value, functools.partial):
        return see((value.args, value.keywords))
    if callable(value):
        return see(value())
    if isinstance(value, Record | SimpleNamespace):
        return kind.__name__, see(vars(value))
    return kind.__name__, repr(value)


def world_of() -> Any:
    return SimpleNamespace(
        scale=aj.ones(2), state=aj.zeros(2), w=nn.Parameter(aj.ones(2)), steps=0, table={}, log=[], limit=-1.0
    )


def raised(call: Callable[..., Any], world: Any, values: Any) -> tuple[Any, str]:
    x = aj.tensor(values)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            found = call(world, x)
        except BaseException as error:
            found = error
    return picture(found, world, x), out.getvalue()


VALUES = ([1.0, 2.0], [3.0, 4.0], [1.0, 2.0], [5.0, -6.5])


@pytest.mark.parametrize("case", CASES)
def test_an_error_carries_what_eager_modes_carries(case: str) -> None:
    function = CASES[case]
    step = aj.jit(function)
    world = world_of()
    before = repr(world)
    for values in VALUES:
        eager, _ = raised(function, world_of(), values)
        found, _ = raised(step, world, values)
        assert found == eager
        assert repr(world) == before
    assert step.stats()["captures"] == 0


@pytest.mark.parametrize("case", ["number", "tensor", "object", "cause", "changed outside"])
def test_some_calls_fail_and_others_are_compiled(case: str) -> None:
    function = CASES[case]

    def one(world: Any, x: Any) -> Any:
        world.state.add_(1)
        world.log.append(x.sum().item())
        print(x)
        if x.sum() > 5:
            function(world, x)
        return x * world.state

    step = aj.jit(one)
    eager, compiled = world_of(), world_of()
    for values in (*VALUES, [0.0, 1.0]):
        is_failing = sum(values) > 5
        kept = repr(compiled)
        expected = raised(one, eager, values)
        if is_failing:
            eager.state.sub_(1)
            eager.log.pop()
            if case == "changed outside":
                eager.state, eager.table, eager.steps = eager.state - aj.tensor(values), {}, 0
        found = raised(step, compiled, values)
        assert found[0] == expected[0]
        assert found[1] == expected[1]
        assert repr(compiled) == (kept if is_failing else repr(eager))
    assert step.stats()["captures"] == 1


def test_an_argument_that_has_not_changed_is_itself() -> None:
    @aj.jit
    def step(x: Any) -> Any:
        raise Error(x, [x], x.view(2), total)

    total = aj.ones(2)
    x = aj.ones(2)
    with pytest.raises(Error) as caught:
        step(x)
    same, nest, view, outside = caught.value.args
    assert same is x and nest[0] is x and outside is total and view.tolist() == [1.0, 1.0]


def test_a_tensor_in_an_error_has_a_history_of_which_nothing_is_kept() -> None:
    w = nn.Parameter(aj.ones(2))

    @aj.jit
    def step(x: Any) -> Any:
        raise Error((x * w).sum())

    with pytest.raises(Error) as caught:
        step(aj.ones(2))
    (total,) = caught.value.args
    assert total.requires_grad and total.item() == 2.0 and "SumBackward" in str(total)
    with pytest.raises(RuntimeError):
        total.backward()


def test_an_op_that_refuses_its_values_comes_first() -> None:
    def step(x: Any, index: Any) -> Any:
        y = x[index]
        if x.sum() > 0:
            raise Error(y)
        return y

    compiled = aj.jit(step)
    for k in (1, 5, 0, 7):
        with pytest.raises(Exception) as eager:
            step(aj.ones(2), aj.tensor([k]))
        with pytest.raises(type(eager.value)) as found:
            compiled(aj.ones(2), aj.tensor([k]))
        assert isinstance(found.value, IndexOutOfRangeError) == (k > 1)
        assert str(found.value).splitlines()[0] == str(eager.value).splitlines()[0]
        assert "calling getitem()" in str(found.value) or k < 2


def test_a_call_that_runs_line_by_line_leaves_what_it_did_before_the_error() -> None:
    def step(world: Any, x: Any) -> Any:
        world.log.append(x.sum().item())
        print(x)
        world.steps += 1
        if x.sum() > 0:
            random.random()
        drawn = random.random()
        print(drawn, len(str(x)))
        world.state.add_(x)
        if x.sum() > 5:
            raise Error(x.sum().item(), drawn)
        return x * drawn

    found = []
    for call in (step, aj.jit(step)):
        world = world_of()
        random.seed(1)
        results = [raised(call, world, VALUES[k % 3]) for k in range(6)]
        found.append((results, repr(world)))
    for a, b in zip(found[0][0], found[1][0], strict=True):
        assert a == b
    assert found[0] == found[1]


def test_an_error_carries_tensors_where_they_are(device: str) -> None:
    def step(x: Any) -> Any:
        y = x * 2
        if y.sum() > 0:
            raise Told(y)
        return y

    class Told(Exception):
        pass

    x = aj.tensor([1.0, 2.0], device=device)
    with pytest.raises(Told) as caught:
        aj.jit(step)(x)
    (told,) = caught.value.args
    assert told.device == x.device and told.tolist() == [2.0, 4.0]
