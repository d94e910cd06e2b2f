"""What Python's own protocols read and change for a step: operators, conversions, walks, deletions, counters."""

from __future__ import annotations

import abc
import collections
import contextvars
import functools
import math
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import autojit as aj


class _Object:
    """Answers every operator by ``value``, and counts what is done to it."""

    def __init__(self) -> None:
        self.value = 1.0
        self.count = 0

    def __add__(self, other: Any) -> Any:
        return other * self.value

    def __radd__(self, other: Any) -> Any:
        self.count += 1
        return other + self.value

    def __mul__(self, other: Any) -> Any:
        return other * self.value

    __rmul__ = __matmul__ = __mul__

    def __neg__(self) -> float:
        return -self.value

    def __lt__(self, other: Any) -> bool:
        return bool(self.value < (other.value if isinstance(other, _Object) else other))

    def __eq__(self, other: object) -> bool:
        return self.value == other

    def __hash__(self) -> int:
        return int(self.value)

    def __bool__(self) -> bool:
        return self.value > 2

    def __enter__(self) -> float:
        self.count += 1
        return self.value

    def __exit__(self, *error: object) -> None:
        self.count += 10

    def __iter__(self) -> Iterator[float]:
        self.count += 1
        return iter([self.value, self.value])

    def __reversed__(self) -> Iterator[float]:
        return iter([self.value, 2.0])

    def __str__(self) -> str:
        return "a" * int(self.value)

    def __format__(self, form: str) -> str:
        return "b" * int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __int__(self) -> int:
        return int(self.value)

    __index__ = __len__ = __int__

    def __abs__(self) -> float:
        return abs(self.value)

    def __round__(self, digits: int = 0) -> int:
        return round(self.value)

    def __divmod__(self, other: Any) -> tuple[float, float]:
        return self.value, 2.0

    def __call__(self, x: aj.Tensor) -> aj.Tensor:
        self.count += 1
        return x * self.count

    def __getitem__(self, key: Any) -> float:
        return self.value

    def __contains__(self, key: Any) -> bool:
        return self.value > 2


OPERATORS: dict[str, Callable[[Any, aj.Tensor], Any]] = {
    "add": lambda o, x: o + x,
    "added to": lambda o, x: x + o,
    "times": lambda o, x: o * x,
    "multiplied": lambda o, x: x * o,
    "matmul": lambda o, x: o @ x,
    "minus": lambda o, x: x * (-o),
    "less": lambda o, x: x * (2 if o < 3 else 5),
    "equal": lambda o, x: x * (2 if o == 3.0 else 5),
    "truth": lambda o, x: x * (2 if o else 5),
    "not": lambda o, x: x * (2 if not o else 5),
    "and": lambda o, x: x * (2 if (o and True) else 5),
    "walk": lambda o, x: x * sum(v for v in o),
    "unpack": lambda o, x: (lambda a, b: x * a + b)(*o),
    "str": lambda o, x: x * len(str(o)),
    "text": lambda o, x: x * len(f"{o}"),
    "format": lambda o, x: x * len("{}".format(o)),  # noqa: UP032
    "percent": lambda o, x: x * len("%s" % o),  # noqa: UP031
    "float": lambda o, x: x * float(o),
    "int": lambda o, x: x * int(o),
    "abs": lambda o, x: x * abs(o),
    "round": lambda o, x: x * round(o),
    "index": lambda o, x: x * [1.0, 2.0, 3.0, 4.0, 5.0, 6.0][o],
    "range": lambda o, x: x * len(range(o)),
    "hash": lambda o, x: x * hash(o),
    "len": lambda o, x: x * len(o),
    "reversed": lambda o, x: x * next(iter(reversed(o))),
    "divmod": lambda o, x: x * divmod(o, 2)[0],
    "call": lambda o, x: o(x),
    "item": lambda o, x: x * o[0],
    "in": lambda o, x: x * (2 if 3 in o else 5),
    "member": lambda o, x: x * (1 if o in [1.0, 3.0] else 2),
    "min": lambda o, x: x * (2 if min(o, _Object()) is o else 5),
    "max by key": lambda o, x: x * max([1.0, 2.0], key=lambda v: v * (o.value - 2.5)),
    "sorted": lambda o, x: x * (2 if sorted([o, 2.5], key=float)[0] is o else 5),
    "sqrt": lambda o, x: x * math.sqrt(o),
    "getattr": lambda o, x: x * getattr(o, "missing", o.value),
    "any": lambda o, x: x * (2 if any([o]) else 5),
    "filter": lambda o, x: x * len(list(filter(None, [o, 1]))),
    "map": lambda o, x: x * next(map(float, [o])),
    "zip": lambda o, x: x * next(zip(o, [1], strict=False))[0],
    "enumerate": lambda o, x: x * dict(enumerate(o))[0],
    "tensor": lambda o, x: x * aj.tensor([o.value, 2.0]),
    "full": lambda o, x: x + aj.full((2,), o.value),
}


def _run(step: Callable[..., Any], between: Callable[[int], Any], see: Callable[[], Any]) -> Any:
    found = []
    for k in range(1, 6):
        between(k)
        found.append(step(aj.full((2,), float(k))).tolist())
    return found, see()


@pytest.mark.parametrize("name", OPERATORS)
def test_an_object_that_changes_between_calls_is_asked_again(name: str) -> None:
    def run(jit: Any) -> Any:
        obj, function = _Object(), OPERATORS[name]
        step = jit(lambda x: function(obj, x))
        return _run(step, lambda k: setattr(obj, "value", float(k)), lambda: (obj.value, obj.count))

    assert run(aj.jit) == run(lambda function: function)


Program = Callable[[Any], tuple[Callable[..., Any], Callable[[int], Any], Callable[[], Any]]]
PROGRAMS: dict[str, Program] = {}


def program(function: Program) -> Program:
    """``function(jit)`` gives a step, what happens before each call, and what to look at afterwards."""
    PROGRAMS[function.__name__.strip("_").replace("_", " ")] = function
    return function


def _nothing(k: int) -> None:
    pass


@program
def a_block_of_with(jit: Any) -> Any:
    obj = _Object()

    @jit
    def step(x: aj.Tensor) -> aj.Tensor:
        with obj as value:
            return x * value

    return step, lambda k: setattr(obj, "value", float(k)), lambda: obj.count


@program
def a_block_of_finally(jit: Any) -> Any:
    obj = _Object()

    @jit
    def step(x: aj.Tensor) -> aj.Tensor:
        try:
            return x * 2
        finally:
            obj.count += 1

    return step, _nothing, lambda: obj.count


@program
def an_error_caught(jit: Any) -> Any:
    table: dict[str, float] = {}

    @jit
    def step(x: aj.Tensor) -> aj.Tensor:
        try:
            return x * table["scale"]
        except KeyError:
            return x

    return step, lambda k: k > 2 and table.update(scale=float(k)), lambda: table


@program
def items_deleted(jit: Any) -> Any:
    items = [float(k) for k in range(20)]

    @jit
    def step(x: aj.Tensor) -> aj.Tensor:
        del items[0]
        return x * items[0]

    return step, _nothing, lambda: items


@program
def items_deleted_from_the_end(jit: Any) -> Any:
    items = [float(k) for k in range(20)]

    @jit
    def step(x: aj.Tensor) -> aj.Tensor:
        del items[-1], items[2]
        return x * items[-1] + items[2]

    return step, _nothing, lambda: items


@program
def keys_deleted(jit: Any) -> Any:
    table = {k: float(k) for k in range(12)}

    @jit
    def step(x: aj.Tensor) -> aj.Tensor:
        least = min(table)
        del table[least]
        return x * least

    return step, _nothing, lambda: table


@program
def slices_assigned(jit: Any) -> Any:
    items = [1.0, 2.0, 3.0]

    @jit
    def step(x: aj.Tensor) -> aj.Tensor:
        items[1:] = [items[1] + 1, 5.0]
        return x * items[1]

    return step, _nothing, lambda: items


@program
def lists_that_grow_by_assignment(jit: Any) -> Any:
    items = [1.0]

    @jit
    def step(x: aj.Tensor) -> aj.Tensor:
        nonlocal items
        items += [2.0]
        return x * len(items)

    return step, _nothing, lambda: items


@program
def sets_that_grow_by_assignment(jit: Any) -> Any:
    items = {1}

    @jit
    def step(x: aj.Tensor) -> aj.Tensor:
        nonlocal items
        items |= {len(items) + 1}
        return x * len(items)

    return step, _nothing, lambda: items


@program
def queues_that_turn(jit: Any) -> Any:
    items = collections.deque([1.0, 2.0, 3.0])

    @jit
    def step(x: aj.Tensor) -> aj.Tensor:
        items.rotate(1)
        return x * items[0]

    return step, _nothing, lambda: list(items)


@program
def counters_of_classes(jit: Any) -> Any:
    class Kind:
        count = 0

    obj = Kind()

    @jit
    def step(x: aj.Tensor) -> aj.Tensor:
        type(obj).count += 1
        return x * obj.count

    return step, _nothing, lambda: Kind.count


@program
def counters_of_functions(jit: Any) -> Any:
    def helper() -> None:
        pass

    counted: Any = helper
    counted.count = 0

    @jit
    def step(x: aj.Tensor) -> aj.Tensor:
        counted.count += 1
        return x * counted.count

    return step, _nothing, lambda: counted.count


@program
def counters_in_defaults(jit: Any) -> Any:
    def helper(x: aj.Tensor, count: list[int] = [0]) -> aj.Tensor:  # noqa: B006
        count[0] += 1
        return x * count[0]

    return jit(lambda x: helper(x)), _nothing, lambda: None


@program
def counters_that_decide(jit: Any) -> Any:
    obj, found = _Object(), []

    @jit
    def step(x: aj.Tensor) -> aj.Tensor:
        obj.count += 1
        if obj.count % 2 == 0:
            found.append(x.sum().item())
            return x * 10
        return x

    return step, _nothing, lambda: (obj.count, found)


@program
def the_best_so_far(jit: Any) -> Any:
    seen = types.SimpleNamespace(best=float("inf"), stale=0)

    @jit
    def step(x: aj.Tensor) -> aj.Tensor:
        loss = (x - 2).pow(2).sum().item()
        if loss < seen.best:
            seen.best, seen.stale = loss, 0
        else:
            seen.stale += 1
        return x * 2

    return step, _nothing, lambda: (seen.best, seen.stale)


@program
def a_mean_that_begins_with_none(jit: Any) -> Any:
    seen = types.SimpleNamespace(mean=None)

    @jit
    def step(x: aj.Tensor) -> aj.Tensor:
        loss = x.double().sum().item()
        seen.mean = loss if seen.mean is None else 0.5 * seen.mean + 0.5 * loss
        return x.double() * seen.mean

    return step, _nothing, lambda: seen.mean


@program
def lists_by_name(jit: Any) -> Any:
    history: dict[str, list[Any]] = collections.defaultdict(list)

    @jit
    def step(x: aj.Tensor) -> aj.Tensor:
        history["loss"].append(x.sum().item())
        history["count"].append(len(history["count"]))
        return x * 2

    return step, _nothing, lambda: dict(history)


@program
def tensors_kept_from_call_to_call(jit: Any) -> Any:
    seen = types.SimpleNamespace(before=None, pair=(aj.zeros(2), aj.ones(2)))

    @jit
    def step(x: aj.Tensor) -> aj.Tensor:
        y = x if seen.before is None else x + seen.before
        seen.before = y.detach()
        a, b = seen.pair
        seen.pair = (a + x, b * a)
        return y + b

    return step, _nothing, lambda: (seen.before.tolist(), [t.tolist() for t in seen.pair])


@program
def the_context_of_a_variable(jit: Any) -> Any:
    scale: contextvars.ContextVar[int] = contextvars.ContextVar("scale", default=0)
    return jit(lambda x: x * scale.get()), scale.set, lambda: None


@program
def classes_registered(jit: Any) -> Any:
    class Kind(abc.ABC):  # noqa: B024
        pass

    class Other:
        pass

    obj = Other()
    step = jit(lambda x: x * (2 if isinstance(obj, Kind) else 5))
    return step, lambda k: k == 3 and Kind.register(Other), lambda: None


@program
def functions_registered(jit: Any) -> Any:
    @functools.singledispatch
    def chosen(value: Any) -> float:
        return 1.0

    chosen.register(int)(lambda value: 2.0)
    step = jit(lambda x: x * chosen(3) + chosen("a"))
    return step, lambda k: k == 3 and chosen.register(int)(lambda value: 7.0), lambda: None


@program
def keys_held_weakly(jit: Any) -> Any:
    key = _Object()
    table: Any = weakref.WeakKeyDictionary({key: 1.0})
    return jit(lambda x: x * table[key]), lambda k: table.__setitem__(key, float(k)), lambda: None


@program
def patterns(jit: Any) -> Any:
    held: dict[str, Any] = {"it": ("a", 1.0)}

    @jit
    def step(x: aj.Tensor) -> aj.Tensor:
        match held["it"]:
            case ("a", value):
                return x * value
            case ("b", value):
                return x + value
        return x

    return step, lambda k: held.update(it=("ab"[k % 2], float(k))), lambda: None


@program
def generators(jit: Any) -> Any:
    obj = _Object()

    def numbers() -> Iterator[float]:
        obj.count += 1
        yield obj.value
        yield obj.value * obj.count

    return jit(lambda x: x * sum(numbers())), lambda k: setattr(obj, "value", float(k)), lambda: obj.count


@program
def code_in_text(jit: Any) -> Any:
    held = {"scale": 1.0}

    @jit
    def step(x: aj.Tensor) -> aj.Tensor:
        names: dict[str, Any] = {"held": held}
        exec("y = held['scale'] * 2", names)
        return x * names["y"] * eval("held['scale']", {"held": held})

    return step, lambda k: held.update(scale=float(k)), lambda: None


@program
def properties_that_are_set(jit: Any) -> Any:
    class Kind:
        def __init__(self) -> None:
            self.held, self.seen = 1.0, list[float]()

        @property
        def value(self) -> float:
            return self.held

        @value.setter
        def value(self, new: float) -> None:
            self.seen.append(new)
            self.held = new

    obj = Kind()

    @jit
    def step(x: aj.Tensor) -> aj.Tensor:
        obj.value = obj.value + 1
        return x * obj.value

    return step, _nothing, lambda: (obj.held, obj.seen)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_gives_and_leaves_what_it_does_in_eager_mode(name: str) -> None:
    assert _run(*PROGRAMS[name](aj.jit)) == _run(*PROGRAMS[name](lambda function: function))


@pytest.mark.parametrize("change", [lambda t: t.pop(min(t), None), lambda t: t.update(b=2.0)], ids=["pop", "update"])
def test_a_dictionary_is_changed_at_every_call(change: Callable[[Any], Any]) -> None:
    def left(jit: Any) -> list[Any]:
        table = {"a": 1.0, "c": 3.0, "d": 4.0}
        step, found = jit(lambda x: (change(table), x * 2)[1]), []
        for _ in range(3):
            found.append((step(aj.ones(2)).tolist(), dict(table)))
        return found

    assert left(aj.jit) == left(lambda function: function)


CHANGED: dict[str, Callable[[Any], Any]] = {
    "an array changed": lambda array: np.add(array, 1, out=array),
    "an array copied to": lambda array: np.copyto(array, array * 2),
    "an array clipped": lambda array: np.clip(array, 0, 3, out=array),
}


@pytest.mark.parametrize("name", CHANGED)
def test_what_code_of_others_changes_it_changes_at_every_call(name: str) -> None:
    def shown(jit: Callable[[Any], Any]) -> list[Any]:
        array, change, found = np.ones(2), CHANGED[name], []
        step = jit(lambda x: (change(array), x * 2)[1])
        for k in range(5):
            found.append((step(aj.ones(2) * k).tolist(), array.tolist()))
            array[0] += k
        return found

    assert shown(aj.jit) == shown(lambda function: function)
