"""Objects that a step returns, assigns or appends: new ones at every call, as in eager mode; others as they are."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import fractions
import functools
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import nn
from autojit.core.errors import TraceError


@dataclasses.dataclass
class Record:
    loss: Any
    count: int = 0


class Plain:
    def __init__(self, value: Any) -> None:
        self.value = value


class Slots:
    __slots__ = ("other", "value")

    def __init__(self, value: Any) -> None:
        self.value = value


class Output(collections.OrderedDict[str, Any]):
    """As libraries return."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.kind = "output"


class Items(list[Any]):
    pass


class Reduced:
    """One that says how it is made."""

    def __init__(self, value: Any, number: int) -> None:
        self.value, self.number = value, number

    def __reduce__(self) -> Any:
        return Reduced, (self.value, self.number)


class Stateful(Plain):
    def __getstate__(self) -> Any:
        return {"kept": self.value}

    def __setstate__(self, kept: Any) -> None:
        self.value = kept["kept"]


def _shared(s: Any, x: aj.Tensor) -> Any:
    inner = Plain(x * 2)
    return [inner, inner, Plain(inner)]


def _cycle(s: Any, x: aj.Tensor) -> Any:
    made = Plain(x.sum())
    made.value = [made, x * 3]
    return made


VALUES: dict[str, Callable[[Any, aj.Tensor], Any]] = {
    "object from outside": lambda s, x: s.objects[0],
    "object": lambda s, x: Plain(3),
    "object with a tensor": lambda s, x: Plain(x * 2),
    "object with a number": lambda s, x: Plain(x.sum().item()),
    "object with a size": lambda s, x: Plain(x.shape[0] * 2),
    "object with a shape": lambda s, x: Plain(x.shape),
    "object with one from outside": lambda s, x: Plain([s.objects[1], x.sum()]),
    "object in an object": lambda s, x: Plain(Plain({"a": (x, Plain(x * 2))})),
    "slots": lambda s, x: Slots(x + 1),
    "reduce": lambda s, x: Reduced(x + 1, 2),
    "state": lambda s, x: Stateful(x + 1),
    "record": lambda s, x: Record(x.sum(), 2),
    "namespace": lambda s, x: types.SimpleNamespace(loss=x.sum(), n=1),
    "mapping of a library": lambda s, x: Output(loss=x.sum(), n=2),
    "defaultdict": lambda s, x: collections.defaultdict(int, a=x * 2),
    "Counter": lambda s, x: collections.Counter("aab"),
    "deque": lambda s, x: collections.deque([x * 2, 1], maxlen=5),
    "set": lambda s, x: {1, 2},
    "set of a tensor": lambda s, x: {x * 2},
    "list of one's own": lambda s, x: Items([x, 1]),
    "array": lambda s, x: np.arange(3.0),
    "array from outside": lambda s, x: s.array,
    "list": lambda s, x: [x * 2, 1],
    "list from outside": lambda s, x: s.items,
    "dict of objects": lambda s, x: {"a": s.objects[0], "b": Plain(x)},
    "shared": _shared,
    "cycle": _cycle,
    "builtin": lambda s, x: abs,
    "function": lambda s, x: s.function,
    "class": lambda s, x: Plain,
    "module": lambda s, x: s.net,
    "method": lambda s, x: s.net.forward,
    "partial": lambda s, x: functools.partial(max, x.sum()),
    "range": lambda s, x: range(3),
    "slice": lambda s, x: slice(0, 2),
    "ellipsis": lambda s, x: ...,
    "shape": lambda s, x: x.shape,
    "size": lambda s, x: x.shape[0],
    "date": lambda s, x: s.date + datetime.timedelta(1),
    "fraction": lambda s, x: fractions.Fraction(1, 3),
    "error": lambda s, x: ValueError("no", 2),
    "distribution": lambda s, x: aj.distributions.Normal(x * 2, 1.0),
    "bytearray": lambda s, x: bytearray(b"ab"),
}


def _attribute(s: Any, value: Any) -> None:
    s.current = value


def _item(s: Any, value: Any) -> None:
    s.table["k"] = value


def _element(s: Any, value: Any) -> None:
    s.places[0] = value


def _appended(s: Any, value: Any) -> None:
    s.places.append(value)


def _both(s: Any, value: Any) -> Any:
    s.current = value
    s.places.append(value)
    return value


def _of_module(s: Any, value: Any) -> None:
    s.net.found = value


PLACES: dict[str, Callable[[Any, Any], Any]] = {
    "returned": lambda s, value: value,
    "attribute": _attribute,
    "item": _item,
    "element": _element,
    "appended": _appended,
    "attribute of a module": _of_module,
    "three places": _both,
}


def _world() -> Any:
    aj.manual_seed(0)
    return types.SimpleNamespace(
        objects=[Plain(1.0), Plain(2.0)], current=None, table={}, places=[None], items=[5], array=np.ones(2),
        net=nn.Linear(2, 2), function=lambda: 1, date=datetime.date(2020, 1, 1),
    )  # fmt: skip


def _told(value: Any, s: Any, seen: dict[int, int]) -> Any:
    """A value as text, where identity matters: what is from outside, what comes again."""
    if isinstance(value, aj.Tensor):
        return value.tolist(), str(value.dtype)
    for name, known in {**vars(s), "object 0": s.objects[0], "object 1": s.objects[1]}.items():
        if value is known and name not in ("current", "table", "places") and value is not None:
            return f"the {name}"
    if isinstance(value, str | bytes | int | float | type | None | range | slice | types.BuiltinFunctionType):
        return repr(value)
    if isinstance(value, types.MethodType):
        return value.__func__.__qualname__, _told(value.__self__, s, seen)
    if id(value) in seen:
        return f"number {seen[id(value)]} again"
    seen[id(value)] = len(seen)
    held: list[Any] = [type(value).__name__]
    if isinstance(value, functools.partial):
        held.append([_told(v, s, seen) for v in value.args])
    if isinstance(value, np.ndarray):
        held.append(value.tolist())
    if isinstance(value, dict):
        held.append({k: _told(v, s, seen) for k, v in value.items()})
    elif isinstance(value, list | tuple | set | collections.deque):
        held.append([_told(v, s, seen) for v in value])
    elif hasattr(type(value), "__slots__") and isinstance(value, Slots):
        held.append(_told(value.value, s, seen))
    elif isinstance(value, datetime.date | fractions.Fraction | bytearray | BaseException):
        held.append(repr(value))
    if isinstance(value, collections.deque):
        held.append(value.maxlen)
    held.append({k: _told(v, s, seen) for k, v in getattr(value, "__dict__", {}).items()})
    return held


def _spoilt(value: Any) -> None:
    """The caller changes what it has got: the next call makes another one."""
    if isinstance(value, Plain | types.SimpleNamespace):
        value.value = "changed"
    elif isinstance(value, dict):
        value["changed"] = 1
    elif isinstance(value, set):
        value.add(77)
    elif isinstance(value, list | collections.deque | bytearray):
        value.append(7)
    elif isinstance(value, np.ndarray):
        value += 1


def _run(value: str, place: str, wrap: Callable[[Any], Any], sizes: tuple[int, ...]) -> list[Any]:
    s = _world()

    def function(x: aj.Tensor) -> Any:
        return PLACES[place](s, VALUES[value](s, x))

    step = wrap(function)
    found = []
    for k, n in enumerate(sizes):
        result = step(aj.arange(n, dtype=aj.float64) + k)
        held = [result, s.current, s.table, s.places, vars(s.net).get("found")]
        found.append(_told(held, s, {}))
        if "outside" not in value and value not in ("module", "method"):
            for part in (result, s.current, s.table.get("k"), s.places[-1], held[-1]):
                _spoilt(part)
        s.current = None
        s.table.clear()
        s.places[:] = [None]
        vars(s.net).pop("found", None)
    return found


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("value", VALUES)
def test_what_a_step_lets_out_is_what_eager_mode_lets_out(value: str, place: str) -> None:
    sizes = (2, 2, 2, 3, 4, 2)
    assert _run(value, place, aj.jit, sizes) == _run(value, place, lambda f: f, sizes)


@pytest.mark.parametrize("value", ["object with a tensor", "set", "shared", "object from outside"])
@pytest.mark.parametrize("place", PLACES)
def test_every_call_can_be_verified(value: str, place: str) -> None:
    sizes = (2, 2, 2)
    always = functools.partial(aj.jit, verify="always")
    assert _run(value, place, always, sizes) == _run(value, place, lambda f: f, sizes)


def test_a_step_that_lets_objects_out_is_captured_once() -> None:
    s = _world()

    @aj.jit
    def step(x: aj.Tensor) -> Any:
        s.current = Plain(x * 2)
        return types.SimpleNamespace(loss=x.sum())

    for k in range(8):
        assert step(aj.ones(2) * k).loss.item() == 2 * k
        assert s.current.value.tolist() == [2.0 * k] * 2
    assert step.stats()["captures"] <= 2


def test_gradients_flow_to_and_from_what_objects_hold() -> None:
    w = aj.ones(3, requires_grad=True)
    step = aj.jit(lambda x: types.SimpleNamespace(loss=(w * x).sum(), kept=[w * 2]))
    for k in range(3):
        w.grad = None
        found = step(aj.ones(3) * k)
        (found.loss + found.kept[0].sum()).backward()
        assert w.grad.tolist() == [k + 2.0] * 3


def test_an_object_that_is_made_once_is_made_once() -> None:
    class Net(nn.Module):
        helper: Any = None

        def forward(self, x: aj.Tensor) -> aj.Tensor:
            if self.helper is None:
                self.helper = Plain(2.0)
            return x * self.helper.value

    net = Net()
    step = aj.jit(net)
    assert step(aj.ones(2)).tolist() == [2.0, 2.0]
    first = net.helper
    for _ in range(3):
        step(aj.ones(2))
    assert net.helper is first
    first.value = 3.0
    assert step(aj.ones(2)).tolist() == [3.0, 3.0]
    net.helper = None
    assert step(aj.ones(2)).tolist() == [2.0, 2.0]
    assert net.helper is not first


class Stubborn:
    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("not to be copied")


@pytest.mark.parametrize(
    "make",
    [lambda x: Stubborn(), lambda x: (k for k in range(3)), lambda x: Plain(iter([1]))],
    ids=["stubborn", "generator", "iterator within"],
)
@pytest.mark.parametrize("place", ["returned", "attribute", "appended"])
def test_what_cannot_be_made_again_is_refused_and_nothing_changes(place: str, make: Any) -> None:
    s = _world()
    before = _told([s.current, s.places], s, {})
    with pytest.raises(TraceError):
        aj.jit(lambda x: PLACES[place](s, make(x * 2)))(aj.ones(2))
    assert _told([s.current, s.places], s, {}) == before
