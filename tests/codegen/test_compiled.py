"""Compiled equals eager: every registered op on its own samples, in every dtype."""

from __future__ import annotations

from typing import Any

import pytest
from numpy.typing import NDArray

import autojit.ops  # noqa: F401
from autojit.core.dtypes import ALL_DTYPES, DType
from autojit.ir import Graph, GraphBuilder, Op
from tests.codegen.agreement import check_compiled
from tests.fuzz_graphs import campaign, check_seed
from tests.ops.laws import type_of

OPS = [op for op in Op.registry.load().values() if op.__module__.startswith("autojit.ops.") and hasattr(op, "samples")]
USUAL = ("f32", "i64", "bf16")
ULPS = 8.0


def graph_of_samples(op_class: type[Op], dtype: DType) -> tuple[Graph, list[NDArray[Any]]]:
    """One graph that applies the op to each of its samples, so that the kernels compile together."""
    builder = GraphBuilder()
    arrays: list[NDArray[Any]] = []
    outputs: list[Any] = []
    for op, inputs in op_class.samples(dtype):  # type: ignore[attr-defined]
        values = [builder.input(type_of(x)) for x in inputs]
        arrays.extend(inputs)
        outputs.extend(builder.apply(op, values))
    return builder.finish(outputs), arrays


def check_op(op_class: type[Op], dtype: DType) -> None:
    graph, arrays = graph_of_samples(op_class, dtype)
    if graph.outputs:
        check_compiled(graph, arrays, ULPS)


@pytest.mark.parametrize("op_class", OPS, ids=lambda op: op.name)
def test_compiled_equals_eager(op_class: type[Op]) -> None:
    for dtype in ALL_DTYPES:
        if dtype.short in USUAL:
            check_op(op_class, dtype)


def test_a_fold_that_each_slice_of_a_band_keeps_for_itself() -> None:
    assert check_seed(10_864, "fine")


def test_rows_of_a_chunk_that_is_smaller_than_a_unit_of_them() -> None:
    """Sums of products took eight rows at a time, from before the first one."""
    assert check_seed(7_130, "fine,fenced")


@pytest.mark.slow
@pytest.mark.parametrize("op_class", OPS, ids=lambda op: op.name)
def test_compiled_equals_eager_in_every_dtype(op_class: type[Op]) -> None:
    for dtype in ALL_DTYPES:
        check_op(op_class, dtype)


@pytest.mark.parametrize("how", ["usual", "fine", "checked", "fine,donated", "fine,fenced"])
@pytest.mark.parametrize("first", range(0, 60, 20))
def test_random_graphs_compile_to_what_the_interpreter_computes(first: int, how: str) -> None:
    for seed in range(first, first + (20 if how in ("usual", "fine") else 8)):
        check_seed(seed, how)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["usual", "fine", "checked", "donated", "fine,checked", "fine,donated", "fine,fenced"])
def test_long_campaign_of_random_graphs(how: str) -> None:
    assert campaign(1000, 10_000, how) == []
