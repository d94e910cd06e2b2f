"""Graphs of the emulated device: nodes run in an order that their edges allow, and a missing edge is found.

Two nodes that no path of edges orders must not touch the same bytes if one of them writes. What such nodes touch is
written down while they run, and compared.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from autojit.core.errors import ArgumentError
from autojit.ir.op import Ndarray
from autojit.runtime.gpu.driver import GraphNode, KernelNode
from autojit.runtime.gpu.emulator.distinct import each_once
from autojit.runtime.gpu.emulator.findings import EmulatedFault


class Footprint:
    """The bytes that a node read and wrote.

    Args:
        is_early: the node may run before those in front of it have ended: what it reads before it waits is kept apart.
    """

    def __init__(self, is_early: bool = False) -> None:
        self.is_early = is_early
        self._early: dict[int, list[Ndarray]] = {}
        self._parts: dict[bool, dict[int, list[Ndarray]]] = {False: {}, True: {}}  # where pieces begin, by their size
        self._bytes: dict[bool, Ndarray] = {}  # made when they are first asked for: the node has run then

    def add(self, addresses: Ndarray, size: int, is_write: bool) -> None:
        """Pieces of ``size`` bytes."""
        self._parts[is_write].setdefault(size, []).append(addresses.astype("i8"))

    def add_early(self, addresses: Ndarray, size: int) -> None:
        """Pieces that were read before the wait."""
        self._early.setdefault(size, []).append(addresses.astype("i8"))

    def early_byte_of(self, other: Footprint) -> int | None:
        """A byte that was read before the wait, and that another node writes."""
        for size, begins in self._early.items():
            common = _first_in_both(_bytes_of(begins, size), other.bytes_of(True))
            if common is not None:
                return common
        return None

    def add_range(self, address: int, size: int, is_write: bool) -> None:
        """Bytes in a row."""
        self.add(np.array([address]), size, is_write)

    def join(self, others: Iterable[Footprint]) -> None:
        """What others have read and written, too."""
        for other in others:
            for is_write in (False, True):
                self.add(other.bytes_of(is_write), 1, is_write)

    def bytes_of(self, is_write: bool) -> Ndarray:
        """Each byte once, in order."""
        found = self._bytes.get(is_write)
        if found is None:
            parts = [_bytes_of(begins, size) for size, begins in self._parts[is_write].items()]
            found = parts[0] if len(parts) == 1 else each_once(np.concatenate([np.empty(0, "i8"), *parts]))
            self._bytes[is_write] = found
            self._parts[is_write].clear()
        return found

    def shared_with(self, other: Footprint) -> int | None:
        """A byte that one of two nodes writes and the other touches."""
        for mine, theirs in ((True, True), (True, False), (False, True)):
            common = _first_in_both(self.bytes_of(mine), other.bytes_of(theirs))
            if common is not None:
                return common
        return None


def _bytes_of(begins: list[Ndarray], size: int) -> Ndarray:
    """Each byte once, in order, of pieces of one size: most are read many times, and none begins inside of another."""
    found = (each_once(np.concatenate(begins))[:, None] + np.arange(size)).reshape(-1)
    return found if bool((found[1:] > found[:-1]).all()) else each_once(found)


def _first_in_both(some: Ndarray, others: Ndarray) -> int | None:
    """The least of the numbers in two rows, each in order; most pairs of nodes have none, and far from each other."""
    few, many = (some, others) if len(some) < len(others) else (others, some)
    if not len(few) or few[-1] < many[0] or many[-1] < few[0]:
        return None
    places = np.minimum(np.searchsorted(many, few), len(many) - 1)
    common = few[many[places] == few]
    return int(common[0]) if len(common) else None


class EmulatedGraph:
    """Nodes with what orders them.

    Args:
        nodes: as the driver's caller gave them.
        numbers: what the driver calls them.
    """

    def __init__(self, nodes: Sequence[GraphNode], numbers: Sequence[int]) -> None:
        self.nodes, self.numbers = list(nodes), list(numbers)
        self._places = {each: number for number, each in enumerate(numbers)}
        self._before = np.zeros((len(self.nodes), len(self.nodes)), np.bool_)  # of a node (row): who comes before it
        for number, node in enumerate(nodes):
            for k in node.after:
                if not 0 <= k < number:
                    raise ArgumentError(
                        "a graph's node comes after one that is not before it in the list",
                        facts={"node": number, "after": k},
                    )
                self._before[number] |= self._before[k]
                self._before[number, k] = True
        self._is_looked_at = False  # whether it has run, with a look at what is read before a wait
        self._ordered = self._before.sum(0) + self._before.sum(1)  # of each node: how many are before or behind it

    def node(self, number: int) -> GraphNode:
        """The node that the driver calls by this number."""
        if number not in self._places:
            raise ArgumentError("a graph has no such node", facts={"node": number})
        return self.nodes[self._places[number]]

    def _has_rival(self, number: int) -> bool:
        """Whether a node may run before and after another one."""
        return bool(self._ordered[number] + 1 < len(self.nodes))

    def order(self, chance: np.random.Generator | None) -> list[int]:
        """The nodes as listed, or in any order that the edges allow."""
        if chance is None:
            return list(range(len(self.nodes)))
        behind: list[list[int]] = [[] for _ in self.nodes]
        waiting = [len(set(node.after)) for node in self.nodes]
        for number, node in enumerate(self.nodes):
            for k in set(node.after):
                behind[k].append(number)
        ready = [number for number, count in enumerate(waiting) if not count]
        found: list[int] = []
        while ready:
            chosen = int(chance.choice(ready))
            ready.remove(chosen)
            found.append(chosen)
            for number in behind[chosen]:
                waiting[number] -= 1
                if not waiting[number]:
                    insort(ready, number)
        return found

    def run(
        self,
        execute: Callable[[int, GraphNode, Footprint | None], None],
        name: Callable[[GraphNode], str],
        chance: np.random.Generator | None,
        is_watched: bool = False,
    ) -> list[Footprint]:
        """Run all nodes; what each has touched, where that was written down.

        Args:
            execute: runs one node, and writes down in the footprint what it touches.
            name: of a node, for messages.
            is_watched: whether all nodes write down what they touch, because other streams may.

        Raises:
            EmulatedFault: a node failed, or an edge is missing.
        """
        done: dict[int, Footprint] = {}
        starts_early = any(isinstance(node, KernelNode) and node.starts_early for node in self.nodes)
        has_early, self._is_looked_at = starts_early and not self._is_looked_at, True
        free = np.zeros(len(self.nodes), np.bool_)  # those that are done, and that another may come before or after
        for number in self.order(chance):
            is_kept = has_early or is_watched or self._has_rival(number)
            footprint = Footprint(has_early) if is_kept else None
            execute(self.numbers[number], self.nodes[number], footprint)
            if footprint is None:
                continue
            self._check_early_reads(number, footprint, done, name)
            for other in map(int, np.flatnonzero(free & ~self._before[number] & ~self._before[:, number])):
                address = footprint.shared_with(done[other])
                if address is not None:
                    here, there = name(self.nodes[number]), name(self.nodes[other])
                    detail = (
                        f"nodes {other} ({there}) and {number} ({here}) touch the same bytes, one writes them, and no "
                        "path of edges orders the two"
                    )
                    raise EmulatedFault("missing edge", detail, kernel=here, address=address)
            done[number] = footprint
            free[number] = True
        return [*done.values()]

    def _check_early_reads(
        self, number: int, footprint: Footprint, done: dict[int, Footprint], name: Callable[[GraphNode], str]
    ) -> None:
        """What a node reads before it waits, none of those right before it writes: they may be running."""
        for k in self.nodes[number].after:
            address = footprint.early_byte_of(done[k]) if k in done else None
            if address is not None:
                here, there = name(self.nodes[number]), name(self.nodes[k])
                detail = (
                    f"node {number} ({here}) reads before it waits what node {k} ({there}), right before it, writes"
                )
                raise EmulatedFault("early start", detail, kernel=here, address=address)
