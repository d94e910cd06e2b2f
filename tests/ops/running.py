"""Running functions on operands without Tensors: record them with Tracers, verify, interpret."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autojit.core.dtypes import dtype_of_numpy
from autojit.core.types import TensorType
from autojit.ir import Graph, GraphBuilder, evaluate, verify


def record(function: Callable[..., Any], *arrays: NDArray[Any]) -> Graph:
    """The graph of ``function`` on operands of the arrays' types; it may return an operand or a sequence of them."""
    builder = GraphBuilder()
    types = [TensorType(a.shape, dtype_of_numpy(a.dtype)) for a in arrays]
    result = function(*[builder.tracer(builder.input(t)) for t in types])
    results = result if isinstance(result, tuple | list) else (result,)
    return verify(builder.finish([y.value for y in results]))


def run(function: Callable[..., Any], *arrays: Any) -> Any:
    """What the function computes: an array, or a list of them if it returns a sequence."""
    inputs = [np.asarray(a) for a in arrays]
    graph = record(function, *inputs)
    results = evaluate(graph, inputs)
    return results[0] if len(results) == 1 else results


def normal(*shape: int, seed: int = 0) -> NDArray[np.float64]:
    return np.random.default_rng(seed).standard_normal(shape)


def integers(low: int, high: int, *shape: int, seed: int = 0) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(low, high, shape)
