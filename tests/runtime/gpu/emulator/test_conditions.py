"""Conditions of graphs: bodies run as often as kernels say, and what hardware would not forgive is found."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np
import pytest

from autojit.core.errors import DeviceError
from autojit.runtime.gpu.driver import ConditionalNode, KernelNode
from autojit.runtime.gpu.emulator.driver import EmulatedDriver
from autojit.runtime.gpu.emulator.findings import EmulatedFault
from tests.runtime.gpu.emulator.emulation import MIB, ORDERS, Words, entry

BOTH = ".param .u64 p0, .param .u64 p1"
DECLARED = ".extern .func cudaGraphSetConditional (.param .b64 a, .param .b32 b) ;"
# one thread: a word less 1 if it counts down, and whether it is above 0 to the condition
DECIDE = """
    mov.u32 %r1, %tid.x; setp.ne.s32 %p1, %r1, 0; @%p1 bra DONE;
    ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1];
    ld.global.b32 %r2, [%rd1]; sub.s32 %r2, %r2, LESS; st.global.b32 [%rd1], %r2;
    setp.gt.s32 %p2, %r2, 0; selp.b32 %r3, 1, 0, %p2;
    { .param .b64 a; .param .b32 b; st.param.b64 [a], %rd2; st.param.b32 [b], %r3;
    call.uni cudaGraphSetConditional, (a, b); }
DONE:
"""


class Counting:
    """A word on the device, kernels that set a condition by it, and one that adds 1 to a second word."""

    def __init__(self, driver: EmulatedDriver) -> None:
        self.driver = driver
        self.words = driver.allocate(8)
        self.kept: list[Words] = []
        texts = [DECIDE.replace("LESS", "0"), DECIDE.replace("LESS", "1")]
        self.look, self.count_down = (self.function(entry(text, BOTH, DECLARED)) for text in texts)
        add = "ld.param.u64 %rd1, [p0]; ld.global.b32 %r1, [%rd1+4]; add.u32 %r1, %r1, 1; st.global.b32 [%rd1+4], %r1;"
        self.add = self.function(entry(add))

    def function(self, ptx: str) -> int:
        return self.driver.function(self.driver.load(self.driver.assemble(ptx, "sm_90")), "kernel")

    def node(self, function: int, *after: int, handle: int = 0) -> KernelNode:
        self.kept.append(Words(self.words, handle))
        return KernelNode(function, (1, 1, 1), 1 if function == self.add else 32, self.kept[-1].address, after)

    def handle(self, number: int) -> int:
        """Where the handle is that a node's kernel is passed."""
        return ctypes.c_uint64.from_address(self.kept[number].address + 8).value

    def loop(self, *, repeats: bool, ends: bool = True) -> list[KernelNode | ConditionalNode]:
        front, add = self.node(self.look), self.node(self.add)
        again = self.node(self.count_down if ends else self.look, 0)
        handles = self.handle(0), *([self.handle(2)] if repeats else [])
        return [front, ConditionalNode((add, again) if repeats else (add,), repeats, handles, (0,))]

    def run(self, nodes: list[KernelNode | ConditionalNode], start: int) -> int:
        """How often the second word was added to."""
        self.driver.write(self.words, np.array([start, 0], "i4"))
        graph = self.driver.make_graph(nodes)
        try:
            for _ in range(2):
                self.driver.launch_graph(graph, 0)
        finally:
            self.driver.destroy_graph(graph)
        return int(self.driver.read(self.words, "i4", (2,))[1])


@pytest.fixture(params=ORDERS)
def counting(request: pytest.FixtureRequest) -> Iterator[Counting]:
    made = EmulatedDriver(order=request.param, memory_bytes=MIB, pinned_bytes=MIB)
    yield Counting(made)
    made.close()


@pytest.mark.parametrize("start", [0, 1, 7])
def test_a_body_runs_until_its_condition_is_not_set(counting: Counting, start: int) -> None:
    assert counting.run(counting.loop(repeats=True), start) == start


@pytest.mark.parametrize("start", [0, 1, 7])
def test_a_branch_runs_once_or_not_at_every_launch(counting: Counting, start: int) -> None:
    assert counting.run(counting.loop(repeats=False), start) == (2 if start else 0)


def test_a_body_without_end_is_found(counting: Counting) -> None:
    counting.driver.most_turns = 20
    with pytest.raises(EmulatedFault, match="endless body") as caught:
        counting.run(counting.loop(repeats=True, ends=False), 3)
    assert "20 times" in str(caught.value)


def test_a_handle_of_another_graph_is_found(counting: Counting) -> None:
    other = counting.driver.make_graph(counting.loop(repeats=True))
    nodes = [node for node in counting.loop(repeats=True) if isinstance(node, KernelNode)]  # sets what no node has
    ctypes.c_uint64.from_address(counting.handle(3)).value = other.nodes[1]
    with pytest.raises(EmulatedFault, match="wrong handle"):
        counting.run(list(nodes), 1)
    with pytest.raises(EmulatedFault, match="wrong handle"):  # and outside of graphs
        counting.driver.launch(counting.look, (1, 1, 1), 32, counting.kept[3].address, 0)


def test_an_edge_that_is_missing_beside_a_body_is_found(counting: Counting) -> None:
    nodes = [*counting.loop(repeats=True), counting.node(counting.add, 0)]  # touches what the body adds to
    with pytest.raises(EmulatedFault, match="missing edge"):
        counting.run(nodes, 2)


def test_an_older_driver_has_no_conditions() -> None:
    driver = EmulatedDriver(memory_bytes=MIB, pinned_bytes=MIB, version=12030)
    try:
        with pytest.raises(DeviceError, match="no conditions"):
            driver.make_graph(Counting(driver).loop(repeats=True))
    finally:
        driver.close()
