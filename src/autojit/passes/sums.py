"""Sums of many terms in a graph: what the passes that rewrite whole sums share."""

from __future__ import annotations

from collections.abc import Iterator

from autojit.ir.graph import Graph, Node, Value
from autojit.ops.elementwise_arithmetic import Add


def sums(graph: Graph) -> Iterator[tuple[Node, list[Value]]]:
    """Every addition that no other addition absorbs, with the terms of the whole sum from left to right.

    Partial sums that somebody else reads count as terms. Time O(nodes).
    """
    made_by = graph.definitions()
    readers = graph.use_counts()

    def is_partial(value: Value, whole: Value) -> bool:
        node = made_by.get(value)
        return node is not None and isinstance(node.op, Add) and readers[value] == 1 and value.type == whole.type

    absorbed: set[Value] = set()
    for node in reversed(graph.nodes):
        if not isinstance(node.op, Add) or node.outputs[0] in absorbed:
            continue
        terms: list[Value] = []
        waiting = list(reversed(node.inputs))
        while waiting:
            value = waiting.pop()
            if is_partial(value, node.outputs[0]):
                absorbed.add(value)
                waiting += reversed(made_by[value].inputs)
            else:
                terms.append(value)
        yield node, terms


def added(terms: list[Value], outputs: tuple[Value, ...], node: Node) -> list[Node]:
    """Nodes that add two or more terms; the last one makes ``outputs``."""
    nodes: list[Node] = []
    total = terms[0]
    for k, term in enumerate(terms[1:], start=1):
        made = outputs if k == len(terms) - 1 else (Value(outputs[0].type),)
        nodes.append(Node(Add(), (total, term), made, node.source))
        total = made[0]
    return nodes
