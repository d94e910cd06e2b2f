"""Kernels of sorting and searching give the order that NumPy gives, in every dtype and layout."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autojit.compiler import compile
from autojit.core.dtypes import (
    DType,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
)  # fmt: skip
from autojit.core.sizes import named_size
from autojit.core.types import TensorType
from autojit.ir import GraphBuilder
from autojit.ir.graph import Graph
from autojit.ir.op import Op
from autojit.ops.sorting import RowOrder, Searchsorted, Sort
from autojit.runtime.executable import Executable

DTYPES = (float32, float64, float16, bfloat16, int8, int16, int32, int64, uint8, bool_)
SHAPES = (((5,), 0), ((70, 3), 0), ((2, 300), 1), ((2, 1001), 1), ((4, 64), 1), ((3, 0), 1), ((2, 8, 2), 1))


def elements(shape: tuple[int, ...], dtype: DType, spread: int) -> NDArray[Any]:
    """Numbers with many equal ones (small ``spread``) or few, and for floats both zeros, infinities and NaN."""
    found = np.random.default_rng(0).integers(-spread, spread, shape).astype(np.float64) / 4
    if dtype.kind == "float":
        for number, special in ((1.0, np.nan), (-1.0, -0.0), (2.0, np.inf), (-2.0, -np.inf), (0.5, -np.nan)):
            found[found == number] = special
        return found.astype(dtype.numpy)
    return np.asarray((found * 4).astype(np.int64).astype(dtype.numpy))


def graph_of(op: Op, *types: TensorType) -> Graph:
    builder = GraphBuilder()
    operands = [builder.input(t) for t in types]
    return builder.finish(builder.apply(op, operands))


@cache
def compiled_op(op: Op, *types: TensorType) -> Executable:
    compiled = compile(graph_of(op, *types))
    assert not compiled.lowered.fallbacks
    return compiled.executable


def run(op: Op, dtype: DType, *arrays: NDArray[Any]) -> list[Any]:
    return compiled_op(op, *(TensorType(a.shape, dtype) for a in arrays)).run(list(arrays))


def same(found: NDArray[Any], expected: NDArray[Any]) -> None:
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.short)
@pytest.mark.parametrize("descending", [False, True])
def test_lines_are_sorted_as_by_numpy(dtype: DType, descending: bool) -> None:
    for shape, axis in SHAPES:
        for spread in (5, 9000):
            x = elements(shape, dtype, spread)
            length = shape[axis]
            for ranks in (None, (length // 3, length // 2), (0, min(2, length))):
                op = Sort(axis, descending, ranks)
                for found, expected in zip(run(op, dtype, x), op.eager(x), strict=True):
                    same(found, expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.short)
def test_rows_are_in_lexicographic_order(dtype: DType) -> None:
    for shape in ((1, 3), (50, 3), (300, 2), (4, 0), (0, 2), (7, 1)):
        x = elements(shape, dtype, 3)
        (found,) = run(RowOrder(), dtype, x)
        same(found, RowOrder().eager(x))


@pytest.mark.parametrize("dtype", DTYPES[:-1], ids=lambda d: d.short)
@pytest.mark.parametrize("right", [False, True])
def test_places_in_sorted_lines(dtype: DType, right: bool) -> None:
    op = Searchsorted(right)
    values = elements((4, 11), dtype, 60)
    line, lines = (np.sort(elements(shape, dtype, 50).astype(np.float64), -1) for shape in ((130,), (4, 33)))
    for known in (line, lines, line[:1], line[:0]):
        ordered = known.astype(dtype.numpy)
        (found,) = run(op, dtype, ordered, values)
        same(found, op.eager(ordered, values))


def test_one_kernel_serves_every_length() -> None:
    kind = TensorType((named_size("s0", 8), named_size("s1", 9)), float32)
    executable = compile(graph_of(Sort(1, False), kind)).executable
    for shape in ((2, 5), (3, 64), (2, 65), (5, 700), (2, 3)):
        x = elements(shape, float32, 40)
        for found, expected in zip(executable.run([x]), Sort(1, False).eager(x), strict=True):
            same(found, expected)
