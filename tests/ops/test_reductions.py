"""Reductions and sources against plain Python, at NaN, ties, empty axes and narrow floats; their errors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import ops
from autojit.core.dtypes import bfloat16, float16, float32, float64, int64
from autojit.core.errors import AxisError, DTypeError, ShapeError
from autojit.core.types import TensorType
from autojit.ir import GraphBuilder, Op
from tests.ops.test_composites import call

X = np.random.default_rng(0).standard_normal((3, 4, 5))


@pytest.mark.parametrize(
    ("name", "fold"), [("sum", math.fsum), ("prod", math.prod), ("amax", max), ("amin", min)], ids=lambda v: str(v)
)
@pytest.mark.parametrize("axes", [None, 0, -1, (0, 2), (2, 0)])
def test_reduction_agrees_with_a_python_loop(name: str, fold: Any, axes: Any) -> None:
    function = getattr(ops, name)
    chosen = tuple(range(3)) if axes is None else tuple(np.atleast_1d(axes) % 3)
    moved = np.moveaxis(X, sorted(chosen), range(-len(chosen), 0))
    rows = moved.reshape(*moved.shape[: 3 - len(chosen)], -1)
    expected = np.apply_along_axis(lambda row: fold(row.tolist()), -1, rows)
    np.testing.assert_allclose(call(lambda x: function(x, axes), X), expected, rtol=1e-13)
    kept = call(lambda x: function(x, axes, keep=True), X)
    assert kept.shape == tuple(1 if axis in chosen else n for axis, n in enumerate(X.shape))


@pytest.mark.parametrize("dtype", [float16, bfloat16], ids=str)
def test_narrow_floats_are_summed_in_float32(dtype: Any) -> None:
    ones = np.ones(3000).astype(dtype.numpy)
    assert call(ops.sum, ones).astype(np.float64) == np.array(3000.0).astype(dtype.numpy).astype(np.float64)


def test_nan_counts_as_the_extreme_and_the_first_of_equals_wins() -> None:
    x = np.array([[1.0, np.nan, 3.0, np.nan], [2.0, 5.0, 5.0, 2.0]])
    np.testing.assert_array_equal(call(lambda x: ops.argmax(x, 1), x), [1, 1])
    np.testing.assert_array_equal(call(lambda x: ops.argmin(x, 1, keep=True), x), [[1], [0]])
    np.testing.assert_array_equal(call(lambda x: ops.amax(x, 1), x), [np.nan, 5])
    assert call(ops.argmax, x[1:]) == 1
    assert call(ops.argmax, np.array(3.0)) == 0


def test_truth_values_are_folded_with_or_and_and() -> None:
    x = np.array([[0, 0], [0, 2], [1, 3]])
    np.testing.assert_array_equal(call(lambda x: ops.any(x, 1), x), [False, True, True])
    np.testing.assert_array_equal(call(lambda x: ops.all(x, 1), x), [False, False, True])
    assert call(ops.count_nonzero, x) == 3


def test_empty_folds_give_the_identity_or_an_error() -> None:
    empty = np.zeros((2, 0))
    np.testing.assert_array_equal(call(lambda x: ops.sum(x, 1), empty), [0, 0])
    np.testing.assert_array_equal(call(lambda x: ops.prod(x, 1), empty), [1, 1])
    for function in (ops.amax, ops.amin, ops.argmax, ops.argmin):
        with pytest.raises(AxisError, match="non-zero size"):
            call(lambda x, function=function: function(x, 1), empty)


def test_errors_name_the_axis_and_the_dtype() -> None:
    builder = GraphBuilder()
    x = builder.tracer(builder.input(TensorType((2, 3), float32)))
    with pytest.raises(AxisError, match="Dimension out of range"):
        ops.sum(x, 2)
    with pytest.raises(ShapeError, match="appears multiple times"):
        ops.sum(x, (0, -2))
    with pytest.raises(DTypeError, match='"sum" not implemented'):
        ops.sum(ops.gt(x, 0))


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
def test_the_product_of_the_others_leaves_each_factor_out(n: int) -> None:
    x = np.random.default_rng(n).standard_normal((2, n))
    x[0, 0] = 0.0
    expected = [[math.prod(np.delete(row, k)) for k in range(n)] for row in x]
    np.testing.assert_allclose(call(lambda x: ops.product_of_others(x, (1,)), x), expected, rtol=1e-13)


def test_identities_are_neutral() -> None:
    for name in ("amax", "amin"):
        from_nothing = {"amax": ops.maximum, "amin": ops.minimum}[name]
        for dtype in (float32, float64, int64):
            identity = {"amax": ops.reductions.lowest, "amin": ops.reductions.highest}[name](dtype)
            x = np.array([-3, 5]).astype(dtype.numpy)
            np.testing.assert_array_equal(call(lambda x: from_nothing(x, identity), x), x)  # noqa: B023


def test_sources() -> None:
    x = np.zeros(2)
    np.testing.assert_array_equal(call(lambda x: ops.arange(x, 4), x), [0, 1, 2, 3])
    np.testing.assert_array_equal(call(lambda x: ops.iota(x, (2, 3), 0, float64), x), [[0, 0, 0], [1, 1, 1]])
    table = np.array([[1.5, -0.0], [np.nan, np.inf]])
    np.testing.assert_array_equal(call(lambda x: ops.constant(x, table), x), table)
    np.testing.assert_array_equal(call(lambda x: ops.full(x, 7, (2,), int64), x), [7, 7])
    np.testing.assert_array_equal(call(ops.ones_like, x), [1, 1])
    constant = Op.registry["constant"]
    assert constant(data="00" * 8, dtype=float64, shape=()) == constant(data="00" * 8, dtype=float64, shape=())  # type: ignore[call-arg]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int32, np.uint8])
def test_positions_of_extremes_in_steps_are_those_of_numpy(dtype: type) -> None:
    """The first of equals, of zeros of both signs too; a NaN before all numbers; along any axis of any layout."""
    rng = np.random.default_rng(0)
    found = aj.jit(lambda x: (x.argmax(-1), x.argmin(-1), x.argmax(0), x.T.argmin(0), (x + x).argmax(1)))
    for extent in (1, 7, 16, 67):
        x = rng.integers(0, 4, (9, extent)).astype(dtype)
        if x.dtype.kind == "f":
            x[1], x[2], x[3] = -0.0, np.inf, -np.inf
            x[4:7][rng.random((3, extent)) < 0.1] = np.nan
            x[7] = np.nan
            x[8, ::2] = 0.0
            x[8, 1::2] = -0.0
        expected = (x.argmax(-1), x.argmin(-1), x.argmax(0), x.argmin(1), (x + x).argmax(1))
        for one, other in zip(found(aj.from_numpy(x)), expected, strict=True):
            np.testing.assert_array_equal(one.numpy(), other)
