"""Which extents of arguments are left open: those in which calls differ that agree in everything else."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.core.errors import CompileError
from autojit.core.size_expressions import symbol
from autojit.core.sizes import is_symbolic
from autojit.jit.arguments import signature
from autojit.jit.open_numbers import OpenLeaves
from autojit.jit.open_sizes import OpenSizes
from autojit.jit.pytree import flatten

SHAPES: tuple[tuple[int, ...], ...] = ((2, 3), (5, 3), (5, 7), (1, 3), (1, 4), (0, 3), (2,), (6,), ())
KINDS: dict[str, Any] = {
    "f32": lambda shape: aj.zeros(shape),
    "f64": lambda shape: aj.zeros(shape, dtype=aj.float64),
    "leaf": lambda shape: aj.zeros(shape, requires_grad=True),
    "array": lambda shape: np.zeros(shape),
    "array of ints": lambda shape: np.zeros(shape, np.int64),
}
ANYTHING = object()
PLAIN: tuple[Any, ...] = (1.5, 2, "text", None, (1, 2), (1, 3), ("array", 2), ANYTHING, True)


def of(*leaves: Any) -> tuple[Any, Any, list[Any]]:
    given, tree = flatten((leaves, {}))
    return signature(given, tree, OpenLeaves((), {}), {}), tree, given


def differ_in_extents_alone(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return a != b and len(a) == len(b) and all(n == m or min(n, m) >= 2 for n, m in zip(a, b, strict=True))


def test_calls_that_differ_in_extents_alone_leave_them_open() -> None:
    for (k, make), (j, other) in itertools.product(KINDS.items(), KINDS.items()):
        for a, b in itertools.product(SHAPES, SHAPES):
            sizes = OpenSizes()
            (old, *_), (new, tree, leaves) = of(make(a), 1.5), of(other(b), 1.5)
            is_open = k == j and differ_in_extents_alone(a, b)
            assert sizes.notice([old], new) == is_open, (k, j, a, b)
            shapes, values = sizes.shapes(tree, leaves, ())
            assert bool(shapes) == bool(values) == is_open
            opened = [is_symbolic(n) for n in shapes.get(0, ())]
            assert opened == ([n != m for n, m in zip(a, b, strict=True)] if is_open else [])
            assert set(values.values()) == {m for n, m in zip(a, b, strict=False) if is_open and n != m}


def test_calls_that_differ_in_anything_else_leave_nothing_open() -> None:
    for first, second in itertools.product(PLAIN, PLAIN):
        for shape in ((2, 3), (5, 3)):
            sizes = OpenSizes()
            (old, *_), (new, *_) = of(aj.zeros(2, 3), first), of(aj.zeros(shape), second)
            is_same = type(first) is type(second) and first == second
            assert sizes.notice([old], new) == (is_same and shape == (5, 3)), (first, second)
    one, two = of(aj.zeros(2), [1.5]), of(aj.zeros(3), 1.5)
    assert not OpenSizes().notice([one[0]], two[0]), "another structure"
    assert not OpenSizes(False).notice([of(aj.zeros(2))[0]], of(aj.zeros(3))[0])


def test_the_call_that_differs_least_says_what_is_open() -> None:
    far, near, new = of(aj.zeros(9, 9)), of(aj.zeros(2, 3)), of(aj.zeros(2, 5))
    for known in ([far[0], near[0]], [near[0], far[0]]):
        sizes = OpenSizes()
        assert sizes.notice(known, new[0])
        assert [is_symbolic(n) for n in sizes.shapes(*new[1:], ())[0][0]] == [False, True]
        assert not sizes.notice(known, new[0]), "it is open already"


def test_axes_share_a_size_until_they_differ() -> None:
    old, new = of(aj.zeros(2, 3), aj.zeros(2)), of(aj.zeros(4, 3), aj.zeros(4))
    sizes = OpenSizes()
    assert sizes.notice([old[0]], new[0])
    for extents in ((4, 4), (7, 7)):
        shapes, values = sizes.shapes(new[1], [aj.zeros(extents[0], 3), aj.zeros(extents[1])], ())
        assert [str(shapes[0][0]), str(shapes[1][0])] == ["s0", "s0"] and values == {"s0": extents[0]}
    shapes, values = sizes.shapes(new[1], [aj.zeros(7, 3), aj.zeros(8)], ())
    assert len({str(shapes[0][0]), str(shapes[1][0])}) == 2 and sorted(values.values()) == [7, 8]
    shapes, values = sizes.shapes(new[1], [aj.zeros(6, 3), aj.zeros(6)], ())
    assert len({str(shapes[0][0]), str(shapes[1][0])}) == 2 and len(values) == 2, "they stay apart"
    shapes, values = sizes.shapes(new[1], [aj.zeros(1, 3), aj.zeros(6)], ())
    assert list(shapes) == [1] and len(values) == 1, "an extent of 1 is not open"
    shapes, _ = sizes.shapes(new[1], [aj.zeros(6, 3), aj.zeros(5)], [1])
    assert list(shapes) == [0], "an argument bound to state has the state's size"
    shapes, values = sizes.shapes(new[1], [aj.zeros(6), aj.zeros(5)], ())
    assert list(shapes) == [0, 1] and len(values) == 2
    shapes, values = sizes.shapes(new[1], [aj.tensor(1.0), aj.zeros(5)], ())
    assert list(shapes) == [1] and len(values) == 1, "an argument of fewer axes"
    other = of([aj.zeros(6, 3)])
    assert sizes.shapes(*other[1:], ()) == ({}, {}), "arguments of another structure"


def test_with_dynamic_every_extent_from_two_on_is_open_from_the_first_call_on() -> None:
    _, tree, leaves = of(aj.zeros(2, 1, 3), 2.5, np.zeros((0, 4)))
    shapes, values = OpenSizes(True).shapes(tree, leaves, ())
    opened = {k: [is_symbolic(n) for n in shape] for k, shape in shapes.items()}
    assert opened == {0: [True, False, True], 2: [False, True]} and sorted(values.values()) == [2, 3, 4]
    assert OpenSizes(False).shapes(tree, leaves, ()) == OpenSizes().shapes(tree, leaves, ()) == ({}, {})


def test_an_axis_that_begins_to_differ_shares_the_size_of_an_open_one_of_its_extent() -> None:
    for second, is_shared in ((6, True), (7, False)):
        sizes = OpenSizes()
        first = of(aj.zeros(2), aj.zeros(3))
        assert sizes.notice([first[0]], of(aj.zeros(6), aj.zeros(3))[0])
        tree, leaves = first[1], [aj.zeros(6), aj.zeros(second)]
        shapes, _ = sizes.shapes(tree, leaves, ())
        assert sizes.notice([first[0]], signature(leaves, tree, OpenLeaves((), {}), shapes)), (
            "one open, one fixed: it opens the other"
        )
        shapes, values = sizes.shapes(tree, leaves, ())
        names = [str(shapes[k][0]) for k in (0, 1)]
        assert (names[0] == names[1]) == is_shared == (len(values) == 1)
    sizes = OpenSizes()
    assert sizes.notice([of(aj.zeros(2, 3))[0]], of(aj.zeros(4, 3))[0])
    assert sizes.notice([of(aj.zeros(2, 3))[0]], of(aj.zeros(4, 5))[0]), "of two axes one is open already"


@dataclass
class Captured:
    """What of a capture says which sizes cannot stay open."""

    sizes: dict[str, int] = field(default_factory=dict)
    counted: dict[str, Any] = field(default_factory=dict)
    pinned: dict[Any, str] = field(default_factory=dict)


def two_open() -> tuple[OpenSizes, Any, list[str]]:
    sizes, new = OpenSizes(), of(aj.zeros(4), aj.zeros(6))
    assert sizes.notice([of(aj.zeros(2), aj.zeros(3))[0]], new[0])
    assert sorted(sizes.shapes(*new[1:], ())[1]) == ["s0", "s1"]
    return sizes, new, []


def opened(sizes: OpenSizes, new: Any) -> list[int]:
    return list(sizes.shapes(*new[1:], ())[0])


@pytest.mark.parametrize("name", ["s0", "s1"])
def test_sizes_whose_digits_are_seen_are_fixed_and_the_others_stay_open(name: str) -> None:
    sizes, new, told = two_open()
    captured = Captured(pinned={symbol(name): "here.py:3", symbol("other"): "elsewhere"})
    assert not sizes.pin(captured, told.append).is_fixed  # type: ignore[arg-type]
    assert opened(sizes, new) == ([1] if name == "s0" else [0])
    assert sizes.specialised == 1 and len(told) == 1 and "here.py:3" in told[0]
    again = of(aj.zeros(9), aj.zeros(6)) if name == "s0" else of(aj.zeros(4), aj.zeros(9))
    assert not sizes.notice([new[0]], again[0]), "what was fixed is not opened again"
    assert not sizes.notice([new[0]], of(aj.zeros(9), aj.zeros(9))[0]), "nor what differs beside it"
    sizes.dynamic = True
    assert opened(sizes, new) == ([1] if name == "s0" else [0])


def test_what_a_capture_gives_up_is_fixed_again() -> None:
    for names, left in ((["s0"], [1]), (["s1"], [0]), ([], []), (["s0", "s1"], [])):
        sizes, new, told = two_open()
        trace = Captured({"s0": 4, "s1": 6, "c0": 2}, {"c0": None})
        assert sizes.give_up(trace, names, "because", told.append).is_fixed  # type: ignore[arg-type]
        assert opened(sizes, new) == left and sizes.specialised == (len(names) or 3)
        assert sizes.are_counts_fixed == (not names) and "because" in told[0]
    sizes, new, told = two_open()
    trace = Captured({"s0": 4, "c0": 2}, {"c0": None})
    for _ in range(2):
        assert sizes.give_up(trace, ["c0"], "because", told.append).is_fixed  # type: ignore[arg-type]
        assert opened(sizes, new) == [0, 1] and sizes.are_counts_fixed
        trace = Captured({"s9": 1})
        names = sizes.are_counts_fixed
        assert sizes.give_up(trace, (), "another", told.append).is_fixed  # type: ignore[arg-type]
        assert sizes.are_counts_fixed == names
        trace = Captured({"c0": 2}, {"c0": None})
    with pytest.raises(CompileError):
        sizes.give_up(Captured(), (), "nothing is open", told.append)  # type: ignore[arg-type]


@pytest.mark.parametrize(("dynamic", "agreeing"), [(None, 0), (None, 3), (True, 2)])
def test_a_loop_over_one_length_leaves_the_others_open(dynamic: bool | None, agreeing: int) -> None:
    """Captures grow with the lengths that Python loops over, also where the lengths agree in the first calls."""

    def decode(source: Any, target: Any) -> Any:
        state = source.mean(0)
        for token in target:
            state = (source * state).softmax(0).sum(0) + token
        return state

    step = aj.jit(decode, dynamic=dynamic)
    rng = np.random.default_rng(0)
    looped = set()
    for k in range(14):
        source, target = rng.integers(2, 30), rng.integers(2, 5)
        if k < agreeing:
            source = target = k + 2
        looped.add(int(target))
        given = aj.tensor(rng.normal(size=(source, 3))), aj.tensor(rng.normal(size=(target, 3)))
        aj.testing.assert_close(step(*given), decode(*given))
    assert step.stats()["captures"] <= len(looped) + agreeing + 1
