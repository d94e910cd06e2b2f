"""Common-subexpression elimination."""

from __future__ import annotations

from autojit.ir.graph import Graph, Node, Value


def eliminate_common_subexpressions(graph: Graph) -> Graph:
    """Compute equal ops on equal operands once.

    Preserves results and effects (ops with effects are never merged). Time O(nodes + edges), one forward sweep.
    """
    known: dict[object, tuple[Value, ...]] = {}
    renamed: dict[Value, Value] = {}
    kept: list[Node] = []
    for node in graph.nodes:
        inputs = node.inputs
        for value in inputs:
            if value in renamed:
                inputs = tuple([renamed.get(v, v) for v in inputs])
                break
        if not node.op.has_effect:
            found = known.setdefault((node.op, inputs), node.outputs)
            if found is not node.outputs:
                renamed.update(zip(node.outputs, found, strict=True))
                continue
        kept.append(node if inputs is node.inputs else Node(node.op, inputs, node.outputs, node.source))
    outputs = tuple(renamed.get(v, v) for v in graph.outputs)
    return Graph(graph.inputs, tuple(kept), outputs)
