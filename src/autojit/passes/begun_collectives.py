"""Collectives that are begun end where they began, unless `Wait` alone reads what they give."""

from __future__ import annotations

from collections.abc import Sequence

from autojit.ir.graph import Graph, Node, Value, replace
from autojit.ops.collectives import Beginning, Wait


def end_unawaited(graph: Graph) -> Graph:
    """Let collectives be begun and ended at one place where something other than a `Wait` reads the result or nothing
    does, or where the operand may be gone before the end.

    Preserves results, effects and source locations. Time O(nodes + edges); graphs in which nothing is begun come back
    as they are.
    """
    begun = {node.output: node for node in graph.nodes if _is_begun(node)}
    if not begun:
        return graph
    readers: dict[Value, list[Node]] = {v: [] for v in begun}
    for node in graph.nodes:
        for v in dict.fromkeys(node.inputs):
            if v in readers:
                readers[v].append(node)
    outputs = set(graph.outputs)
    ended = {node for v, node in begun.items() if v in outputs or not _is_awaited(node, readers[v])}
    return replace(graph, nodes=tuple([_ended(node) if node in ended else node for node in graph.nodes]))


def _is_begun(node: Node) -> bool:
    return isinstance(node.op, Beginning) and node.op.manner == "begun"


def _is_awaited(node: Node, readers: Sequence[Node]) -> bool:
    """Whether only waits read the result, which keep the operand as long."""
    waits = [r for r in readers if isinstance(r.op, Wait) and r.inputs == (node.output, *node.inputs)]
    return bool(waits) and len(waits) == len(readers)


def _ended(node: Node) -> Node:
    assert isinstance(node.op, Beginning)
    return Node(node.op.ended(), node.inputs, node.outputs, node.source)
