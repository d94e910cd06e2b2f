"""Compiled equals eager: every registered op on its own samples, in every dtype that has a native form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import autojit.ops  # noqa: F401
from autojit.core.dtypes import ALL_DTYPES, DType
from autojit.ir import Graph, GraphBuilder, Op
from tests.codegen.agreement import check_compiled
from tests.ops.laws import type_of

OPS = [op for op in Op.registry.values() if op.__module__.startswith("autojit.ops.") and hasattr(op, "samples")]
USUAL = ("f32", "f64", "i64", "b1", "bool")
NATIVE = [dtype for dtype in ALL_DTYPES if not dtype.is_complex]
ULPS = 8.0


def graph_of_samples(op_class: type[Op], dtype: DType) -> tuple[Graph, list[NDArray[Any]]]:
    """One graph that applies the op to each of its samples, so that the kernels compile together."""
    builder = GraphBuilder()
    arrays: list[NDArray[Any]] = []
    outputs: list[Any] = []
    for op, inputs in op_class.samples(dtype):  # type: ignore[attr-defined]
        types = [type_of(x) for x in inputs]
        results = op.result_type(*types)
        if any(t.dtype.is_complex for t in (*types, *(results if op.n_outputs > 1 else (results,)))):
            continue
        values = [builder.input(t) for t in types]
        arrays.extend(inputs)
        outputs.extend(builder.apply(op, values))
    return builder.finish(outputs), arrays


def check_op(op_class: type[Op], dtype: DType) -> None:
    graph, arrays = graph_of_samples(op_class, dtype)
    if graph.outputs:
        check_compiled(graph, arrays, ULPS)


@pytest.mark.parametrize("op_class", OPS, ids=lambda op: op.name)
def test_compiled_equals_eager(op_class: type[Op]) -> None:
    for dtype in NATIVE:
        if dtype.short in USUAL:
            check_op(op_class, dtype)


@pytest.mark.slow
@pytest.mark.parametrize("op_class", OPS, ids=lambda op: op.name)
def test_compiled_equals_eager_in_every_dtype(op_class: type[Op]) -> None:
    for dtype in NATIVE:
        check_op(op_class, dtype)
