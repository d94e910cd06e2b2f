"""Bounds of an index: every element lies in them, and they are as narrow as what is known of the operands admits."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.core.dtypes import DType, bool_, dtype_of_numpy, float64, int8, int32, int64, uint8
from autojit.core.sizes import named_size
from autojit.core.types import TensorType
from autojit.ir import Graph, GraphBuilder, Value, evaluate
from autojit.ir.op import Op, bind
from autojit.passes.index_bounds import DEEPEST, UNKNOWN, Bounds, IndexBounds

INTERVALS = [(low, high) for low in range(-3, 4) for high in range(low, 4)]
ARITHMETIC = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "maximum": max,
    "minimum": min,
    "remainder": lambda x, y: x % y,
}


class Drawn:
    """A graph under construction."""

    def __init__(self) -> None:
        self.builder = GraphBuilder()

    def input(self, dtype: DType = int64, shape: tuple[int, ...] = (4,)) -> Any:
        return self.builder.tracer(self.builder.input(TensorType(shape, dtype)))

    def apply(self, name: str, *operands: Any, **parameters: Any) -> Any:
        op = Op.registry[name](**parameters)  # type: ignore[call-arg]
        if operands:
            return bind(op, *operands)
        return self.builder.tracer(self.builder.apply(op, ())[0])

    def between(self, low: int, high: int, dtype: DType = int64) -> Any:
        """Numbers of which the ends alone are known."""
        return self.table(np.array([low, high], dtype.numpy))

    def table(self, array: Any) -> Any:
        return self.apply("constant", data=array.tobytes().hex(), dtype=dtype_of_numpy(array.dtype), shape=array.shape)

    def bounds_of(self, found: Any) -> Bounds:
        return IndexBounds(self.builder.finish([found.value])).of(found.value)


@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic_has_the_bounds_of_all_pairs_of_numbers(name: str) -> None:
    for (a, b), (c, d) in itertools.product(INTERVALS, INTERVALS):
        drawn = Drawn()
        found = drawn.bounds_of(drawn.apply(name, drawn.between(a, b), drawn.between(c, d)))
        if name == "remainder":  # of any number, where the divisor is positive
            assert found == (Bounds(0, d) if c > 0 else UNKNOWN), (c, d)
            continue
        every = [ARITHMETIC[name](x, y) for x in range(a, b + 1) for y in range(c, d + 1)]
        assert found == Bounds(min(every), max(every) + 1), (name, a, b, c, d)


@pytest.mark.parametrize("dtype", [int8, uint8, int32, int64], ids=str)
def test_what_may_wrap_or_be_another_number_in_its_dtype_is_not_known(dtype: DType) -> None:
    numbers = np.iinfo(dtype.numpy)
    for low, high in ((numbers.max - 1, numbers.max), (numbers.min, numbers.min + 1)):
        drawn = Drawn()
        at_end = drawn.between(low, high, dtype)
        assert drawn.bounds_of(at_end) == Bounds(low, high + 1)
        one = drawn.apply("full", value=1, dtype=dtype, shape=(2,))
        for name in ("add", "sub"):
            moved = [low + 1, high + 1] if name == "add" else [low - 1, high - 1]
            is_kept = numbers.min <= moved[0] and moved[1] <= numbers.max
            expected = Bounds(moved[0], moved[1] + 1) if is_kept else UNKNOWN
            assert drawn.bounds_of(drawn.apply(name, at_end, one)) == expected


def test_a_cast_keeps_bounds_that_the_other_dtype_holds() -> None:
    for wide, narrow in itertools.product((int64, int32, int8, uint8), repeat=2):
        drawn = Drawn()
        limits, every = np.iinfo(narrow.numpy), np.iinfo(wide.numpy)
        for low, high in ((-1, 5), (0, 127), (0, 128), (-128, 0), (-129, 0), (3, 256), (3, 255)):
            if every.min <= low and high <= every.max:
                cast = drawn.apply("cast", drawn.between(low, high, wide), dtype=narrow)
                is_held = limits.min <= low and high <= limits.max
                assert drawn.bounds_of(cast) == (Bounds(low, high + 1) if is_held else UNKNOWN), (wide, narrow)
        half_known = drawn.apply("maximum", drawn.input(wide, (2,)), drawn.between(3, 3, wide))
        is_held = limits.min <= every.min and every.max <= limits.max
        assert drawn.bounds_of(drawn.apply("cast", half_known, dtype=narrow)) == (Bounds(3) if is_held else UNKNOWN)
    drawn = Drawn()
    assert drawn.bounds_of(drawn.apply("cast", drawn.input(float64), dtype=int64)) == UNKNOWN
    for dtype in (int32, int64):  # an open extent is a number of 64 bits
        places = Drawn()
        open_size = named_size("s0", 7)
        found = places.bounds_of(places.apply("iota", dtype=dtype, shape=(open_size,), axis=0))
        assert found == (Bounds(0, open_size) if dtype is int64 else UNKNOWN)


def test_one_end_is_enough_where_the_other_does_not_count() -> None:
    drawn = Drawn()
    free, five = drawn.input(shape=(2,)), drawn.between(5, 5)
    least, most = drawn.apply("maximum", free, five), drawn.apply("minimum", free, five)
    assert (drawn.bounds_of(least), drawn.bounds_of(most)) == (Bounds(5, None), Bounds(None, 6))
    assert drawn.bounds_of(drawn.apply("remainder", free, least)) == Bounds(0, None)
    assert drawn.bounds_of(drawn.apply("remainder", free, most)) == UNKNOWN
    assert drawn.bounds_of(drawn.apply("add", least, five)) == UNKNOWN
    assert drawn.bounds_of(drawn.apply("mul", five, five)) == UNKNOWN
    assert drawn.bounds_of(drawn.apply("maximum", most, five)) == Bounds(5, 6)
    assert drawn.bounds_of(drawn.apply("minimum", least, five)) == Bounds(5, 6)


@pytest.mark.parametrize("compared", ["lt", "le", "gt", "ge", "eq"])
@pytest.mark.parametrize("is_swapped", [False, True])
def test_a_choice_by_comparison_is_a_maximum_or_a_minimum(compared: str, is_swapped: bool) -> None:
    for (a, b), (c, d) in itertools.product(INTERVALS, INTERVALS):
        drawn = Drawn()
        x, y = drawn.between(a, b), drawn.between(c, d)
        condition = drawn.apply(compared, *((y, x) if is_swapped else (x, y)))
        found = drawn.bounds_of(drawn.apply("where", condition, x, y))
        holds = {
            "lt": lambda p, q: p < q,
            "le": lambda p, q: p <= q,
            "gt": lambda p, q: p > q,
            "ge": lambda p, q: p >= q,
        }
        chosen = [
            p if compared == "eq" or holds[compared](*((q, p) if is_swapped else (p, q))) else q
            for p in range(a, b + 1)
            for q in range(c, d + 1)
        ]
        if compared == "eq":  # one of the two, no more is known
            chosen = [a, b, c, d]
        assert found == Bounds(min(chosen), max(chosen) + 1), (compared, is_swapped, a, b, c, d)


def test_what_moves_elements_keeps_their_bounds_and_what_pads_does_not() -> None:
    drawn = Drawn()
    table = drawn.between(2, 4)
    index = drawn.input(shape=(3,))
    moved = drawn.apply("broadcast_to", table, shape=(3, 2))
    assert drawn.bounds_of(drawn.apply("permute", moved, axes=(1, 0))) == Bounds(2, 5)
    assert drawn.bounds_of(drawn.apply("gather", table, index, axis=0)) == Bounds(2, 5)
    assert drawn.bounds_of(drawn.table(np.zeros(0, np.int64))) == UNKNOWN
    assert drawn.bounds_of(drawn.table(np.array([2.0]))) == UNKNOWN
    assert drawn.bounds_of(drawn.table(np.array([2, 7], np.uint8))) == Bounds(2, 8)
    assert drawn.bounds_of(drawn.apply("full", value=3, dtype=int64, shape=(2,))) == Bounds(3, 4)
    assert drawn.bounds_of(drawn.apply("full", value=3.0, dtype=float64, shape=(2,))) == UNKNOWN
    assert drawn.bounds_of(drawn.apply("iota", dtype=int64, shape=(4, 9), axis=1)) == Bounds(0, 9)
    assert drawn.bounds_of(drawn.input(bool_)) == UNKNOWN
    numbers = drawn.input(float64, (4, 9))
    assert drawn.bounds_of(drawn.apply("argmax", numbers, axes=(1,))) == Bounds(0, 9)
    assert drawn.bounds_of(drawn.apply("argmin", numbers, axes=(0,))) == Bounds(0, 4)
    values, places = drawn.apply("sort", numbers, axis=0, descending=False)
    assert (drawn.bounds_of(values), drawn.bounds_of(places)) == (UNKNOWN, Bounds(0, 4))


def test_an_index_is_within_an_axis_if_all_that_its_bounds_admit_is() -> None:
    n = named_size("s0", 7)
    for (low, high), extent in itertools.product(INTERVALS, range(1, 6)):
        drawn = Drawn()
        index = drawn.between(low, high)
        bounds = IndexBounds(drawn.builder.finish([index.value]))
        assert bounds.are_within(index.value, extent) == (low >= -extent and high < extent), (low, high, extent)
        assert bounds.are_within(index.value, n) == (0 <= low and high < 2)  # an open size is at least 2
    drawn = Drawn()
    free, empty = drawn.input(), drawn.input(shape=(0,))
    five = drawn.apply("full", value=5, dtype=int64, shape=(4,))
    places = drawn.apply("iota", dtype=int64, shape=(n,), axis=0)
    half_known = [drawn.apply(name, free, five) for name in ("maximum", "minimum")]
    bounds = IndexBounds(drawn.builder.finish([free.value]))
    assert not any(bounds.are_within(x.value, 100) for x in (free, *half_known))
    assert bounds.are_within(empty.value, 0) and bounds.are_within(empty.value, 1)
    assert bounds.are_within(places.value, n) and bounds.are_within(places.value, n + 1)
    assert not bounds.are_within(places.value, n - 1) and not bounds.are_within(places.value, 7)


def test_a_chain_is_followed_so_far_and_no_further() -> None:
    for length, is_known in ((DEEPEST, True), (DEEPEST + 1, False)):
        drawn = Drawn()
        x = drawn.between(2, 4)
        for _ in range(length):
            x = drawn.apply("flip", x, axes=(0,))
        assert drawn.bounds_of(x) == (Bounds(2, 5) if is_known else UNKNOWN)


def drawn_index(draw: random.Random, drawn: Drawn, inputs: list[Any]) -> list[Any]:
    """Values of whole numbers of several dtypes, made from each other."""
    pool = {dtype: [inputs[k], drawn.between(-3, 3, dtype)] for k, dtype in enumerate((int8, int32, int64))}
    for _ in range(16):
        dtype = draw.choice((int8, *pool))
        a, b = (draw.choice(pool[dtype]) for _ in range(2))
        kind = draw.choice((*ARITHMETIC, "where", "cast", "number", "number"))
        if kind == "cast":
            to = draw.choice(list(pool))
            pool[to].append(drawn.apply("cast", a, dtype=to))
        elif kind == "number":
            value = draw.choice((-2, -1, 1, 2, 3, 100))
            pool[dtype].append(drawn.apply("full", value=value, dtype=dtype, shape=(2,)))
        elif kind == "where":
            x, y = draw.choice(((a, b), (b, a)))
            pool[dtype].append(drawn.apply("where", drawn.apply(draw.choice(("lt", "le", "gt", "ge")), x, y), a, b))
        else:
            one = drawn.apply("full", value=draw.choice((3, 5)), dtype=dtype, shape=(2,))
            pool[dtype].append(drawn.apply(kind, a, one if kind == "remainder" else b))
    return [x for values in pool.values() for x in values]


@pytest.mark.parametrize("seed", range(6))
def test_every_element_lies_in_the_bounds(seed: int) -> None:
    draw, numbers = random.Random(seed), np.random.default_rng(seed)
    for _ in range(30):
        drawn = Drawn()
        inputs = [drawn.input(dtype, (2,)) for dtype in (int8, int32, int64)]
        values: list[Value] = [x.value for x in drawn_index(draw, drawn, inputs)]
        graph: Graph = drawn.builder.finish(values)
        bounds = IndexBounds(graph)
        given = [numbers.integers(-128, 128, (20, 2)).astype(t) for t in (np.int8, np.int32, np.int64)]
        for k in range(10):
            for value, found in zip(values, evaluate(graph, [x[k] for x in given]), strict=True):
                least, limit = bounds.of(value)
                assert least is None or found.min() >= least, (value, least, found)
                assert limit is None or found.max() < limit, (value, limit, found)


def test_an_unread_look_up_refuses_an_index_that_wraps() -> None:
    def narrowed(x: aj.Tensor, i: aj.Tensor) -> aj.Tensor:
        x[i.clamp(-3, -1).to(aj.uint8).to(aj.int64)]
        return x * 2

    def summed(x: aj.Tensor, i: aj.Tensor) -> aj.Tensor:
        small = i.clamp(100, 120).to(aj.int8)
        x[(small + small).to(aj.int64).clamp(-300, 4)]
        return x * 2

    for function, extent in ((narrowed, 5), (summed, 10)):
        for run in (function, aj.jit(function)):
            with pytest.raises(IndexError):
                run(aj.ones(extent), aj.tensor([-1, 110]))
