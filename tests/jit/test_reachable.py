"""What a function can reach is found wherever it is kept, named as a user would name it, and put back after changes."""

from __future__ import annotations

import functools
import random
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from types import MethodType
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest

import autojit as aj
from autojit.jit.reachable import GENERATOR, Saved, Walk, world_of

TABLE: dict[str, Any] = {"a": 1}
FLAG = 1


class Slotted:
    __slots__ = ("count", "row")

    def __init__(self) -> None:
        self.count, self.row = 1, [1]


class Derived(Slotted):
    __slots__ = ("more",)


class Owner:
    shared: ClassVar[list[int]] = [1]
    level = 1

    def __init__(self) -> None:
        self.items = [1, 2]
        self.table = {"k": [1]}

    def method(self, x: Any, extra: Any = ([5],)) -> Any:
        return x, self.items, extra, FLAG

    @property
    def first(self) -> Any:
        return TABLE


class Case(NamedTuple):
    """A function, what is changed behind it, what shows the change, and the name of the place."""

    function: Callable[..., Any]
    change: Callable[[], Any]
    look: Callable[[], Any]
    path: str


def cells() -> Case:
    count, row = 1, [1]

    def function() -> Any:
        return count, row

    def change() -> None:
        nonlocal count
        count = 2
        row.append(2)

    return Case(function, change, lambda: (count, list(row)), "row[0]")


def global_names() -> Case:
    def function() -> Any:
        return FLAG, TABLE

    def change() -> None:
        globals()["FLAG"] = 7
        TABLE["b"] = 2
        TABLE["a"] = 3

    return Case(function, change, lambda: (FLAG, dict(TABLE)), "global FLAG")


def methods() -> Case:
    owner = Owner()

    def change() -> None:
        owner.items.append(3)
        owner.table["k"].append(2)
        owner.table["n"] = 1
        owner.late = 1  # type: ignore[attr-defined]

    return Case(
        owner.method, change, lambda: (repr(sorted(vars(owner).items(), key=str)), owner.method(0)), "self.items"
    )


def defaults_of_methods() -> Case:
    owner = Owner()
    kept = Owner.method.__defaults__
    assert kept is not None
    return Case(owner.method, lambda: kept[0][0].append(6), lambda: repr(kept), "defaults of method[0][0]")


def globals_of_methods() -> Case:
    owner = Owner()
    return Case(owner.method, lambda: globals().__setitem__("FLAG", 9), lambda: FLAG, "global FLAG")


def properties() -> Case:
    owner = Owner()
    return Case(lambda: owner, lambda: TABLE.update(a=5), lambda: dict(TABLE), "Owner.first")


def classes() -> Case:
    owner = Owner()

    def change() -> None:
        Owner.shared.append(2)
        Owner.level = 5

    return Case(lambda: owner, change, lambda: (list(Owner.shared), Owner.level), "Owner.level")


def slots() -> Case:
    thing = Derived()
    thing.more = 1

    def change() -> None:
        thing.count = 2
        thing.row.append(2)
        thing.more = 3

    return Case(lambda: thing, change, lambda: (thing.count, list(thing.row), thing.more), "thing.more")


def partials() -> Case:
    first, second = [1], {"a": 1}
    function = functools.partial(lambda x, *, y: (x, y), first, y=second)
    return Case(
        function, lambda: (first.clear(), second.clear()), lambda: (list(first), dict(second)), "function.args[0]"
    )


def functions_of_partials() -> Case:
    row = [1]
    function = functools.partial(lambda x: (x, row), 1)
    return Case(function, lambda: row.append(2), lambda: list(row), "row")


def methods_bound_by_hand() -> Case:
    row = [1]
    function = MethodType(lambda number: (number, row), 3)
    return Case(function, lambda: row.append(2), lambda: list(row), "row")


def wrapped() -> Case:
    row = [1]

    def inner() -> Any:
        return row

    @functools.wraps(inner)
    def function() -> Any:
        return None

    return Case(function, lambda: row.append(2), lambda: list(row), "row")


def sets_and_deques() -> Case:
    a, b = {1, 2}, deque([1, 2], maxlen=3)
    return Case(
        lambda: (a, b), lambda: (a.add(3), a.discard(1), b.append(4), b.append(5)), lambda: (set(a), list(b)), "a"
    )


def lists_of_the_same_length() -> Case:
    row: list[Any] = [1, [2], 3]
    return Case(lambda: row, lambda: row.__setitem__(1, 5), lambda: repr(row), "row[1]")


def keys_that_are_objects() -> Case:
    key, row = Owner(), [1]
    table = {key: row}
    return Case(lambda: table, lambda: row.append(2), lambda: list(row), "table[key 0]")


def ordered_dictionaries() -> Case:
    table = OrderedDict(a=1, b=2)
    return Case(lambda: table, lambda: (table.move_to_end("a"), table.update(c=3)), lambda: repr(table), "table['b']")


def dictionaries_that_count() -> Case:
    class Counted(dict[str, int]):
        def __setitem__(self, key: str, value: int) -> None:
            super().__setitem__(key, value + 1)

    table, made = Counted(a=1), defaultdict(list, a=[1])
    return Case(
        lambda: (table, made), lambda: (table.update(b=2), made["z"]), lambda: (repr(table), repr(made)), "made['a'][0]"
    )


def arrays() -> Case:
    x, fixed = np.arange(6.0).reshape(2, 3).T, np.ones(2)
    fixed.flags.writeable = False
    return Case(lambda: (x, fixed), lambda: x.__setitem__(0, 9), lambda: x.tolist(), "x")


def tensors() -> Case:
    x = aj.ones(2, requires_grad=True)
    y = aj.zeros(3)
    y.kept = [1]  # type: ignore[attr-defined]
    x.grad = aj.ones(2)

    def change() -> None:
        x.grad = None
        x.requires_grad_(False)
        x.add_(1)
        y.fill_(4)
        y.kept.append(2)  # type: ignore[attr-defined]

    def look() -> Any:
        grad = None if x.grad is None else x.grad.tolist()
        return x.tolist(), grad, x.requires_grad, y.tolist(), list(y.kept)  # type: ignore[attr-defined]

    return Case(lambda: (x, y), change, look, "x.grad")


def hooks() -> Case:
    x, y, seen = aj.ones(2, requires_grad=True), aj.ones(2, requires_grad=True), [1]
    x.register_hook(lambda g: seen.append(1))

    def change() -> None:
        x.register_hook(lambda g: g * 2)
        y.register_hook(lambda g: g * 3)
        seen.append(2)

    def look() -> Any:
        before = list(seen)
        (3 * x + y).sum().backward()
        found = x.grad.tolist(), y.grad.tolist()
        seen[:] = before
        x.grad = y.grad = None
        return found, before

    return Case(lambda: (x, y), change, look, "a hook of x")


def models() -> Case:
    model = aj.nn.Sequential(aj.nn.Linear(2, 2), aj.nn.BatchNorm1d(2))
    optimizer = aj.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def change() -> None:
        model(aj.rand(4, 2)).square().sum().backward()
        optimizer.step()
        optimizer.param_groups[0]["lr"] = 0.5
        model.eval()

    def look() -> Any:
        state = {k: v.tolist() for k, v in model.state_dict().items()}
        return state, repr(optimizer.state_dict()), [m.training for m in model.modules()]

    return Case(lambda: (model, optimizer), change, look, "model.training")


def sources_of_random_numbers() -> Case:
    own, old, plain = np.random.default_rng(1), np.random.RandomState(1), random.Random(1)
    ours = aj.Generator().manual_seed(1)

    def draw() -> Any:
        found = own.random(), old.rand(), plain.random(), aj.rand(1, generator=ours).item()
        return *found, aj.rand(1).item(), random.random(), np.random.rand()

    def look() -> Any:
        saved = Saved(Walk(world_of(lambda: (own, old, plain, ours), (), {}) + GENERATOR))
        found = draw()
        saved.restore()
        return found

    return Case(lambda: (own, old, plain, ours), draw, look, "own")


CASES = [
    cells, global_names, methods, defaults_of_methods, globals_of_methods, properties, classes, slots, partials,
    functions_of_partials, methods_bound_by_hand, wrapped, sets_and_deques, lists_of_the_same_length,
    keys_that_are_objects, ordered_dictionaries, dictionaries_that_count, arrays, tensors, hooks, models,
    sources_of_random_numbers,
]  # fmt: skip


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_what_is_changed_can_be_put_back(make: Callable[[], Case]) -> None:
    case = make()
    before = case.look()
    walk = Walk(world_of(case.function, (), {}) + GENERATOR)
    assert case.path in {*(part.path for part in walk.parts), *walk.first.values()}
    saved = Saved(walk)
    case.change()
    assert case.look() != before
    saved.restore()
    assert case.look() == before


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_two_walks_of_one_world_meet_the_same(make: Callable[[], Case]) -> None:
    case = make()
    world = world_of(case.function, (1, [2]), {"y": {3}})
    first, second = Walk(world), Walk(world)
    assert [(p.path, type(p.value)) for p in first.parts] == [(p.path, type(p.value)) for p in second.parts]
    assert first.aliases == second.aliases
    assert {"argument 0", "argument 1", "argument 1[0]", "argument y"} <= {p.path for p in first.parts}


def test_one_object_under_two_names_is_met_once() -> None:
    row = [1]
    walk = Walk([("a", row), ("b", {"k": row})])
    assert walk.aliases == [("b['k']", "a")]
    assert [p.path for p in walk.parts] == ["a", "a[0]", "b"]


def test_a_step_stands_for_its_function_and_libraries_for_nothing() -> None:
    row = [1]
    step = aj.jit(lambda: row)
    assert "row" in {p.path for p in Walk([("step", step)]).parts}
    assert [p.path for p in Walk([("module", np), ("method", [].append), ("kind", dict)]).parts] == []
