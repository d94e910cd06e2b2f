"""In which order the nodes of a pass run."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Container

from autojit.tensor.node import AccumulateGrad, Node

__all__ = ["by_edges", "when"]


def when(node: Node) -> int:
    """Accumulators come last in the order; they run earlier, when their last contribution arrives."""
    return -1 if type(node) is AccumulateGrad else node.sequence


def by_edges(missing: dict[Node, int], ends: Container[Node]) -> list[Node]:
    """The nodes, each after all its users; of those that could come next, the one of greatest number.

    ``missing`` counts the users of each; edges from ``ends`` do not count.
    """
    waiting, order, places = dict(missing), list[Node](), itertools.count()
    ready = [(-when(node), next(places), node) for node in missing if not missing[node]]
    heapq.heapify(ready)
    while ready:
        node = heapq.heappop(ready)[2]
        order.append(node)
        for edge in () if node in ends else node.edges:
            child = None if edge is None else edge[0]
            if child is not None and child in waiting:
                waiting[child] -= 1
                if not waiting[child]:
                    heapq.heappush(ready, (-when(child), next(places), child))
    return order
