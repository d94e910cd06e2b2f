"""Functions, methods and their like that a step makes and lets out: every call's hold what that call has computed."""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import io
import json
import operator
import pickle
import types
import weakref
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

import autojit as aj
from autojit import nn
from autojit.core.errors import TraceError


class Plain:
    def __init__(self, value: Any) -> None:
        self.value = value

    def get(self, more: Any = 0) -> Any:
        return self.value + more


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def get(self) -> Any:
        return self.value


@dataclasses.dataclass
class Record:
    value: Any
    call: Any = None

    def get(self) -> Any:
        return self.value


class Reduced(Plain):
    def __getstate__(self) -> Any:
        return {"value": self.value, "more": 1}


def _closure(x: Any) -> Any:
    y, n = x * 2, x.sum().item()

    def get() -> Any:
        return y, n, x

    y = y + 1
    return get


def _defaults(x: Any) -> Any:
    n = x.sum().item()

    def get(a: Any = x * 2, *, b: Any = n) -> Any:
        """It has a text."""
        return a, b

    get.kept = x + 1  # type: ignore[attr-defined]
    return get


def _recursive(x: Any) -> Any:
    def get(depth: int = 0) -> Any:
        return x * 2 if depth > 2 else get(depth + 1)

    return get


def _nested(x: Any) -> Any:
    def outer(n: Any) -> Any:
        def inner() -> Any:
            return n, x * 2

        return inner

    return outer(x.sum().item())


def _decorated(x: Any) -> Any:
    def decorator(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper() -> Any:
            return function(), x

        return wrapper

    @decorator
    def get() -> Any:
        return x * 2

    return get


def _own_callback(x: Any) -> Any:
    made = Plain(x * 2)
    made.callback = made.get  # type: ignore[attr-defined]
    made.other = lambda: made  # type: ignore[attr-defined]
    return made.callback  # type: ignore[attr-defined]


def _shared(x: Any) -> Any:
    n, log = x.sum().item(), [x]

    def count() -> Any:
        nonlocal n
        n += 1
        log.append(n)
        return n, len(log)

    def get() -> Any:
        return n, log

    return [count, get, get]


def _of_loop(x: Any) -> Any:
    return {k: (lambda k=k: x * k) for k in (1, 2)}


def _counter(x: Any) -> Any:
    n = 0

    def count() -> int:
        nonlocal n
        n += 1
        return n

    return count


def _instance(x: Any) -> Any:
    class Local:
        def __init__(self, value: Any) -> None:
            self.value = value

        def get(self) -> Any:
            return self.value

    return Local(x * 2).get


CASES: dict[str, Callable[[Any], Any]] = {
    "method": lambda x: Plain(x * 2).get,
    "method of a number": lambda x: Plain(x.sum().item()).get,
    "method with slots": lambda x: Slotted(x * 2).get,
    "method of a record": lambda x: Record(x * 2).get,
    "method of a copy": lambda x: copy.deepcopy(Plain([x * 2])).value.copy,
    "method of a tensor": lambda x: (x * 2).sum,
    "method of a list": lambda x: [x * 2, x].copy,
    "method of a local class": _instance,
    "callback of its own": _own_callback,
    "closure": _closure,
    "lambda": lambda x: lambda: (x, x.sum()),
    "defaults": _defaults,
    "recursive": _recursive,
    "nested": _nested,
    "decorated": _decorated,
    "shared cells": _shared,
    "of a loop": _of_loop,
    "counter": _counter,
    "partial": lambda x: functools.partial(operator.add, x * 2, x),
    "partial of a method": lambda x: functools.partial(Plain(x).get, more=x.sum().item()),
    "partial of a closure": lambda x: functools.partial(_closure(x)),
    "method caller": lambda x: functools.partial(operator.methodcaller("add", x * 2), x),
    "weak": lambda x: (lambda made: [made, weakref.ref(made)])(Plain(x * 2)),
    "in a record": lambda x: Record(x, _closure(x)),
    "in a namespace": lambda x: types.SimpleNamespace(get=_closure(x), again=_defaults(x)),
    "factory": lambda x: collections.defaultdict(lambda: x * 2, a=x),
    "property": lambda x: property(lambda _: x),
    "state": lambda x: Reduced(x * 2),
    "outside": lambda x: [Plain.get, len, json.dumps, OUTSIDE.get],
}
OUTSIDE = Plain(aj.ones(2))


def seen(value: Any, depth: int = 0) -> Any:
    """What there is to see of a value; functions are called, twice."""
    inner = functools.partial(seen, depth=depth + 1)
    kind = type(value).__name__
    if depth > 5:
        return "deep"
    if isinstance(value, aj.Tensor):
        return kind, value.tolist(), value.requires_grad
    if isinstance(value, list | tuple):
        again = [[k for k, other in enumerate(value) if other is part and callable(part)] for part in value]
        return kind, [inner(part) for part in value], again
    if isinstance(value, dict):
        factory = getattr(value, "default_factory", None)
        return kind, {key: inner(part) for key, part in value.items()}, factory and inner(factory)
    if isinstance(value, property):
        return kind, inner(value.fget(None))  # type: ignore[misc]
    if value in (Plain.get, len, json.dumps):
        return value
    if callable(value):
        facts = [getattr(value, name, None) for name in ("__name__", "__qualname__", "__doc__", "__module__")]
        facts += [str(getattr(value, "__annotations__", None)), inner(getattr(value, "kept", None))]
        return kind, inner(value()), inner(value()), facts
    if hasattr(value, "__dict__"):
        return kind, inner(vars(value))
    return kind, repr(value)


class World:
    def __init__(self) -> None:
        self.last: Any = None
        self.log: list[Any] = []
        self.table: dict[str, Any] = {}

    def assign(self, made: Any) -> None:
        self.last = made

    def item(self, made: Any) -> None:
        self.table["made"] = made


WAYS: dict[str, Callable[[World, Any], Any]] = {
    "returned": lambda world, made: made,
    "assigned": lambda world, made: world.assign(made),
    "appended": lambda world, made: world.log.append(made),
    "item": lambda world, made: world.item(made),
}
VALUES = ([1.0, 2.0], [3.0, 4.0], [1.0, 2.0], [5.0, -6.5])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CASES)
def test_what_is_let_out_holds_what_the_call_has_computed(case: str, way: str) -> None:
    make, let = CASES[case], WAYS[way]

    def function(world: World, x: Any) -> Any:
        return let(world, make(x))

    found = []
    step = aj.jit(function)
    for call in (function, step):
        world, results, told = World(), [], []
        for values in VALUES:
            results.append(call(world, aj.tensor(values)))
            told.append((seen(results[-1]), seen(vars(world))))
        found.append((told, [seen(result) for result in results]))
    assert found[0] == found[1]
    assert step.stats()["captures"] <= 2


def test_gradients_flow_to_and_from_what_functions_hold() -> None:
    w = nn.Parameter(aj.ones(2))

    @aj.jit
    def step(x: Any) -> Any:
        loss = (x * w).sum()
        return lambda: loss

    for k in range(3):
        w.grad = None
        step(aj.ones(2) * k)().backward()
        assert w.grad.tolist() == [k, k]


def test_cells_from_outside_are_the_very_same() -> None:
    count, seen_by = 0, aj.zeros(2)

    def function(x: Any) -> Any:
        nonlocal count
        count += 1
        return lambda: (count, seen_by, x)

    step = aj.jit(function)
    for k in range(4):
        found = step(aj.ones(2) * k)
        assert found()[0] == k + 1 and found()[1] is seen_by and found()[2].tolist() == [k, k]
        count += 10
        assert found()[0] == k + 11
        count -= 10


def test_a_function_that_is_made_reports_nothing_when_it_is_called_later() -> None:
    made = aj.jit(lambda x: lambda y: y + x)(aj.ones(2))
    again = aj.jit(lambda x: made(x))
    assert made(aj.ones(2)).tolist() == again(aj.ones(2)).tolist() == [2.0, 2.0]
    assert made.__code__.co_consts == (lambda y: y + made).__code__.co_consts


def _class(x: Any) -> Any:
    class Local:
        value = x * 2

    return Local


def _class_of_closure(x: Any) -> Any:
    y = x * 2

    class Local:
        def get(self) -> Any:
            return y

    return Local()


@pytest.mark.parametrize(
    "make",
    [_class, _class_of_closure, lambda x: aj.jit(lambda: x), lambda x: map(int, "1")],
    ids=["class", "method of a class", "jitted", "map"],
)
@pytest.mark.parametrize("way", WAYS)
def test_what_one_object_for_all_calls_would_hold_is_refused(way: str, make: Any) -> None:
    world = World()
    with pytest.raises(TraceError):
        aj.jit(lambda x: WAYS[way](world, make(x * 2)))(aj.ones(2))
    assert seen(vars(world)) == seen(vars(World()))


TEXTS: dict[str, Callable[[Any], Any]] = {
    "json": lambda n: json.dumps({"loss": n, "all": [n, 1]}),
    "json of a class": lambda n: json.JSONEncoder(indent=1).encode([n]),
    "json and back": lambda n: json.loads(json.dumps([n])),
    "pickle": lambda n: pickle.dumps({"loss": n}),
    "pickle and back": lambda n: pickle.loads(pickle.dumps([n, Plain(n)]))[0],
    "decimal": lambda n: Decimal(n),
    "copies": lambda n: vars(copy.deepcopy(Plain([n, copy.copy(n)]))),
}


@pytest.mark.parametrize("case", TEXTS)
def test_libraries_that_take_plain_numbers_alone_are_given_them(case: str) -> None:
    function = lambda x: TEXTS[case](x.sum().item())
    step = aj.jit(function)
    for values in VALUES:
        assert step(aj.tensor(values)) == function(aj.tensor(values))


def test_a_number_is_dumped_to_a_file_at_every_call_with_one_capture() -> None:
    file = io.StringIO()

    @aj.jit
    def step(x: Any) -> Any:
        json.dump({"loss": x.sum().item()}, file)
        return x

    for values in VALUES:
        step(aj.tensor(values))
    assert file.getvalue() == "".join(json.dumps({"loss": sum(values)}) for values in VALUES)
    assert step.stats()["captures"] == 1
