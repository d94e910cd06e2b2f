"""Graphs run in every order that their edges allow, and where an edge is missing the two nodes are named."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from autojit.core.errors import ArgumentError
from autojit.runtime.gpu.driver import CopyNode, FillNode, GraphNode, KernelNode
from autojit.runtime.gpu.emulator.driver import EmulatedDriver
from autojit.runtime.gpu.emulator.findings import EmulatedFault
from autojit.runtime.gpu.emulator.memory import EmulatedMemory
from tests.runtime.gpu.emulator.emulation import MIB, ORDERS, Words, entry

TWO = ".param .u64 p0, .param .u64 p1"
ADD = """
    mov.u32 %r1, %tid.x; mul.wide.u32 %rd1, %r1, 4; ld.param.u64 %rd2, [p0]; ld.param.u64 %rd3, [p1];
    add.s64 %rd4, %rd2, %rd1; add.s64 %rd5, %rd3, %rd1;
    ld.global.b32 %r2, [%rd4]; add.u32 %r2, %r2, 1; st.global.b32 [%rd5], %r2;
"""


@pytest.fixture(params=ORDERS)
def driver(request: pytest.FixtureRequest) -> Iterator[EmulatedDriver]:
    made = EmulatedDriver(order=request.param, memory_bytes=MIB, pinned_bytes=MIB)
    yield made
    made.close()


class Chain:
    """Buffers of 32 words, and a kernel that makes one from another."""

    def __init__(self, driver: EmulatedDriver, buffers: int) -> None:
        self.driver = driver
        self.buffers = [driver.allocate(128) for _ in range(buffers)]
        self.function = driver.function(driver.load(driver.assemble(entry(ADD, TWO), "sm_90")), "kernel")
        self.kept: list[Words] = []

    def node(self, source: int, target: int, *after: int) -> KernelNode:
        self.kept.append(Words(self.buffers[source], self.buffers[target]))
        return KernelNode(self.function, (1, 1, 1), 32, self.kept[-1].address, after)

    def run(self, *nodes: GraphNode, start: int = 0) -> None:
        self.driver.write(self.buffers[0], np.full(32, start, "u4"))
        graph = self.driver.make_graph(nodes)
        self.driver.launch_graph(graph, 0)
        self.driver.destroy_graph(graph)

    def value(self, buffer: int) -> int:
        (found,) = set(self.driver.read(self.buffers[buffer], "u4", (32,)).tolist())
        return found


def test_nodes_run_behind_those_that_they_name(driver: EmulatedDriver) -> None:
    chain = Chain(driver, 6)
    nodes = [chain.node(k, k + 1, *([k - 1] if k else [])) for k in range(5)]
    chain.run(*nodes, start=10)
    assert chain.value(5) == 15


def test_nodes_that_share_nothing_need_no_edge(driver: EmulatedDriver) -> None:
    chain = Chain(driver, 5)
    fork = [chain.node(0, 1), chain.node(0, 2), chain.node(1, 3, 0), chain.node(2, 4, 1)]
    for _ in range(5):
        chain.run(*fork, start=1)
        assert (chain.value(3), chain.value(4)) == (3, 3)


@pytest.mark.parametrize("left_out", range(3))
def test_a_missing_edge_is_found_in_every_order(driver: EmulatedDriver, left_out: int) -> None:
    chain = Chain(driver, 4)
    for buffer in (1, 2, 3):
        driver.write(chain.buffers[buffer], np.zeros(32, "u4"))
    # written and then read; read and then written; written twice
    pairs = [((0, 1), (1, 2)), ((0, 1), (2, 0)), ((0, 1), (2, 1))][left_out]
    with pytest.raises(EmulatedFault) as caught:
        chain.run(chain.node(*pairs[0]), chain.node(*pairs[1]))
    fault = caught.value
    assert fault.kind == "missing edge" and fault.kernel == "kernel"
    assert "nodes 0 (kernel) and 1 (kernel)" in str(fault) or "nodes 1 (kernel) and 0 (kernel)" in str(fault)
    assert fault.address is not None
    chain.run(chain.node(*pairs[0]), chain.node(*pairs[1], 0))


def test_a_path_of_edges_is_as_good_as_an_edge(driver: EmulatedDriver) -> None:
    chain = Chain(driver, 4)
    chain.run(chain.node(0, 1), chain.node(1, 2, 0), chain.node(2, 3, 1), chain.node(3, 1, 2), chain.node(1, 2, 3))
    assert chain.value(2) == 5


def test_copies_and_fills_need_edges_too(driver: EmulatedDriver) -> None:
    chain = Chain(driver, 3)
    pinned = driver.allocate_pinned(128)
    a, b, c = chain.buffers
    right: list[GraphNode] = [
        FillNode(a, 128),
        chain.node(0, 1, 0),
        CopyNode(c, b, 128, (1,)),
        CopyNode(pinned, c, 128, (2,)),
    ]
    chain.run(*right, start=9)
    np.testing.assert_array_equal(driver.read(pinned, "u4", (32,)), 1)
    for node, wrong in itertools.product((1, 2, 3), [()]):
        broken = list(right)
        each = broken[node]
        if isinstance(each, KernelNode):
            broken[node] = KernelNode(each.function, each.blocks, each.threads, each.parameters, wrong)
        elif isinstance(each, CopyNode):
            broken[node] = CopyNode(each.target, each.source, each.size_bytes, wrong)
        with pytest.raises(EmulatedFault, match="missing edge"):
            chain.run(*broken)


def test_arguments_are_those_of_the_instantiation_until_they_are_set(driver: EmulatedDriver) -> None:
    chain = Chain(driver, 3)
    first, second = Words(chain.buffers[0], chain.buffers[1]), Words(chain.buffers[0], chain.buffers[2])
    driver.write(chain.buffers[0], np.zeros(32, "u4"))
    graph = driver.make_graph([KernelNode(chain.function, (1, 1, 1), 32, first.address)])
    for buffer in (1, 2):
        driver.write(chain.buffers[buffer], np.zeros(32, "u4"))
    driver.launch_graph(graph, 0)
    assert (chain.value(1), chain.value(2)) == (1, 0)
    driver.set_arguments(graph.number, graph.nodes[0], chain.function, second.address)
    driver.launch_graph(graph, 0)
    assert (chain.value(1), chain.value(2)) == (1, 1)
    assert driver.counts["instantiations"] == 1
    assert driver.counts["node updates"] == 1
    assert driver.counts["graph launches"] == 2
    assert driver.counts["launches"] == 0


def test_edges_point_back(driver: EmulatedDriver) -> None:
    for after in ((0,), (1,), (-1,)):
        with pytest.raises(ArgumentError):
            driver.make_graph([FillNode(driver.allocate(8), 8, after)])


def test_orders_with_a_seed_differ_from_launch_to_launch_and_not_from_run_to_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    filled: list[int] = []
    monkeypatch.setattr(EmulatedMemory, "fill", lambda self, target, byte, size: filled.append(target))
    found = []
    for _ in range(2):
        driver = EmulatedDriver(order=3, memory_bytes=MIB, pinned_bytes=MIB)
        addresses = [driver.allocate(4) for _ in range(6)]
        graph = driver.make_graph([FillNode(address, 4) for address in addresses])
        filled.clear()
        for _ in range(3):
            driver.launch_graph(graph, 0)
        found.append([addresses.index(target) for target in filled])
        driver.close()
    assert found[0] == found[1]
    assert len({tuple(found[0][k : k + 6]) for k in (0, 6, 12)}) > 1
