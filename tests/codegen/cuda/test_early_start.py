"""Kernels that start early: what each does before it waits, when it lets others start, and what graphs say of it."""

from __future__ import annotations

import ctypes
import re

import pytest

from autojit.codegen.cuda.early_reads import parted
from autojit.codegen.cuda.early_start import LET_START, WAIT, Start, with_early_start
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


TOUCHES = ("ld.global", "st.", "atom", "red", "cp.async", "bar", "mma", "ldmatrix", "call")


def _texts() -> list[str]:
    return [module_text(k) for graph in graphs_of_steps("mlp_sgd") for k in kernels_of(graph, TARGET)]


def test_kernels_of_which_nothing_is_known_touch_no_memory_before_they_wait() -> None:
    texts = _texts()
    for ptx in ptx_of(texts, "sm_90"):
        said = _instructions(ptx)
        before = said[: said.index(WAIT)]
        assert not any(line.startswith(TOUCHES) for line in before)
        ends = [number for number, line in enumerate(said) if line == "ret"]
        assert ends and all(said[number - 1] == LET_START for number in ends)
        if any("bra" in line for line in before):  # who leaves there has not waited
            assert all(said[number - 2] == WAIT for number in ends)
    assert all(WAIT not in ptx for ptx in ptx_of(texts[:2], "sm_80"))


def test_what_is_settled_is_read_before_the_wait_and_nothing_else_changes() -> None:
    """Whatever is settled: the same instructions, each behind what it needs, and nothing written before the wait."""
    moved, texts, start = 0, _texts(), Start(tuple(range(40)), lets_early=True)
    ptx = ptx_of([*texts, *(f"{start.line()}\n{text}" for text in texts)], "sm_90")
    for plain, said in zip(map(_instructions, ptx), map(_instructions, ptx[len(texts) :]), strict=False):
        control = (WAIT, LET_START)
        own = [re.sub(r"ld\.global\.(nc|cg)?", "ld.global.", line) for line in said if line not in control]
        assert sorted(own) == sorted(
            re.sub(r"ld\.global\.(nc|cg)?", "ld.global.", line) for line in plain if line not in control
        )
        before = said[: said.index(WAIT)]
        assert said[len(before) + 1] == LET_START and said.count(LET_START) == 1
        assert not any(line.startswith(("st.", "atom", "red", "bar")) for line in before)
        known: set[str] = set()
        for line in before:
            target, *sources = re.findall(r"%[a-z]+\d+", line.replace("@", " ")) or [""]
            if line.startswith(("cp.async", "@")):
                sources = [target, *sources]
            elif "{" not in line:
                known.add(target)
            else:
                known.update([target, *sources])
                continue
            assert known.issuperset(sources), line
        moved += any(line.startswith(("ld.global", "cp.async")) for line in before)
    assert moved > 3


BODY = """\tld.param.b64 \t%rd1, [kernel_param_0];
\tld.param.b64 \t%rd2, [kernel_param_1];
\tld.global.b64 \t%rd3, [%rd2];
\tsetp.ne.b64 \t%p1, %rd3, 0;
\t@%p1 bra \t$L_end;
\tadd.s64 \t%rd4, %rd1, 16;
\tld.global.nc.b32 \t%r1, [%rd4];
\tld.global.nc.b32 \t%r2, [%rd3];
\tst.global.b32 \t[%rd1], %r1;
$L_end:
\tret;
"""


@pytest.mark.parametrize(
    ("settled", "before", "leaves"),
    [((), 2, False), ((0,), 2, False), ((1,), 6, True), ((0, 1), 7, True)],
)
def test_a_branch_out_is_passed_where_its_condition_is_known(
    settled: tuple[int, ...], before: int, leaves: bool
) -> None:
    """An address that was read is no parameter's; who leaves before the wait waits at the end."""
    parts = parted(BODY, settled)
    assert (len(parts.before), parts.leaves) == (before, leaves)
    body = with_early_start(f".visible .entry kernel()\n{{\n{BODY}}}\n")
    assert body.count(WAIT) == 1


def test_carries_and_registers_that_loops_write_again_end_the_stretch() -> None:
    for last in ("add.cc.s32 \t%r3, %r1, %r2;", "mov.b32 \t%r1, 0;", "shfl.sync.bfly.b32 \t%r4, %r1, 1, 31, -1;"):
        parts = parted(f"\tmov.b32 \t%r1, 1;\n\tmov.b32 \t%r2, 2;\n\t{last}\n\tret;\n", ())
        assert len(parts.before) == 2 and parts.rest.startswith(f"\t{last}")


def test_a_module_without_a_kernel_is_refused() -> None:
    with pytest.raises(ValueError, match="without a kernel"):
        with_early_start(".version 7.8\n.target sm_90\n")


def test_the_emulated_device_finds_kernels_that_do_not_wait() -> None:
    driver = EmulatedDriver(memory_bytes=MIB, pinned_bytes=MIB)
    number = driver.function(driver.load(driver.assemble(entry("", ".param .u64 p0"), "sm_90")), "kernel")
    words = (ctypes.c_uint64 * 2)()
    words[0] = ctypes.addressof(words) + 8
    node = KernelNode(number, (1, 1, 1), 32, ctypes.addressof(words), starts_early=True)
    with pytest.raises(EmulatedFault, match="does not wait"):
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
