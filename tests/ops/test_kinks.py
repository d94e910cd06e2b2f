"""At ties and kinks, where a derivative is a choice, forward and reverse mode choose the same: they are transposes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autojit.core.dtypes import float64
from autojit.core.errors import AutojitError
from autojit.ir import Graph, Op, evaluate
from autojit.ops.failed_matrices import LinAlgError
from autojit.testing.mutants.killers import _graph_of, _inner, names_of_ops
from autojit.transforms.adjoint import adjoint
from autojit.transforms.jvp import jvp

LARGE = 1e6  # what the inverse of a singular matrix gives to rounding is larger
TIED = (lambda x: np.round(x), lambda x: np.zeros_like(x), lambda x: np.ones_like(x), lambda x: np.sign(x))


def _is_smooth(op: Op, inputs: Any) -> bool:
    return op.is_differentiable and bool(inputs) and all(x.dtype == np.float64 for x in inputs)


@pytest.mark.parametrize("name", names_of_ops())
def test_both_modes_agree_at_ties_and_kinks(name: str) -> None:
    numbers = np.random.default_rng(0)
    for op, inputs in list(Op.registry.load()[name].samples(float64))[:6]:  # type: ignore[attr-defined]
        if not _is_smooth(op, inputs):
            continue
        for tie in TIED:
            given = [np.asarray(tie(np.asarray(x))) for x in inputs]
            graph = _graph_of(op, given)
            with np.errstate(all="ignore"):
                try:
                    results = evaluate(graph, given)
                except (AutojitError, ValueError):  # refused outside the op's domain
                    continue
                if any(y.dtype != np.float64 or not np.all(np.isfinite(y)) for y in results):
                    continue
                _check(op, graph, given, results, numbers)


def _check(op: Op, graph: Graph, given: list[Any], results: list[Any], numbers: np.random.Generator) -> None:
    directions = [numbers.standard_normal(x.shape) for x in given]
    weights = [numbers.standard_normal(y.shape) for y in results]
    try:
        pushed = evaluate(jvp(graph), [*given, *directions])[len(results) :]
        pulled = evaluate(adjoint(graph), [*given, *weights])
    except LinAlgError:  # there is no derivative at a singular matrix
        return
    if not all(np.all(np.abs(x) < LARGE) for x in (*pushed, *pulled)):  # NaN is none
        return
    left, right = _inner(weights, pushed), _inner(pulled, directions)
    assert abs(left - right) <= 1e-9 * max(1.0, abs(left), abs(right)), (op, given, left, right)
