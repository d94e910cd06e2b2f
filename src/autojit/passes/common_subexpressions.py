"""Common-subexpression elimination."""

from __future__ import annotations

from autojit.ir.graph import Graph, Node, Value


def eliminate_common_subexpressions(graph: Graph) -> Graph:
    """Compute equal ops on equal operands once.

    Preserves results and effects (ops with effects are never merged). Time O(nodes + edges), one forward sweep.
    """
    known: dict[object, tuple[Value, ...]] = {}
    names: dict[Value, Value] = {}
    kept: list[Node] = []
    for node in graph.nodes:
        made = node.reading(names)
        if not (node.op.has_effect or node.op.calls_out):
            found = known.setdefault((node.op, made.inputs), node.outputs)
            if found is not node.outputs:
                names.update(zip(node.outputs, found, strict=True))
                continue
        kept.append(made)
    return graph.renamed(kept, names)
