"""Calls of users' functions in a graph (``ir.op.Op.calls_out``), and graphs without them.

Such a call is made once wherever the program makes it. What computes values a second time (derivatives, loops that are
run again for what they had inside, decisions, a look at a step that failed) leaves it out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from autojit.ir.graph import Graph, Node, replace


def graphs_of(op: Any) -> Iterator[Graph]:
    """The graphs that an op holds."""
    if hasattr(op, "graphs"):
        yield from op.graphs()
    elif isinstance(getattr(op, "graph", None), Graph):
        yield op.graph


def calls_out(graph: Graph) -> bool:
    """Whether a node of the graph calls a user's function, if only in the body of a loop."""
    return any(node.op.calls_out for node in graph.nodes)


def without_calls(graph: Graph) -> Graph:
    """What computes the same values and calls nobody; the graph itself if it calls nobody. Time O(nodes)."""
    return replace(graph, nodes=silent_nodes(graph.nodes)) if calls_out(graph) else graph


def silent_nodes(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The same of some nodes; those that call nobody are the same nodes, values have the same names."""
    return tuple([kept for node in nodes if (kept := silent(node)) is not None])


def silent(node: Node) -> Node | None:
    """A node without its calls; None: nothing is left."""
    if not node.op.calls_out:
        return node
    op = node.op.silent()
    return None if op is None else Node(op, node.inputs, node.outputs, node.source)
