"""Sums of column sums are one column sum, where the rows are stacked anyway.

The gradient of a bias that is used at every step of a loop adds up a column sum a step. The gradient of the weight
beside it multiplies all these rows as one matrix (`join_products`): its columns are summed once.
"""

from __future__ import annotations

from autojit.ir.graph import Graph, Node, Value, replace
from autojit.ops.joining import Concatenate
from autojit.ops.reductions import Sum
from autojit.passes.stacks import rows_of_stack, unstacked
from autojit.passes.sums import added, sums

FEWEST = 4  # column sums
COLUMNS = (0,)  # what these sum over


def join_sums(graph: Graph) -> Graph:
    """``a.sum(0) + b.sum(0) + ...`` becomes ``[a; b; ...].sum(0)`` where something reads ``[a; b; ...]``.

    Preserves results to rounding (terms are added in another order) and source locations. Time O(nodes).
    """
    made_by = graph.definitions()
    stacks = {
        frozenset(unstacked(part, made_by) for part in node.inputs): node
        for node in graph.nodes
        if isinstance(node.op, Concatenate) and node.op.axis == 0 and len(node.inputs) >= FEWEST
    }
    joined: dict[Value, list[Node]] = {}
    for node, terms in sums(graph) if stacks else ():
        columns = {term: made for term in terms if (made := _column_sum(made_by.get(term))) is not None}
        stack = stacks.get(frozenset(made.inputs[0] for made in columns.values()))
        if stack is not None and len(columns) == len(stack.inputs):
            rest = [term for term in terms if term not in columns]
            joined[node.outputs[0]] = _joined(node, stack, rest, made_by)
    if not joined:
        return graph
    return replace(graph, nodes=tuple([new for node in graph.nodes for new in joined.get(node.outputs[0], (node,))]))


def _column_sum(node: Node | None) -> Node | None:
    """A node, if it sums the columns of a matrix."""
    is_one = node is not None and isinstance(node.op, Sum) and node.op.axes == COLUMNS and node.inputs[0].type.ndim == 2
    return node if is_one else None


def _joined(node: Node, stack: Node, rest: list[Value], made_by: dict[Value, Node]) -> list[Node]:
    """The nodes that take the place of a sum."""
    nodes: list[Node] = []
    rows = rows_of_stack(stack, made_by, node, nodes)
    outputs = (Value(node.outputs[0].type),) if rest else node.outputs
    nodes.append(Node(Sum(COLUMNS), (rows,), outputs, node.source))
    return [*nodes, *added([*rest, *outputs], node.outputs, node)] if rest else nodes
