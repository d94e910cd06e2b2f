"""Dead-code elimination."""

from __future__ import annotations

from autojit.ir.graph import Graph, Node, replace


def eliminate_dead_code(graph: Graph) -> Graph:
    """Drop nodes that no graph output reaches.

    Preserves results, effects, refusals and source locations. Time O(nodes + edges), one backward liveness sweep.
    """
    live = set(graph.outputs)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if node.is_kept or not live.isdisjoint(node.outputs):
            kept.append(node)
            live.update(node.inputs)
    return replace(graph, nodes=tuple(reversed(kept)))
