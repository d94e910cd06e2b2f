"""Inlining: a graph's nodes applied to operands, as if they had been written at the place of use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autojit.core.source import UNKNOWN
from autojit.ir.builder import GraphBuilder
from autojit.ir.graph import Graph, Value
from autojit.ir.op import bind


def inline(graph: Graph, operands: Sequence[Any], like: Any, builder: GraphBuilder | None = None) -> list[Any]:
    """The graph's outputs for operands in place of its inputs; sources are made in the company of ``like``.

    What ``builder`` is given keeps the user's line it had in the graph.
    """
    environment: dict[Value, Any] = dict(zip(graph.inputs, operands, strict=True))
    for node in graph.nodes:
        if builder is not None and node.source is not UNKNOWN:
            builder.source = node.source
        if node.inputs:
            results = bind(node.op, *[environment[v] for v in node.inputs])
        else:
            results = like._bind(node.op, ())
        results = (results,) if node.op.n_outputs == 1 else results
        environment.update(zip(node.outputs, results, strict=True))
    return [environment[v] for v in graph.outputs]


def live(graph: Graph) -> Graph:
    """The graph without the nodes that no output needs, whatever they refuse: that of a derivative repeats nodes whose
    errors have been met.
    """
    needed = set(graph.outputs)
    kept = []
    for node in reversed(graph.nodes):
        if not needed.isdisjoint(node.outputs):
            needed.update(node.inputs)
            kept.append(node)
    return Graph(graph.inputs, tuple(reversed(kept)), graph.outputs)
