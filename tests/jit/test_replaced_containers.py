"""A place where a step finds a container, or what it draws from, holds another one: of that one later calls speak.

Laws over places (attributes, variables, items, defaults, ...), kinds of objects and what happens between the calls.
"""

from __future__ import annotations

import copy
import itertools
import random
from collections import deque
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest

import autojit as aj
from autojit import nn

Read = Callable[[Any], Any]
Jit = Callable[[Any], Any]


class Place(NamedTuple):
    """A step that reads what a place holds, and the place."""

    step: Callable[[Any], Any]
    get: Callable[[], Any]
    put: Callable[[Any], None]


def _held_by(holder: Any, read: Read) -> Place:
    return Place(
        lambda x: x.sum() * 0 + read(holder.it) * 1.0,
        lambda: holder.it,
        lambda value: setattr(holder, "it", value),
    )


def _attribute(value: Any, read: Read) -> Place:
    return _held_by(SimpleNamespace(it=value), read)


class _Slotted:
    __slots__ = ("it",)


def _slot(value: Any, read: Read) -> Place:
    holder = _Slotted()
    holder.it = value
    return _held_by(holder, read)


class _Model(nn.Module):
    it: Any = None

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(aj.ones(2))


def _of_module(value: Any, read: Read) -> Place:
    model = _Model()
    model.it = value
    return _held_by(model, read)._replace(step=lambda x: (x * model.w).sum() * 0 + read(model.it) * 1.0)


def _of_class(value: Any, read: Read) -> Place:
    class Holder:
        it: ClassVar[Any] = value

    return _held_by(Holder, read)


def _variable(value: Any, read: Read) -> Place:
    def put(other: Any) -> None:
        nonlocal value
        value = other

    return Place(lambda x: x.sum() * 0 + read(value) * 1.0, lambda: value, put)


def _global(value: Any, read: Read) -> Place:
    names: dict[str, Any] = {"it": value, "read": read}
    exec("def step(x):\n    return x.sum() * 0 + read(it) * 1.0", names)
    return Place(names["step"], lambda: names["it"], lambda other: names.update(it=other))


def _item(value: Any, read: Read) -> Place:
    box = [0, value]
    return Place(lambda x: x.sum() * 0 + read(box[1]) * 1.0, lambda: box[1], lambda other: box.__setitem__(1, other))


def _key(value: Any, read: Read) -> Place:
    box = {"it": value}
    return Place(lambda x: x.sum() * 0 + read(box["it"]) * 1.0, lambda: box["it"], lambda other: box.update(it=other))


def _default(value: Any, read: Read) -> Place:
    def step(x: Any, it: Any = value) -> Any:
        return x.sum() * 0 + read(it) * 1.0

    def put(other: Any) -> None:
        step.__defaults__ = (other,)

    return Place(step, lambda: (step.__defaults__ or ())[0], put)


PLACES: dict[str, Callable[[Any, Read], Place]] = {
    "attribute": _attribute, "slot": _slot, "module": _of_module, "class": _of_class, "variable": _variable,
    "global": _global, "item": _item, "key": _key, "default": _default,
}  # fmt: skip

CONTAINERS: dict[str, Any] = {
    "list": [1.0, 2.0],
    "empty": [],
    "dict": {"a": 1.0},
    "set": {1, 2},
    "deque": deque([1.0, 2.0]),
    "array": np.ones(2),
    "nested": [[1.0], [2.0]],
    "pair": (1, [2.0]),
}


def _parts(container: Any) -> Any:
    return container[1] if type(container) is tuple else container


def _first(container: Any) -> Any:
    if isinstance(container, dict):
        return container["a"]
    if isinstance(container, set):
        return min(container, default=-1)
    found = container[0] if len(container) else -1
    return found[0] if isinstance(found, list) else found


READS: dict[str, Read] = {
    "length": lambda it: len(_parts(it)),
    "truth": lambda it: 3 if len(_parts(it)) else 5,
    "first": lambda it: _first(_parts(it)),
    "walk": lambda it: sum([len(str(part)) for part in _parts(it)]),
}
EVENTS = ("..r..c..", "..r.c.r.o.b.c.", ".r.r.roc.b.c.")
"""What happens: a call; the place gets an equal container (r), or its first one again (b); it is changed (c), the one
that was there before is (o)."""


def _change(container: Any, k: int) -> None:
    parts = _parts(container)
    if isinstance(parts, dict):
        parts["a"] += 1
        parts[k] = 1.0
    elif isinstance(parts, set):
        parts.add(10 + k)
    elif isinstance(parts, np.ndarray):
        parts += 1
    elif parts and isinstance(parts[0], list):
        parts[0].insert(0, 9.0 + k)
    else:
        parts.append(7.0 + k)
        parts[0] += 1


def _program(made: Callable[[Any, Read], Place], kind: str, read: str, events: str, jit: Jit) -> list[float]:
    first = before = copy.deepcopy(CONTAINERS[kind])
    place = made(first, READS[read])
    step, found = jit(place.step), []
    for k, event in enumerate(events):
        if event == ".":
            found.append(step(aj.ones(2)).item())
        elif event == "r":
            before = place.get()
            place.put(copy.deepcopy(before))
        elif event == "b":
            place.put(first)
        else:
            _change(before if event == "o" else place.get(), k)
    return found


@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize("place", PLACES)
def test_changes_of_an_equal_container_that_has_come_in_its_place_are_seen(place: str, kind: str) -> None:
    for read, events in zip(READS, itertools.cycle(EVENTS)):
        args = PLACES[place], kind, read, events
        assert _program(*args, aj.jit) == _program(*args, lambda f: f), (read, events)


def test_what_was_replaced_by_an_equal_one_is_called_natively_and_needs_no_capture() -> None:
    at = SimpleNamespace(numbers=[1.0, 2.0])
    step = aj.jit(lambda x: x * at.numbers[0] + len(at.numbers))
    for k in range(12):
        if k % 4 == 2:
            at.numbers = list(at.numbers)
        step(aj.ones(1))
    assert step.stats()["captures"] == 1
    assert step.stats()["native_calls"] >= 7


def test_lists_that_layers_have_as_options_may_be_changed() -> None:
    def program(jit: Jit) -> list[Any]:
        pool, found = nn.MaxPool2d([2, 2]), []
        step = jit(lambda x: pool(x))
        for k in range(6):
            found.append(tuple(step(aj.ones(1, 1, 8, 8)).shape))
            if k == 2:
                pool.kernel_size[0] = pool.stride[0] = 4
            elif k == 3:
                pool.kernel_size = list(pool.kernel_size)
            elif k == 4:
                pool.kernel_size[1] = 8
        return found

    assert program(aj.jit) == program(lambda f: f)


# ---- what is drawn from


def _counting(k: float) -> Iterator[float]:
    while True:
        k += 1
        yield k


DRAWN: dict[str, Callable[[int], Any]] = {
    "cycle": lambda k: itertools.cycle([0.5 * k, 0.25 + k, 2.0]),
    "list": lambda k: iter([float(k * 10 + n) for n in range(40)]),
    "generator": lambda k: _counting(k * 16.0),
    "chain": lambda k: itertools.chain([1.0 * k, 2.0], itertools.count(k)),
    "map": lambda k: map(float, itertools.count(k * 8)),
    "any iterator": lambda k: (itertools.cycle([0.5, k]), iter([float(k + n) for n in range(40)]), _counting(k))[k % 3],
    "Random": random.Random,
    "Generator": np.random.default_rng,
    "RandomState": np.random.RandomState,
    "any random": lambda k: (random.Random(k), np.random.RandomState(k))[k % 2],
}


def _draw(it: Any) -> Any:
    if isinstance(it, np.random.RandomState):
        return it.random_sample()
    return it.random() if isinstance(it, random.Random | np.random.Generator) else next(it)


@pytest.mark.parametrize("kind", DRAWN)
@pytest.mark.parametrize("place", PLACES)
def test_what_is_drawn_from_is_what_is_there(place: str, kind: str) -> None:
    def program(jit: Jit, read: Read, events: str) -> list[float]:
        first = before = DRAWN[kind](0)
        made = PLACES[place](first, read)
        step, found = jit(made.step), []
        for k, event in enumerate(events):
            if event == ".":
                found.append(step(aj.ones(2)).item())
            elif event == "o":
                _draw(before)
            else:
                before = made.get()
                made.put(first if event == "b" else DRAWN[kind](k))
        return found

    for read, events in ((_draw, "..r..o..b.r.."), (lambda it: _draw(it) + 2 * _draw(it), "..r...")):
        assert program(aj.jit, read, events) == program(lambda f: f, read, events)


FROM_TWO: dict[str, Callable[[Any], Any]] = {
    "one after the other": lambda at: _draw(at.x) + 2 * _draw(at.y),
    "the same at first": lambda at: (lambda a, b: _draw(a) + 2 * _draw(b))(at.x, at.z),
    "others at first": lambda at: _draw(at.x) + (100 if at.x is at.y else 0),
    "one at first": lambda at: _draw(at.x) + (100 if at.x is at.z else 0),
    "chosen": lambda at: _draw(at.y if at.flag else at.x),
}


@pytest.mark.parametrize("kind", DRAWN)
@pytest.mark.parametrize("how", FROM_TWO)
def test_what_is_drawn_from_moves_between_places(how: str, kind: str) -> None:
    def program(jit: Jit) -> list[float]:
        make = DRAWN[kind]
        at = SimpleNamespace(x=make(0), y=make(1), flag=False)
        at.z = at.x
        step, found = jit(lambda x: x.sum() * 0 + FROM_TWO[how](at)), []
        for k in range(9):
            found.append(step(aj.ones(2)).item())
            if k == 1:
                at.x, at.y, at.flag = make(2), at.x, True
            elif k == 2:
                at.z = make(3)
            elif k == 3:
                at.x, at.flag = at.y, False
            elif k == 4:
                at.x = at.z = at.y = make(4)
            elif k == 5:
                at.y = make(5)
            elif k == 6:
                at.z, at.x = at.x, at.y
        return found

    assert program(aj.jit) == program(lambda f: f)
