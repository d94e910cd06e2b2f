"""Common-subexpression elimination."""

from __future__ import annotations

from autojit.ir.graph import Graph, Node, Value


def eliminate_common_subexpressions(graph: Graph) -> Graph:
    """Compute equal ops on equal operands once.

    Preserves results and effects (ops with effects are never merged, but for what repeats one only for its value).
    Time O(nodes + edges), one forward sweep.
    """
    known: dict[object, tuple[Value, ...]] = {}
    names: dict[Value, Value] = {}
    kept: list[Node] = []
    for node in graph.nodes:
        made = node.reading(names)
        repeated = node.op.repeated
        found = known.setdefault((repeated or node.op, made.inputs), node.outputs)
        may_merge = repeated is not None or not (node.op.has_effect or node.op.calls_out)
        if may_merge and found is not node.outputs:
            names.update(zip(node.outputs, found, strict=True))
            continue
        kept.append(made)
    return graph.renamed(kept, names)
