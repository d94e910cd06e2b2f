"""The driver's calls that are about graphs, for an emulated device: nodes run one after another, bodies as they say."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from autojit.core.errors import ArgumentError, DeviceError
from autojit.runtime.gpu.driver import (
    CONDITIONS_FROM,
    EARLY_FROM,
    ConditionalNode,
    CopyNode,
    FillNode,
    Graph,
    GraphNode,
    KernelNode,
)
from autojit.runtime.gpu.emulator.findings import EmulatedFault
from autojit.runtime.gpu.emulator.graphs import EmulatedGraph, Footprint
from autojit.runtime.gpu.emulator.memory import EmulatedMemory
from autojit.runtime.gpu.emulator.streams import StreamOrder


class GraphCalls:
    """A part of the driver."""

    counts: Counter[str]
    streams: StreamOrder
    memory: EmulatedMemory
    version: int
    most_turns = 100_000
    """Of a body in a graph: one that goes on is taken to have no end."""
    _numbers: Iterator[int]
    _launches: int
    _seed: int | None
    _lock: Any

    def begin_graphs(self) -> None:
        """There are none."""
        self._graphs: dict[int, EmulatedGraph] = {}
        self._node_arguments: dict[int, bytes] = {}
        self._bodies: dict[int, tuple[Graph, EmulatedGraph]] = {}  # of conditional nodes, whose numbers are handles
        self._conditions: dict[int, int] = {}  # of the graph that runs
        self._chance: np.random.Generator | None = None

    def arguments(self, function: int, parameters: int) -> bytes:
        """See `EmulatedDriver`."""
        raise NotImplementedError

    def name(self, function: int) -> str:
        """See `EmulatedDriver`."""
        raise NotImplementedError

    def waits(self, function: int) -> bool:
        """See `EmulatedDriver`."""
        raise NotImplementedError

    def _run(
        self,
        function: int,
        blocks: tuple[int, int, int],
        threads: tuple[int, int, int],
        arguments: bytes,
        shared_bytes: int = 0,
        footprint: Footprint | None = None,
        *,
        is_cooperative: bool = False,
    ) -> None:
        raise NotImplementedError

    @property
    def live_graphs(self) -> int:
        """How many there are."""
        return len(self._graphs)

    def make_graph(self, nodes: Sequence[GraphNode]) -> Graph:
        """Nodes, with the arguments that their kernels have now."""
        self.counts["instantiations"] += 1
        made, emulated = self._made(nodes)
        self._graphs[made.number] = emulated
        return made

    def _made(self, nodes: Sequence[GraphNode]) -> tuple[Graph, EmulatedGraph]:
        """A graph, or the body of a node."""
        made = Graph(next(self._numbers), tuple(next(self._numbers) for _ in nodes))
        emulated = EmulatedGraph(nodes, made.nodes)
        conditional = [(n, node) for n, node in zip(made.nodes, nodes) if isinstance(node, ConditionalNode)]
        for number, node in conditional:
            if self.version < CONDITIONS_FROM:
                raise DeviceError("this driver's graphs have no conditions", {"version": self.version})
            for word in node.handles:
                ctypes.c_uint64.from_address(word).value = number
        self._bodies |= {number: self._made(node.body) for number, node in conditional}
        for number, each in zip(made.nodes, nodes):
            if isinstance(each, KernelNode):
                if each.starts_early:
                    self._check_start(each.function)
                self._node_arguments[number] = self.arguments(each.function, each.parameters)
        return made, emulated

    def _check_start(self, function: int) -> None:
        """A launch that starts early waits at some time; what it does before is looked at when it runs."""
        if self.version < EARLY_FROM:
            raise DeviceError("no launch of this driver's graphs starts early", {"version": self.version})
        if not self.waits(function):
            name = self.name(function)
            raise EmulatedFault("early start", "a kernel that is started early does not wait", kernel=name)

    def _handles(self, numbers: Sequence[int]) -> Iterator[int]:
        """The conditions of a graph with these nodes."""
        for number in numbers:
            if number in self._bodies:
                yield number
                yield from self._handles(self._bodies[number][0].nodes)

    def set_arguments(self, graph: int, node: int, function: int, parameters: int) -> None:
        """Give a kernel of a graph the arguments that these words hold now."""
        known = self._graphs[graph].node(node)
        if not isinstance(known, KernelNode) or known.function != function:
            raise ArgumentError("a graph's node is not a launch of this kernel", facts={"node": node})
        self.counts["node updates"] += 1
        self._node_arguments[node] = self.arguments(function, parameters)

    def launch_graph(self, graph: Graph, stream: int) -> None:
        """Run a graph."""
        self.run_graph(graph.number, stream)

    def run_graph(self, number: int, stream: int) -> None:
        """Run all nodes of a graph, in an order that its edges allow.

        Raises:
            EmulatedFault: a node failed, or an edge is missing.
        """
        with self._lock:
            self.counts["graph launches"] += 1
            self.streams.clock(stream)
            self._launches += 1
            self._chance = None if self._seed is None else np.random.default_rng(self._seed + self._launches)
            watched = self.streams.is_watching
            graph = self._graphs[number]
            self._conditions = dict.fromkeys(self._handles(graph.numbers), 0)
            try:
                touched = graph.run(self._run_node, self._node_name, self._chance, watched)
            finally:
                self._conditions = {}
            self.streams.did(stream, f"graph {number}", touched)

    def _run_node(self, number: int, node: GraphNode, footprint: Footprint | None) -> None:
        if isinstance(node, KernelNode):
            arguments = self._node_arguments[number]
            how = node.is_cooperative
            extents = node.blocks, (node.threads, 1, 1)
            self._run(node.function, *extents, arguments, node.shared_bytes, footprint, is_cooperative=how)
            return
        if isinstance(node, ConditionalNode):
            self._run_body(number, node, footprint)
            return
        if footprint is not None:
            footprint.add_range(node.target, node.size_bytes, True)
        if isinstance(node, FillNode):
            self.memory.fill(node.target, 0, node.size_bytes)
            return
        if footprint is not None:
            footprint.add_range(node.source, node.size_bytes, False)
        self._copy(node)

    def _run_body(self, number: int, node: ConditionalNode, footprint: Footprint | None) -> None:
        """Run the body of a node as long as its condition is set, or once."""
        turns = 0
        while self._conditions[number] and (node.repeats or not turns):
            if turns == self.most_turns:
                raise EmulatedFault("endless body", f"a graph's body has run {turns} times, and is to go on")
            graph = self._bodies[number][1]
            touched = graph.run(self._run_node, self._node_name, self._chance, footprint is not None)
            if footprint is not None:
                footprint.join(touched)
            turns += 1

    def _copy(self, node: CopyNode) -> None:
        to_device, of_device = self.memory.holds(node.target), self.memory.holds(node.source)
        if to_device and of_device:
            self.memory.copy_within(node.target, node.source, node.size_bytes)
        elif to_device:
            self.memory.copy_in(node.target, node.source, node.size_bytes)
        elif of_device:
            self.memory.copy_out(node.target, node.source, node.size_bytes)
        else:
            raise EmulatedFault("out of bounds", "a copy between two places of the host", address=node.target)

    def _node_name(self, node: GraphNode) -> str:
        if isinstance(node, KernelNode):
            return self.name(node.function)
        if isinstance(node, ConditionalNode):
            return "loop" if node.repeats else "branch"
        return "copy" if isinstance(node, CopyNode) else "fill"

    def destroy_graph(self, graph: Graph) -> None:
        """Forget a graph."""
        del self._graphs[graph.number]
        self._forget(graph.nodes)

    def _forget(self, nodes: Sequence[int]) -> None:
        for node in nodes:
            self._node_arguments.pop(node, None)
            if node in self._bodies:
                self._forget(self._bodies.pop(node)[0].nodes)
