"""A run as a graph: its launches as nodes, each after those that touch the same memory, and one launch for all."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from autojit.codegen.cuda.host_records import PrologueNode
from autojit.runtime.gpu.bound_launch import BoundLaunch
from autojit.runtime.gpu.driver import Driver, Graph, GraphNode, KernelNode
from autojit.runtime.gpu.libcuda_graphs import kernel_parameters
from autojit.runtime.gpu.moving import Prologue
from autojit.runtime.gpu.order import predecessors
from autojit.runtime.gpu.structs import KernelNodeParams

BoundPrologue = tuple[Prologue, int]
"""With its function."""


def graph_nodes(prologues: Sequence[BoundPrologue], launches: Sequence[BoundLaunch]) -> list[GraphNode]:
    """The nodes of a run: the launches in their order."""
    accesses = [[prologue.part] for prologue, _ in prologues] + [launch.accesses() for launch in launches]
    after = predecessors(accesses)
    nodes: list[GraphNode] = [
        KernelNode(function, (1, 1, 1), 1, prologue.parameters, before)
        for (prologue, function), before in zip(prologues, after, strict=False)
    ]
    nodes += [launch.node(before) for launch, before in zip(launches, after[len(nodes) :], strict=False)]
    return nodes


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
