"""Folds of few long rows become folds of their parts: results stay, and no row is left to one block of threads."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest

from autojit.core.dtypes import DType, bfloat16, bool_, float16, float32, float64, int32
from autojit.core.machine import FewRows
from autojit.core.types import TensorType
from autojit.ir import Graph, GraphBuilder, evaluate, verify
from autojit.ir.op import Op, bind
from autojit.ops.elementwise_arithmetic import Add, Mul, Sub
from autojit.ops.reductions import AllTrue, Amax, Amin, Argmax, Fold, Prod, Sum, spread
from autojit.passes.dead_code import eliminate_dead_code
from autojit.passes.split_folds import split_folds
from tests.codegen.agreement import disagreement
from tests.on_cpu import CPU_MACHINE

FEW = FewRows(rows=8, elements=24, least=4)
MACHINE = replace(CPU_MACHINE, few_rows=FEW)
ULPS = 64.0  # of the largest magnitude: sums in another order

EXTENTS = (1, 2, 3, 4, 7, 12, 16, 30)


def _folding(generator: np.random.Generator, dtype: DType) -> Graph:
    """Two folds over some axes of one tensor; the second of what the first one's results were taken from."""
    builder = GraphBuilder()
    ndim = int(generator.integers(1, 4))
    shape = tuple(int(n) for n in generator.choice(EXTENTS, ndim))
    x = builder.tracer(builder.input(TensorType(shape, dtype), "x"))
    w = builder.tracer(builder.input(TensorType(shape[-1:], dtype), "w"))
    axes = [tuple(a for a in range(ndim) if generator.random() < 0.6 or a == ndim - 1) for _ in range(2)]
    if dtype is bool_:
        return builder.finish([bind(AllTrue(axes[0]), x).value, w.value])
    first: Op = (Sum, Amax, Amin)[int(generator.integers(3))](axes[0])
    total = bind(first, bind(Mul(), x, w))
    off = bind(Sub(), x, spread(total, shape, axes[0]))
    last = bind((Sum, Amax)[int(generator.integers(2))](axes[1]), bind(Mul(), off, off))
    return builder.finish([total.value, last.value, bind(Add(), off, x).value])


def _arrays(graph: Graph, generator: np.random.Generator) -> list[np.ndarray]:
    found = []
    for value in graph.inputs:
        numbers = generator.integers(-3, 4, value.type.shape)
        found.append(numbers.astype(value.type.dtype.numpy) if value.type.dtype is not bool_ else numbers < 3)
    return found


@pytest.mark.parametrize("dtype", [float32, float64, float16, bfloat16, int32, bool_], ids=str)
def test_results_stay_and_no_long_row_of_few_is_left_whole(dtype: DType) -> None:
    generator, count = np.random.default_rng(1), 0
    for _ in range(60):
        graph = _folding(generator, dtype)
        changed = split_folds(graph, MACHINE)
        count += changed is not graph
        verify(changed, after="split_folds")
        arrays = _arrays(graph, generator)
        for found, wanted in zip(evaluate(changed, arrays), evaluate(graph, arrays), strict=True):
            assert found.dtype == wanted.dtype
            assert not disagreement(found, wanted, ULPS), f"{graph}\n{changed}"
        for node in eliminate_dead_code(changed).nodes:
            assert not isinstance(node.op, Fold) or _is_settled(node.inputs[0].type.shape, node.op.axes), str(changed)
    assert count, "some are long and few"


def _is_settled(shape: tuple[int, ...], axes: tuple[int, ...]) -> bool:
    """Whether enough rows are folded, or short ones, or columns; or no number of parts divides their axes."""
    rows, length = (prod(n for a, n in enumerate(shape) if (a in axes) == folded) for folded in (False, True))
    is_whole = all(n == 1 or n in (2, 3, 7) for a, n in enumerate(shape) if a in axes)
    return not 1 < rows < FEW.rows or length <= FEW.elements or len(shape) - 1 not in axes or is_whole


@pytest.mark.parametrize("op", [Argmax((1,)), Sum((0,)), Sum((0, 1)), Prod((1,))], ids=str)
def test_positions_columns_and_single_rows_stay(op: Fold) -> None:
    builder = GraphBuilder()
    x = builder.tracer(builder.input(TensorType((3, 64), float32), "x"))
    graph = builder.finish([bind(op, x).value])
    assert (split_folds(graph, MACHINE) is graph) == (not isinstance(op, Prod))
    assert split_folds(graph, CPU_MACHINE) is graph, "a CPU's kernels part rows by themselves"


def test_what_is_folded_is_computed_once() -> None:
    """In the form of parts, which others read through a view: a second form would be written and read."""
    builder = GraphBuilder()
    x = builder.tracer(builder.input(TensorType((3, 64), float32), "x"))
    square = bind(Mul(), x, x)
    total = spread(bind(Sum((1,)), square), (3, 64), (1,))
    graph = builder.finish([bind(Mul(), square, total).value])
    changed = eliminate_dead_code(split_folds(graph, MACHINE))
    products = [node for node in changed.nodes if isinstance(node.op, Mul)]
    assert len(products) == 2 and products[0].outputs[0].type.shape == (3, 8, 8)
