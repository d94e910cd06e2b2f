"""Kernels that start early: each waits first, lets others start last, and a graph says which do."""

from __future__ import annotations

import ctypes

import pytest

from autojit.codegen.cuda.early_start import LET_START, WAIT, with_early_start
from autojit.codegen.cuda.target import CudaTarget
from autojit.core.errors import DeviceError
from autojit.runtime.gpu.driver import KernelNode
from autojit.runtime.gpu.emulator.driver import EmulatedDriver
from autojit.runtime.gpu.emulator.findings import EmulatedFault
from autojit.runtime.gpu.libcuda import LibCuda
from tests.codegen.cuda.kernel_texts import graphs_of_steps, kernels_of, module_text
from tests.ptxas import assemble, needs_ptxas, ptx_of
from tests.runtime.gpu.emulator.emulation import MIB, entry
from tests.runtime.gpu.fake_library import FakeLibrary

TARGET = CudaTarget("sm_90", 132)


def _instructions(ptx: str) -> list[str]:
    body = ptx.partition(".visible .entry")[2].partition("\n{\n")[2].partition("\n}")[0]
    lines = [line.strip() for line in body.splitlines()]
    return [line.rstrip(";") for line in lines if line and not line.startswith((".", "//", "$"))]


def test_every_kernel_waits_first_and_lets_others_start_wherever_it_ends() -> None:
    texts = [module_text(k) for graph in graphs_of_steps("mlp_sgd") for k in kernels_of(graph, TARGET)]
    for ptx in ptx_of(texts, "sm_90"):
        said = _instructions(ptx)
        assert said[0] == WAIT and said.count(WAIT) == 1
        ends = [number for number, line in enumerate(said) if line == "ret"]
        assert ends and all(said[number - 1] == LET_START for number in ends)
    assert all(WAIT not in ptx for ptx in ptx_of(texts[:2], "sm_80"))


def test_a_module_without_a_kernel_is_refused() -> None:
    with pytest.raises(ValueError, match="without a kernel"):
        with_early_start(".version 7.8\n.target sm_90\n")


def test_the_emulated_device_finds_kernels_that_do_not_wait() -> None:
    driver = EmulatedDriver(memory_bytes=MIB, pinned_bytes=MIB)
    number = driver.function(driver.load(driver.assemble(entry("", ".param .u64 p0"), "sm_90")), "kernel")
    words = (ctypes.c_uint64 * 2)()
    words[0] = ctypes.addressof(words) + 8
    node = KernelNode(number, (1, 1, 1), 32, ctypes.addressof(words), starts_early=True)
    with pytest.raises(EmulatedFault, match="does not wait first"):
        driver.make_graph([node])
    driver.close()
    old = EmulatedDriver(memory_bytes=MIB, pinned_bytes=MIB, version=12020)
    with pytest.raises(DeviceError, match="no launch of this driver"):
        old.make_graph([node])
    old.close()


def test_edges_say_which_launches_start_early() -> None:
    """Of a launch whose blocks all run at once nothing is known before it has ended."""
    library = FakeLibrary()
    driver = LibCuda(library)
    early = KernelNode(5, (2, 1, 1), 64, 0, (0,), starts_early=True)
    meeting = KernelNode(6, (2, 1, 1), 64, 0, (1,), is_cooperative=True, starts_early=True)
    behind = KernelNode(7, (2, 1, 1), 64, 0, (1, 2), starts_early=True)
    graph = driver.make_graph([KernelNode(4, (2, 1, 1), 64, 0), early, meeting, behind])
    first, second, third, last = graph.nodes
    assert library.early == [(first, second), (second, last)]
    assert [library.nodes[n][1] for n in graph.nodes] == [(), (), (second,), (third,)]


@needs_ptxas
def test_they_assemble() -> None:
    texts = [module_text(k) for graph in graphs_of_steps("mlp_sgd") for k in kernels_of(graph, TARGET)][:4]
    assert len(assemble(ptx_of(texts, "sm_90"), "sm_90")) == len(texts)
