"""Containers given as arguments are the caller's own objects wherever a jitted function hands them on or asks."""

from __future__ import annotations

import operator
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import autojit as aj


@dataclass
class Record:
    t: Any
    n: Any


@dataclass(eq=False)
class Single:
    t: Any
    n: Any


@dataclass(frozen=True)
class Frozen:
    t: Any
    n: Any


Pair = namedtuple("Pair", "t n")

KINDS: dict[str, Callable[[Any, Any], Any]] = {
    "list": lambda t, n: [t, n],
    "dict": lambda t, n: {"t": t, "n": n},
    "ordered": lambda t, n: OrderedDict(t=t, n=n),
    "record": Record,
    "single": Single,
    "frozen": Frozen,
}
# The container ``c`` that a call is given, and the way to it in the argument ``b``
NESTINGS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "itself": (lambda c: c, "b"),
    "in a list": (lambda c: [c, 1], "b[0]"),
    "in a dictionary": (lambda c: {"x": 1, "c": c}, "b['c']"),
    "in a tuple": (lambda c: (1, c), "b[1]"),
    "in a named tuple": (lambda c: Pair(1, [c]), "b.n[0]"),
    "in a record": (lambda c: Record(c, 1), "b.t"),
}
COMPILED = (
    "return b",
    "return c",
    "return b, c, c",
    "return {'c': c, 'y': y}",
    "return [SimpleNamespace(c=c), y]",
    "return lambda: c",
    "return c if c is not None else y",
    "box.append(c); return y",
    "box.extend([c, y]); return y",
    "here.last = c; return y",
    "here.last = [c, y]; return y",
    "cache['c'] = c; cache['y'] = y; return c",
    "x.add_(1.0); return c",
    "x.mul_(w); return c, (x * w).sum()",
    "return c, (x * w).sum()",
    "return len(b) if isinstance(b, (list, tuple, dict)) else y",
)
ASKING = (
    "return c is OUTSIDE, y",
    "return c is not OUTSIDE, OUTSIDE is c",
    "return id(c) == id(OUTSIDE), y",
    "return operator.is_(c, OUTSIDE), operator.is_not(OUTSIDE, c), y",
    "return c is other, y",
    "return any(c is part for part in [OUTSIDE, other]), y",
    "return c is here.kept, y",
    "if c is OUTSIDE: return y\n    return c",
)


def _function(body: str, way: str) -> Callable[[Any], dict[str, Any]]:
    """A fresh function and its world."""

    def made(jit: Callable[[Any], Any], outside: Any) -> dict[str, Any]:
        names = {"OUTSIDE": outside, "box": [], "cache": {}, "here": SimpleNamespace(last=None, kept=outside)}
        names |= {"w": aj.ones(2, requires_grad=True), "SimpleNamespace": SimpleNamespace, "operator": operator}
        lines = "".join(f"    {line}\n" for line in body.split("; "))
        exec(f"def step(b, other, x):\n    c = {way}\n    y = x * 2\n{lines}", names)
        names["step"] = jit(names["step"])
        return names

    return made


def _shown(value: Any, known: dict[int, str]) -> Any:
    """A value with the names of the objects that it consists of."""
    name = known.get(id(value), "")
    if isinstance(value, aj.Tensor):
        return name, value.tolist(), value.requires_grad
    if isinstance(value, dict):
        return name, type(value), [(key, _shown(part, known)) for key, part in value.items()]
    if isinstance(value, list | tuple):
        return name, type(value), [_shown(part, known) for part in value]
    if callable(value):
        return _shown(value(), known)
    if isinstance(value, Record | Single | Frozen | SimpleNamespace):
        return name, type(value), [(key, _shown(part, known)) for key, part in vars(value).items()]
    return type(value), value


def _names(value: Any, name: str, known: dict[int, str]) -> None:
    if isinstance(value, list | dict | tuple | Record | Single | Frozen):
        if not isinstance(value, tuple):
            known.setdefault(id(value), name)
        held = dict(enumerate(value)) if isinstance(value, list | tuple) else value
        for key, part in (held if isinstance(held, dict) else vars(held)).items():
            _names(part, f"{name}.{key}", known)
    elif isinstance(value, aj.Tensor):
        known.setdefault(id(value), name)


def _run(body: str, kind: str, nesting: str, jit: Callable[[Any], Any]) -> tuple[list[Any], Any]:
    nest, way = NESTINGS[nesting]
    make = KINDS[kind]
    outside = make(aj.ones(2), 1)
    world = _function(body, way)(jit, outside)
    found, kept, known = [], [], {id(outside): "outside"}
    for k in range(5):
        x = aj.ones(2) * (k + 1)
        c = outside if k in (2, 4) else make(x, 1)
        other = c if k in (3, 4) else make(x, 1)
        b = nest(c)
        kept.append((b, other, x))
        _names((b, other, x), f"call {k}", known)
        result = world["step"](b, other, x)
        left = world["box"], world["cache"], world["here"]
        found.append((_shown(result, known), [_shown(value, known) for value in left], _shown(b, known)))
    return found, world["step"]


@pytest.mark.parametrize("nesting", NESTINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_handed_on_is_the_callers_own(kind: str, nesting: str) -> None:
    for body in COMPILED if kind in ("list", "record") or nesting == "itself" else COMPILED[:5]:
        eager, _ = _run(body, kind, nesting, lambda f: f)
        compiled, step = _run(body, kind, nesting, aj.jit)
        assert compiled == eager, body
        assert step.steps() and "line by line" not in step.explain(), body


@pytest.mark.parametrize("nesting", NESTINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_questions_about_identity_have_eager_modes_answers(kind: str, nesting: str) -> None:
    for body in ASKING:
        eager, _ = _run(body, kind, nesting, lambda f: f)
        compiled, step = _run(body, kind, nesting, aj.jit)
        assert compiled == eager, body
        assert "asks which object" in step.explain(), body


@pytest.mark.parametrize("body", ["return b in OUTSIDE, y", "return OUTSIDE.index(b), y", "return OUTSIDE.count(b), y"])
def test_searches_find_objects_themselves(body: str) -> None:
    found = []
    for jit in (lambda f: f, aj.jit):
        held = {"t": aj.ones(2)}
        world = _function(body, "b")(jit, [[1], held])
        found.append([_shown(world["step"](held, 1, aj.ones(2)), {}) for _ in range(3)])
    assert found[0] == found[1]


def test_records_without_an_equality_of_their_own_are_compared_by_identity() -> None:
    one, two = Single(1.0, 2), Single(1.0, 2)
    step = aj.jit(lambda a, b, x: (a == b, a != b, a == one, x + 1))
    given = [(one, one), (one, two), (two, one), (two, two)] * 2
    assert [step(a, b, aj.ones(1))[:3] for a, b in given] == [(a == b, a != b, a == one) for a, b in given]


CHANGES = (  # of a container outside, which some calls are given, too
    ("box.append(1.0); return len(b), y", list),
    ("n = len(b); box.append(x); return n, y", list),
    ("box.clear(); return len(b), y", list),
    ("cache['n'] = len(b); return b.get('n'), y", dict),
    ("cache['t'] = y; return b.get('t'), y", dict),
    ("record.n = record.n + 1; return b.n, y", lambda: Record(1.0, 1)),
    ("record.t = y; return b.t, y", lambda: Record(1.0, 1)),
)


@pytest.mark.parametrize(("body", "make"), CHANGES)
@pytest.mark.parametrize("order", [(0, 0, 1, 1, 0), (1, 0, 1), (1, 1, 0, 0)])
def test_what_the_function_changes_outside_is_changed_in_the_arguments(body: str, make: Any, order: Any) -> None:
    found = []
    for jit in (lambda f: f, aj.jit):
        world = _function(body, "b")(jit, None)
        world["record"] = Record(1.0, 1)
        own = {list: world["box"], dict: world["cache"]}.get(make, world["record"])
        shown = []
        for k, is_own in enumerate(order):
            result = world["step"](own if is_own else make(), None, aj.ones(2) * k)
            shown.append((_shown(result, {}), _shown(own, {})))
        found.append(shown)
    assert found[0] == found[1]


def test_a_list_given_again_equal_or_changed() -> None:
    step = aj.jit(lambda b: {"batch": b, "y": b[0] * 2})
    batch = [aj.ones(2)]
    for _ in range(3):
        assert step(batch)["batch"] is batch
    batch[0] = aj.zeros(2)
    assert step(batch)["batch"] is batch and step(batch)["y"].tolist() == [0, 0]
    batch.append(aj.ones(1))
    assert step(batch)["batch"] is batch
    assert step([aj.ones(3)])["batch"] is not batch


def test_arguments_in_another_order_of_memory() -> None:
    step = aj.jit(lambda b: (b, b["x"] + 1))
    for x in (aj.ones(2, 3), aj.ones(3, 2).t(), aj.ones(2, 3), aj.ones(3, 2).t()):
        batch = {"x": x}
        found, y = step(batch)
        assert found is batch and found["x"] is x and y.tolist() == (x + 1).tolist()


def test_arrays_stay_arrays() -> None:
    step = aj.jit(lambda b: (b, aj.tensor(1.0) + b[0]))
    for _ in range(3):
        batch = [np.ones(2, np.float32)]
        found, _ = step(batch)
        assert found is batch and type(found[0]) is np.ndarray


def test_an_inner_container_replaced_by_an_equal_one() -> None:
    def step(b: Any) -> Any:
        b["inner"] = [*b["inner"]]
        return b["inner"][0] * 2

    compiled = aj.jit(step)
    for _ in range(3):
        batch = {"inner": [aj.ones(2)]}
        before = batch["inner"]
        assert compiled(batch).tolist() == [2, 2] and batch["inner"] is not before


def test_containers_that_are_only_read_stay_compiled_and_native() -> None:
    step = aj.jit(lambda b: b["x"] * 2 if b is not None and "x" in b else None)
    for _ in range(4):
        step({"x": aj.ones(2)})
    assert step.stats()["native_calls"] == 3


HELD = (  # by places that the function reads and assigns to, or drawn for each call
    "prev = here.last; here.last = b; return prev",
    "prev = here.last; here.last = [b]; return y if prev is None else prev[0]",
    "here.kept, here.spare = here.spare, here.kept; return here.kept, y + here.kept['t'][0]",
    "here.kept = {'t': here.kept['t'], 'y': y}; return y",
    "here.kept = {**here.kept, 'y': y}; return here.kept['t']",
    "here.kept = {**here.kept, 'y': y}; return here.kept['t'] is SPARE['t'], y",
    "here.kept['t'], here.spare['t'] = here.spare['t'], here.kept['t']; return y",
    "b = next(batches); return b, b['t'][0] + y",
    "b = next(batches); box.append(b['t']); return y",
    "b = next(batches); here.last = b; return y",
    "b = next(batches); return b is SPARE, b['t'][0] + y",
    "here.spare, b = b, here.spare; here.n += 1; return b, here.n",
    "here.numbers = {**here.numbers, 'n': here.numbers['n'] + 1}; return y",
    "here.numbers = {'n': here.numbers['n'] + 1, 'i': here.numbers['i']}; return y",
    "prev = here.numbers; here.numbers = {'n': prev['n'] + 1, 'i': {'m': 1}}; return prev, y",
    "b = here.numbers; here.numbers = b if x is None else here.numbers; return y * b['n']",
    "b = next(numbers); return b, b['n'] * y",
    "b = next(numbers); box.append(b); return b['n'] * y",
    "b = next(numbers); return b['n'] * y",
)


@pytest.mark.parametrize("body", HELD)
def test_what_places_hold_and_what_is_drawn_is_the_callers_own(body: str) -> None:
    found = []
    for jit in (lambda f: f, aj.jit):
        world = _function(body, "b")(jit, None)
        kept, spare = {"t": [aj.ones(2)]}, {"t": [aj.zeros(2)]}
        world["here"].kept, world["here"].spare, world["here"].n, world["SPARE"] = kept, spare, 0, spare
        world["batches"] = cycle([kept, spare])
        numbers = [{"n": 1, "i": {"m": 2}}, {"n": 2, "i": {"m": 3}}]
        world["numbers"], world["here"].numbers = cycle(numbers), numbers[0]
        known: dict[int, str] = {}
        _names((kept, spare, numbers), "first", known)
        shown, given = [], []
        for k in range(6):
            given.append({"t": [aj.ones(2) * k]})
            _names(given[-1], f"call {k}", known)
            result = world["step"](given[-1], None, aj.ones(2))
            shown.append((_shown(result, known), _shown(world["here"], known), _shown(world["box"], known)))
        found.append(shown)
    assert found[0] == found[1]
