"""The interpreter: a graph evaluated node by node with NumPy, the reference for every compiled result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.errors import AutojitError
from autojit.ir.concrete import concrete, symbols_of, take_sizes
from autojit.ir.graph import Graph, Value

if TYPE_CHECKING:
    from numpy.typing import NDArray


def evaluate(graph: Graph, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Outputs of the graph for the given input arrays (NumPy arrays of the inputs' types)."""
    environment: dict[Value, NDArray[Any]] = dict(zip(graph.inputs, inputs, strict=True))
    sizes: dict[str, int] = {}
    for value, array in environment.items():
        take_sizes(value.type, np.shape(array), sizes)
    with np.errstate(all="ignore"):
        for node in graph.nodes:
            op = concrete(node.op, sizes) if sizes and symbols_of(node.op) <= sizes.keys() else node.op
            try:
                results = op.eager(*[environment[v] for v in node.inputs])
            except AutojitError as error:
                raise error.found_at(node.source, node.op.shown_name) from None
            if node.op.n_outputs == 1:
                results = (results,)
            for value, result in zip(node.outputs, results, strict=True):
                environment[value] = np.asarray(result, dtype=value.type.dtype.numpy)
                take_sizes(value.type, environment[value].shape, sizes)  # what this node counted
    return [environment[v] for v in graph.outputs]
