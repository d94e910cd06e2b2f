"""Running logarithms of sums: in parts they are what one step after the other finds, infinities and NaN included."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autojit.core.dtypes import DType, float16, float32, float64
from autojit.core.types import TensorType
from autojit.ir import Graph, GraphBuilder, evaluate, verify
from autojit.ir.op import bind
from autojit.ops.scans import Cumulative
from autojit.passes.expand import expand
from tests.on_cpu import CPU_MACHINE


def _running(shape: tuple[int, ...], dtype: DType, axis: int, reverse: bool = False) -> Graph:
    builder = GraphBuilder()
    x = builder.tracer(builder.input(TensorType(shape, dtype), "x"))
    return builder.finish([bind(Cumulative("logsumexp", axis, reverse), x).value])


def _kinds(graph: Graph) -> set[str]:
    return {node.op.name for node in graph.nodes}


@pytest.mark.parametrize("dtype", [float32, float64, float16], ids=str)
@pytest.mark.parametrize("rare", [0.0, -np.inf, np.inf, np.nan])
@pytest.mark.parametrize("size", [1.0, 300.0])
def test_lines_in_parts_are_steps_one_after_the_other(
    dtype: DType, rare: float, size: float, rng: np.random.Generator
) -> None:
    graph = _running((4, 60), dtype, 1)
    found = verify(expand(graph, CPU_MACHINE))
    assert "cumulative" not in _kinds(found)
    x = rng.normal(size=(4, 60)) * size
    x = np.where(rng.random(x.shape) < 0.1, rare, x).astype(dtype.numpy)
    x[0, :7] = rare
    with np.errstate(all="ignore"):
        expected = np.logaddexp.accumulate(x.astype(np.float64), 1)
        (y,) = evaluate(found, [x])
    eps = float(np.finfo(dtype.numpy).eps)
    np.testing.assert_allclose(y.astype(np.float64), expected, rtol=4 * eps, atol=8 * eps)


def test_columns_reversed_lines_and_other_machines_keep_the_op() -> None:
    for graph in (_running((4, 6), float32, 0), _running((4, 6), float32, 1, reverse=True)):
        assert "cumulative" in _kinds(expand(graph, CPU_MACHINE))
    assert "cumulative" in _kinds(expand(_running((4, 6), float32, 1), replace(CPU_MACHINE, parts_log_sums=False)))
