"""Sizes that a graph counts itself: which nodes depend on them; those that an operand shows are not counted again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from autojit.core.sizes import is_symbolic
from autojit.ir.concrete import symbols_of
from autojit.ir.graph import Graph, Node
from autojit.ops.counted_positions import Counting


def hangs_on_counts(nodes: Iterable[Node]) -> Callable[[Node], bool]:
    """Whether a node's types or parameters name a size that one of the nodes counts: it must stay beside that one."""
    counted = {str(node.op.count) for node in nodes if isinstance(node.op, Counting)}
    if not counted:
        return lambda node: False
    return lambda node: any(
        symbols_of(what) & counted for what in (node.op, *(v.type for v in (*node.inputs, *node.outputs)))
    )


def take_given_sizes(graph: Graph) -> Graph:
    """Mark the ops that count a size which the graph's inputs show.

    So it is in the derivative of a step whose result has a counted size: its cotangent has the size as well.
    Preserves results, effects and source locations. Time O(nodes).
    """
    if not any(isinstance(node.op, Counting) for node in graph.nodes):
        return graph
    given = {str(n) for value in graph.inputs for n in value.type.shape if is_symbolic(n)}

    def marked(node: Node) -> Node:
        op = node.op
        is_given = isinstance(op, Counting) and str(op.count) in given
        return replace(node, op=replace(op, is_given=True)) if is_given else node  # type: ignore[type-var]

    return replace(graph, nodes=tuple(map(marked, graph.nodes)))
