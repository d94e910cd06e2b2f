"""Views that a step returns: after a call they are taken again as the function took them.

The gradient of a view goes to what it was taken from, and is summed there with those of other views, the view that was
taken last first. The layout of the sum depends on both. So a view of a view is taken of that one, which is taken
once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from autojit.dispatch.dispatch import apply
from autojit.history.op_node import OpNode
from autojit.history.recording import edge_of
from autojit.history.view_history import Parts, ViewChain
from autojit.ir.op import Op
from autojit.tensor.node import Node
from autojit.tensor.tensor import Tensor


class Way(NamedTuple):
    """How a view leads to its base: per node of its history, the base's end first, what tells it and the ops so far."""

    nodes: tuple[tuple[int, int], ...]
    stops: tuple[int, ...]


class Taken(NamedTuple):
    """One view: ops ``start`` to ``stop`` of a result's chain, on the view of number ``of`` (None: the base)."""

    result: int
    of: int | None
    start: int
    stop: int


class Views:
    """The views to take, in the function's order; ``made`` says which result is which of them.

    None where the results, one after the other, are that already.
    """

    def __init__(self, ways: Mapping[int, Way]) -> None:
        one_by_one = [node for way in ways.values() for node in way.nodes]
        if one_by_one == sorted(set(one_by_one)):
            ways = {}
        found: dict[Any, tuple[Any, Taken]] = {}
        lasts: dict[int, Any] = {}
        for k, (nodes, stops) in ways.items():
            before, start = None, 0
            for node, stop in zip(nodes, stops, strict=True):
                is_other = stop == stops[-1] and node in lasts.values()  # another tensor with the same history
                key = (*node, k) if is_other else node
                found.setdefault(key, (before, Taken(k, None, start, stop)))
                before, start = key, stop
            lasts[k] = before
        numbers = {key: number for number, key in enumerate(sorted(found))}
        self.taken = tuple([found[key][1]._replace(of=numbers.get(found[key][0])) for key in numbers])
        self.made = {k: numbers[key] for k, key in lasts.items()}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Views) and (self.taken, self.made) == (other.taken, other.made)

    __hash__ = object.__hash__

    def take(self, chains: Callable[[int], Sequence[Op]], base: Callable[[int], Tensor]) -> dict[int, Tensor]:
        """The results that are such views, from the chain and the base of a result."""
        found: list[Tensor] = []
        for result, of, start, stop in self.taken:
            t = base(result) if of is None else found[of]
            for op in chains(result)[start:stop]:
                t = apply(op, t)
            found.append(t)
        return {k: found[number] for k, number in self.made.items()}


def way_of(leaf: Tensor, chain: Sequence[Op]) -> Way | None:
    """The way of a traced view to its base by ``chain``; None where its history is not that of these views."""
    view = leaf._view
    if view is None or view.base is None or leaf._grad_fn is None:
        return None
    edge: Any = (leaf._grad_fn, leaf._output_nr)
    nodes: list[tuple[int, int]] = []
    stops: list[int] = []
    stop = len(chain)
    while stop > 0:
        node: Any = None if edge is None else edge[0]
        count = _count(node, chain[:stop])
        if not count:
            return None
        nodes.insert(0, (node.sequence, edge[1]))
        stops.insert(0, stop)
        stop -= count
        edge = node.edges[0]
    return Way(tuple(nodes), tuple(stops)) if stop == 0 and edge == edge_of(view.base) else None


def _count(node: Node | None, chain: Sequence[Op]) -> int:
    """How many ops at the end of a chain a node stands for; 0: they are not its."""
    op = node.op if isinstance(node, OpNode) else None
    if isinstance(op, Parts):
        return 1 + op.drop
    ops = op.chain if isinstance(op, ViewChain) else (op,)
    return len(ops) if tuple(chain[-len(ops) :]) == ops else 0
