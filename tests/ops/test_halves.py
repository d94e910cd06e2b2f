"""Elementwise ops of halves round where their eager rules do: compiled and eager results are the same halves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autojit.compiler import compile
from autojit.core.dtypes import DType, bfloat16, float16
from autojit.ir import Op, evaluate
from autojit.ops.elementwise_base import Elementwise
from autojit.testing.mutants.killers import _graph_of, names_of_ops

COUNT = 2000
MOST_DIFFERING = 8  # of these: where a function of float32 is within its last digits of the middle of two halves


def _sample(name: str, dtype: DType) -> tuple[Op, list[Any]] | None:
    made: Any = Op.registry.load()[name]
    kind = made if isinstance(made, type) else type(made)
    if not issubclass(kind, Elementwise) or name == "formula":  # whose operands are those of its text
        return None
    for op, inputs in kind.samples(dtype)[:1]:  # type: ignore[attr-defined]
        if inputs and all(x.dtype == dtype.numpy for x in inputs):
            low, high = getattr(kind, "domain", (-4.0, 4.0))
            numbers = np.random.default_rng(0)
            return op, [numbers.uniform(low, high, COUNT).astype(dtype.numpy) for _ in inputs]
    return None


@pytest.mark.parametrize("dtype", [float16, bfloat16], ids=str)
@pytest.mark.parametrize("name", names_of_ops())
def test_compiled_ops_of_halves_round_as_eager_ones(name: str, dtype: DType, lightly_compiled: None) -> None:
    found = _sample(name, dtype)
    if found is None:
        return
    op, inputs = found
    graph = _graph_of(op, inputs)
    with np.errstate(all="ignore"):
        (expected,) = evaluate(graph, inputs)
    (result,) = compile(graph).executable.run(inputs)
    is_nan = (expected != expected) & (result != result)
    assert int(((expected != result) & ~is_nan).sum()) <= MOST_DIFFERING, op
