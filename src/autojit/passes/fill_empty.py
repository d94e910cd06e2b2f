"""Replace what has no elements, or is computed from none, by literals: later stages then see such results as filled."""

from __future__ import annotations

from autojit.ir.builder import GraphBuilder
from autojit.ir.graph import Graph, Node, Value
from autojit.ops.base import Elementwise
from autojit.ops.sources import Full
from autojit.passes.rewrite import rebuilt

IDENTITIES: dict[str, object] = {"sum": 0, "prod": 1, "any_true": False, "all_true": True, "matmul": 0}


def fill_empty(graph: Graph) -> Graph:
    """Write empty results, folds and products over no elements, and what is looked up among none, as ``full``.

    Preserves results, effects and source locations, and refusals behind `eliminate_dead_code`, which has checked the
    indices of such look-ups by themselves. Time O(nodes); graphs without an extent of 0 come back as they are.
    """
    made = [v for node in graph.nodes for v in node.outputs]
    if not any(0 in v.type.shape for v in (*graph.inputs, *made)):
        return graph
    return rebuilt(graph, _filled)


def _filled(builder: GraphBuilder, node: Node, inputs: tuple[Value, ...]) -> list[Value] | None:
    value = _literal(node)
    if value is None:
        return None
    types = [v.type for v in node.outputs]
    return [builder.apply(Full(value, t.dtype, t.shape, t.device), ())[0] for t in types]  # type: ignore[arg-type]


def _literal(node: Node) -> object:
    """The number every element of the node's results is, or None."""
    if isinstance(node.op, Full) or (node.is_kept and not isinstance(node.op, Elementwise)):
        return None  # an elementwise op of no elements refuses none
    if all(v.type.size == 0 for v in node.outputs):
        return 0
    if node.op.looks_up and node.inputs[0].type.size == 0:
        return 0
    if any(v.type.size == 0 for v in node.inputs):
        return IDENTITIES.get(node.op.name)
    return None
