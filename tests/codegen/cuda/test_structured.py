"""Kernels of structured ops on the emulated device, against their eager rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autojit.codegen.cuda import network, scan, scatter_sorted
from autojit.codegen.cuda.structured import PRINTERS, print_structured
from autojit.core.dtypes import DType, bool_, dtype_of_numpy, float32, float64, int8, int32, int64, uint8
from autojit.core.types import TensorType
from autojit.ir.graph import Node, SourceLocation, Value
from autojit.ir.op import Op
from autojit.ops.convolution import Convolution, ConvolutionInput, ConvolutionWeight
from autojit.ops.counted_positions import PackedPositions
from autojit.ops.scans import Cumulative, CumulativeExtreme, LinearRecurrence
from autojit.ops.scattering import IndexPut, IndexUpdate, Scatter, Scattering
from autojit.ops.sorting import RowOrder, Searchsorted, Sort
from autojit.schedule.kernels import StructuredKernel
from tests.codegen.cuda.emulated import ORDERS, TARGET, run_grid
from tests.covering import covering

Array = np.ndarray[Any, Any]

OPS = [op for op in Op.registry.values() if any(cls in PRINTERS for cls in op.__mro__)]
DTYPES = (float32, float64, int8, uint8, int32, int64, bool_)


def structured(op: Op, operands: tuple[Array, ...]) -> StructuredKernel:
    """An op on arrays, as the schedule describes it."""
    types = [TensorType(x.shape, dtype_of_numpy(x.dtype)) for x in operands]
    inputs = tuple(Value(spec, f"x{k}") for k, spec in enumerate(types))
    results = op.result_type(*types)
    results = results if isinstance(results, tuple) else (results,)
    outputs = tuple(Value(spec, f"y{k}") for k, spec in enumerate(results))
    return StructuredKernel(Node(op, inputs, outputs, SourceLocation("test", 1)), inputs)


def computed(op: Op, operands: tuple[Array, ...], order: int | None = None) -> tuple[list[Array], Array]:
    """The results of an op's kernel, and the error words."""
    kernel = structured(op, operands)
    text = print_structured(kernel, TARGET)
    assert text is not None
    results = [np.zeros(v.type.shape, v.type.dtype.numpy) for v in kernel.node.outputs]
    same = {}
    if isinstance(op, Scattering):
        same = {len(operands): 0}
    found, words = run_grid(text, [*(np.ascontiguousarray(x) for x in operands), *results], same=same, order=order)
    return found[len(operands) :], words


def _agrees(op: Op, operands: tuple[Array, ...], order: int | None = None) -> None:
    expected = op.eager(*operands)
    found, words = computed(op, operands, order)
    assert not words.any()
    for one, other in zip(found, expected if isinstance(expected, tuple) else (expected,), strict=True):
        if one.dtype.kind == "f":
            tolerance = 16 * np.finfo(one.dtype).eps
            largest = np.max(np.abs(other), initial=1.0, where=np.isfinite(other))
            assert np.allclose(one, other, rtol=tolerance, atol=tolerance * largest, equal_nan=True), (one, other)
        else:
            assert np.array_equal(one, other)


@covering("op_class, dtype", OPS, DTYPES, every=2)
def test_samples(op_class: type[Op], dtype: DType) -> None:
    for number, (op, operands) in enumerate(op_class.samples(dtype)):
        _agrees(op, operands, ORDERS[number % 2])


# -- scatters


@pytest.fixture(params=["all look", "sorted in a block", "sorted by digits"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The forms of a scatter, whatever its size."""
    if request.param != "all look":
        monkeypatch.setattr(scatter_sorted, "FEWEST_ROWS", 2)  # one row needs no order
    if request.param == "sorted by digits":
        monkeypatch.setattr(network, "MOST_ELEMENTS", 0)


def _folded(base: Array, place: Array, src: Array, combine: str) -> Array:
    """A scatter of rows, one after the other."""
    fold = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum, "set": lambda _, new: new}[combine]
    result = base.copy()
    for row, at in zip(src, place, strict=True):
        result[at] = fold(result[at], row)
    return result


@pytest.mark.parametrize("combine", ["add", "set", "mul", "max", "min"])
@pytest.mark.parametrize(
    ("rows", "columns", "count"),
    [(7, 8, 40), (40, 1, 300), (3, 70, 9), (9, 0, 4), (9, 3, 0), (2, 3, 1), (4, 6, 1), (1, 7, 1), (3, 5, 2), (1, 3, 4)],
)
def test_rows_are_taken_in_order_bit_for_bit(combine: str, rows: int, columns: int, count: int, form: None) -> None:
    generator = np.random.default_rng(rows)
    base, src = (
        generator.normal(size=(rows, columns)).astype("f4"),
        generator.normal(size=(count, columns)).astype("f4"),
    )
    place = generator.integers(-rows, rows, count)
    expected = _folded(base, place, src, combine)
    for order in ORDERS:
        (found,), words = computed(IndexUpdate(0, combine), (base, src, place), order)
        assert not words.any()
        assert np.array_equal(found, expected)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_places_of_their_own_for_every_element(axis: int, form: None) -> None:
    generator = np.random.default_rng(axis)
    base, src = generator.normal(size=(4, 5, 6)), generator.normal(size=(3, 4, 5))
    index = generator.integers(-base.shape[axis], base.shape[axis], src.shape)
    for combine in ("add", "set"):
        _agrees(Scatter(axis, combine), (base, src, index), 1)


def test_places_by_several_indices(form: None) -> None:
    generator = np.random.default_rng(5)
    base, src = generator.normal(size=(4, 5, 6)).astype("f4"), generator.normal(size=(7, 6)).astype("f4")
    _agrees(IndexPut("add"), (base, src, generator.integers(0, 4, 7), generator.integers(-5, 5, 7)), 1)


@pytest.mark.parametrize(("wrong", "columns"), [(7, 5), (-8, 5), (7, 0)])
def test_a_place_outside_is_reported(wrong: int, columns: int, form: None) -> None:
    base, src = np.zeros((7, columns), "f4"), np.ones((3, columns), "f4")
    for order in ORDERS:
        _, words = computed(IndexUpdate(0, "add"), (base, src, np.array([1, wrong, 2])), order)
        assert int(words[0]) == 1, "the site of the only look-up"


# -- convolutions

WINDOWS = (((1, 1), (1, 1), (1, 1), 1), ((2, 1), (0, 2), (1, 3), 2), ((3, 2), (2, 1), (2, 1), 1))
"""Strides, paddings, dilations and groups."""


@pytest.mark.parametrize(("stride", "padding", "dilation", "groups"), WINDOWS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_convolutions(stride: Any, padding: Any, dilation: Any, groups: int, dtype: Any) -> None:
    generator = np.random.default_rng(groups)
    x = generator.normal(size=(3, 4, 11, 13)).astype(dtype)
    w = generator.normal(size=(6, 4 // groups, 3, 2)).astype(dtype)
    spans = [d * (k - 1) + 1 for d, k in zip(dilation, w.shape[2:], strict=True)]
    sizes = zip(x.shape[2:], spans, stride, padding, strict=True)
    places = tuple((n + 2 * p - span) // s + 1 for n, span, s, p in sizes)
    y = generator.normal(size=(3, 6, *places)).astype(dtype)
    how = stride, padding, dilation, groups
    _agrees(Convolution(places, *how), (x, w), 1)
    _agrees(ConvolutionInput(x.shape[2:], *how), (y, w), None)
    _agrees(ConvolutionWeight(w.shape[2:], *how), (x, y), 1)


@pytest.mark.parametrize(
    ("taps", "channels", "stride"), [((1, 1), 8, 1), ((1, 1), 6, 2), ((3, 1), 8, 2), ((1, 3), 6, 1)]
)
def test_convolutions_of_whole_vectors(taps: tuple[int, int], channels: int, stride: int) -> None:
    """Of images whose rows, and of weights whose filters, are whole vectors: with one tap nothing needs a window."""
    generator = np.random.default_rng(channels)
    padding = (taps[0] // 2, taps[1] // 2)
    places = tuple(-(-n // stride) for n in (6, 8))
    x, w, y = (
        generator.normal(size=size).astype("f4")
        for size in ((2, channels, 6, 8), (4, channels // 2, *taps), (2, 4, *places))
    )
    how = (stride, stride), padding, (1, 1), 2
    _agrees(Convolution(places, *how), (x, w), 1)
    _agrees(ConvolutionInput((6, 8), *how), (y, w), None)
    _agrees(ConvolutionWeight(taps, *how), (x, y), 1)


# -- scans, sorts, searches


@pytest.fixture(params=["a block", "three kernels"])
def walk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who walks a long line, whatever its length."""
    if request.param == "three kernels":
        monkeypatch.setattr(scan, "ONE_BLOCK", 0)


FOLDS = (
    Cumulative("sum", 1),
    Cumulative("sum", 1, True),
    Cumulative("prod", 1),
    Cumulative("logsumexp", 1),
    CumulativeExtreme("max", 1),
    CumulativeExtreme("min", 1),
    LinearRecurrence(1),
    LinearRecurrence(1, True),
)


@pytest.mark.parametrize("length", [1, 33, 300, 1025, 2500])
@pytest.mark.parametrize("op", FOLDS, ids=str)
def test_long_lines(op: Op, length: int, walk: None) -> None:
    generator = np.random.default_rng(length)
    x = generator.normal(size=(2, length, 3)).astype("f4")
    operands: tuple[Array, ...] = (x,)
    if isinstance(op, CumulativeExtreme):
        x[...] = np.round(2 * x)
        x[0, length // 2, 0] = np.nan
    elif isinstance(op, LinearRecurrence):
        operands = (x, generator.normal(size=x.shape).astype("f4"))
    elif op.kind == "prod":
        operands = ((2 * np.round(x) + 1).astype("i8"),)
    expected = op.eager(*operands)
    found, _ = computed(op, operands, length % 2 or None)
    for one, other in zip(found, expected if isinstance(expected, tuple) else (expected,), strict=True):
        if other.dtype.kind == "i":
            assert np.array_equal(one, other)
        else:
            largest = np.max(np.abs(other), initial=1, where=np.isfinite(other))
            assert np.allclose(one, other, rtol=1e-6, atol=1e-6 * largest, equal_nan=True)


def test_recurrences_that_overflow_keep_a_state_of_zero(walk: None) -> None:
    """Factors of 8 are beyond float64 after 340 steps, of nothing they stay nothing."""
    factors, terms = np.full((1, 2000), 8, "f4"), np.zeros((1, 2000), "f4")
    terms[0, 1990] = 1
    (found,), _ = computed(LinearRecurrence(1), (factors, terms), 1)
    assert np.array_equal(found, LinearRecurrence(1).eager(factors, terms))


def test_running_sums_do_not_depend_on_who_comes_first(walk: None) -> None:
    x = np.random.default_rng(0).normal(size=(1, 3000)).astype("f4")
    (one,), (other,) = (computed(Cumulative("sum", 1), (x,), order)[0] for order in ORDERS)
    assert np.array_equal(one, other)


def test_recurrences_and_products_go_step_by_step() -> None:
    generator = np.random.default_rng(2)
    a, b = generator.normal(size=(2, 2, 50)).astype("f8")
    _agrees(LinearRecurrence(1), (a, b))
    large = np.array([1e-300, 1e200, 1e200, 1e-100] * 10)
    _agrees(Cumulative("prod", 0), (large,))


@pytest.mark.parametrize("descending", [False, True])
def test_sorts_are_stable_and_know_special_numbers(descending: bool) -> None:
    x = np.round(np.random.default_rng(4).normal(size=(3, 70, 2)) * 2).astype("f4")
    x[0, ::7, 0], x[1, 5, 1], x[1, 6, 1] = np.nan, np.inf, -0.0
    for op in (Sort(1, descending), Sort(1, descending, (2, 9))):
        found, _ = computed(op, (x,), 1)
        order = np.argsort(-np.where(np.isnan(x), np.inf, x) if descending else x, 1, kind="stable")
        if not descending:
            assert np.array_equal(found[1], order[:, slice(*(op.ranks or (0, 70)))])
        for one, other in zip(found, op.eager(x), strict=True):
            assert np.array_equal(one, other, equal_nan=True)


LINES = [((1,), 0), ((9, 3), 0), ((3, 70, 2), 1), ((2, 1000), 1), ((2, 2100, 2), 1)]


@covering("line, dtype", LINES, [float32, uint8, int64], every=2)
def test_short_lines_and_those_of_several_blocks(line: tuple[tuple[int, ...], int], dtype: DType, by: None) -> None:
    shape, axis = line
    generator = np.random.default_rng(shape[axis])
    x = np.round(100 * generator.normal(size=shape)).astype(dtype.numpy)
    for op, order in ((Sort(axis, True), ORDERS[1]), (Sort(axis, False, (shape[axis] // 2, shape[axis])), ORDERS[0])):
        found, _ = computed(op, (x,), order)
        assert all(np.array_equal(one, other) for one, other in zip(found, op.eager(x), strict=True))


@pytest.fixture(params=["network", "digits"])
def by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How lines are sorted, whatever their length."""
    if request.param == "digits":
        monkeypatch.setattr(network, "MOST_ELEMENTS", 0)


@pytest.mark.parametrize("size", [0, 7, 2048, 2049, 9000])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_positions_are_packed(size: int, share: float) -> None:
    _agrees(PackedPositions(), (np.random.default_rng(size).random(size) < share,), ORDERS[size % 2])


def test_rows_and_places_in_order() -> None:
    generator = np.random.default_rng(6)
    _agrees(RowOrder(), (generator.integers(0, 3, (40, 3)),), 1)
    lines = np.sort(generator.normal(size=(2, 9)), 1)
    _agrees(Searchsorted(True), (lines, generator.normal(size=(2, 20))), 1)


@pytest.mark.parametrize("lines", [100, 40_000, 200_000])
def test_many_long_lines_that_are_apart_are_not_walked_by_threads(lines: int) -> None:
    """Threads side by side would each read a sector of memory for one element."""
    apart, together = (TensorType(shape, float32) for shape in ((lines, 1024), (1024, lines)))
    grids = []
    for spec, axis in ((apart, 1), (together, 0)):
        op = Cumulative("sum", axis)
        node = Node(op, (Value(spec, "x"),), (Value(op.result_type(spec), "y"),), SourceLocation("test", 1))
        text = scan.print_scan(node, TARGET)
        grids.append(int(text.blocks[0]))
    assert grids[0] >= lines
    if lines >= scan.BUSY_LINES * TARGET.processors:
        assert grids[1] < lines
