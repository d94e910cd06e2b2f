"""The interpreter: a graph evaluated node by node with NumPy, the reference for every compiled result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.ir.graph import Graph, Value

if TYPE_CHECKING:
    from numpy.typing import NDArray


def evaluate(graph: Graph, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Outputs of the graph for the given input arrays (NumPy arrays of the inputs' types)."""
    environment: dict[Value, NDArray[Any]] = dict(zip(graph.inputs, inputs, strict=True))
    with np.errstate(all="ignore"):
        for node in graph.nodes:
            results = node.op.eager(*[environment[v] for v in node.inputs])
            if node.op.n_outputs == 1:
                results = (results,)
            for value, result in zip(node.outputs, results, strict=True):
                environment[value] = np.asarray(result, dtype=value.type.dtype.numpy)
    return [environment[v] for v in graph.outputs]
