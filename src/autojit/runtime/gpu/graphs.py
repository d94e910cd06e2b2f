"""A run as a graph: its launches as nodes, each after those that touch the same memory, and one launch for all.

Where sizes are open, there is a graph for each tuple of sizes (`KeptGraphs`).
"""

from __future__ import annotations

import ctypes
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from autojit.codegen.cuda.host_records import PrologueNode
from autojit.runtime.gpu.bodies import BoundBody, nodes_of
from autojit.runtime.gpu.bound_launch import BoundLaunch
from autojit.runtime.gpu.driver import Driver, Graph, GraphNode, KernelNode
from autojit.runtime.gpu.libcuda_graphs import kernel_parameters
from autojit.runtime.gpu.moving import Prologue
from autojit.runtime.gpu.order import Edges
from autojit.runtime.gpu.structs import KernelNodeParams

BoundPrologue = tuple[Prologue, int]
"""With its function."""

Sizes = tuple[int, ...]
"""What a graph is one for: the values of open sizes, and addresses that follow from them."""

MOST_GRAPHS = 8
"""Of a run: each takes some kilobytes of the driver's for every launch."""

MOST_SEEN = 4096
"""Tuples of sizes that are remembered for having come once."""


def graph_nodes(
    prologues: Sequence[BoundPrologue],
    items: Sequence[BoundLaunch | BoundBody],
    after: Edges | None = None,
    *,
    starts_early: bool = False,
) -> list[GraphNode]:
    """The nodes of a run: the launches and bodies in their order.

    For the sizes of the present call: what has no blocks then is left out.

    Args:
        after: what each node waits for, where that is known.
        starts_early: launches may start before what they wait for has ended, outside of bodies.
    """
    nodes: list[GraphNode] = [
        KernelNode(function, (1, 1, 1), 1, prologue.parameters) for prologue, function in prologues
    ]
    accesses = [[prologue.part] for prologue, _ in prologues]  # parts of the table: none waits for another
    nodes += nodes_of(items, accesses, after)
    if not starts_early:
        return nodes
    return [replace(node, starts_early=True) if isinstance(node, KernelNode) else node for node in nodes]


class KeptGraphs:
    """The graphs of a run, one for each tuple of sizes: the last `MOST_GRAPHS` of those that come more than once.

    Args:
        driver: which has them.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._of: OrderedDict[Sizes, RunGraph] = OrderedDict()
        self._seen: set[Sizes] = set()

    def find(self, sizes: Sizes) -> RunGraph | None:
        """The graph for some sizes, if there is one."""
        found = self._of.get(sizes)
        if found is not None:
            self._of.move_to_end(sizes)
        return found

    def is_due(self, sizes: Sizes) -> bool:
        """Whether sizes come again for which there is no graph, and there is room for one."""
        if sizes in self._seen:
            return len(self._of) < MOST_GRAPHS
        if len(self._seen) >= MOST_SEEN:
            self._seen.clear()
        self._seen.add(sizes)
        return False

    def add(self, sizes: Sizes, graph: RunGraph, last_stream: int) -> None:
        """Keep a graph; the one that was not asked for the longest goes, if there are many."""
        if len(self._of) >= MOST_GRAPHS:
            self._driver.synchronize(last_stream)
            self._of.popitem(last=False)[1].destroy()
        self._of[sizes] = graph

    def drop(self, last_stream: int, also: Sequence[RunGraph] = ()) -> None:
        """Forget all graphs, and some others of the run."""
        graphs = [*self._of.values(), *also]
        self._of.clear()
        self._seen.clear()
        if graphs:
            self._driver.synchronize(last_stream)
        for graph in graphs:
            graph.destroy()

    def __len__(self) -> int:
        return len(self._of)


class RunGraph:
    """A graph that was made, with what native code reads to launch it.

    Args:
        driver: which makes it.
        nodes: of it, the prologues first.
        prologues: whose parameters are set at every launch.
    """

    def __init__(self, driver: Driver, nodes: Sequence[GraphNode], prologues: Sequence[BoundPrologue]) -> None:
        self._driver = driver
        self._graph: Graph = driver.make_graph(nodes)
        self.number = self._graph.number
        self._how: list[KernelNodeParams] = [
            kernel_parameters(function, (1, 1, 1), 1, prologue.parameters) for prologue, function in prologues
        ]
        rows = [
            PrologueNode(node=node, how=ctypes.addressof(how))
            for node, how in zip(self._graph.nodes, self._how, strict=False)
        ]
        self._rows = np.array(rows or [PrologueNode(node=0, how=0)], np.uint64)
        self.n_prologues = len(rows)
        self.prologues_address = int(self._rows.__array_interface__["data"][0])

    def destroy(self) -> None:
        """Forget it; nothing that was launched by it may be under way."""
        self._driver.destroy_graph(self._graph)
