"""Common-subexpression elimination."""

from __future__ import annotations

from autojit.ir.graph import Graph, Node, Value, renamed


def eliminate_common_subexpressions(graph: Graph) -> Graph:
    """Compute equal ops on equal operands once.

    Preserves results and effects (ops with effects are never merged). Time O(nodes + edges), one forward sweep.
    """
    known: dict[object, tuple[Value, ...]] = {}
    names: dict[Value, Value] = {}
    kept: list[Node] = []
    for node in graph.nodes:
        inputs = renamed(node.inputs, names)
        if not node.op.has_effect:
            found = known.setdefault((node.op, inputs), node.outputs)
            if found is not node.outputs:
                names.update(zip(node.outputs, found, strict=True))
                continue
        kept.append(node if inputs is node.inputs else Node(node.op, inputs, node.outputs, node.source))
    outputs = tuple(names.get(v, v) for v in graph.outputs)
    return Graph(graph.inputs, tuple(kept), outputs)
