"""Every kernel that ops and steps become compiles, and assembles without spills, for four generations of GPUs."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from math import prod

import pytest

from autojit.codegen.cuda.copies import copy_kernel, fill_kernel
from autojit.codegen.cuda.entry_point import Part, entry_text
from autojit.codegen.cuda.joined_entry import joined_text, shared_bytes
from autojit.codegen.cuda.joined_plan import JoinedGrid, PartFacts, plan_launches
from autojit.codegen.cuda.prologue import prologue_text
from autojit.codegen.cuda.report import report_kernel
from autojit.codegen.cuda.target import CudaTarget
from autojit.codegen.grid_text import GridText
from autojit.ir import Graph
from tests.codegen.cuda.kernel_texts import (
    WIDE,
    graphs_of_long_lines,
    graphs_of_ops,
    graphs_of_steps,
    kernels_of,
    module_text,
)
from tests.ptxas import ARCHITECTURES, Share, assemble, needs_ptxas, ptx_of, shares

PROGRAMS = ("mlp_adam", "softmax_layernorm", "embedding_bag", "pinn_f32", "black_scholes", "gpt")
REGISTERS = 65536  # of a multiprocessor, and the most that the threads of a block may have together
SHARED_BYTES = 48 * 1024  # that a block has without asking


@pytest.fixture(scope="module")
def steps() -> list[Graph]:
    return list(graphs_of_steps(*PROGRAMS))


@pytest.fixture(scope="module")
def graphs(steps: list[Graph]) -> list[Graph]:
    return [*graphs_of_ops(), *graphs_of_long_lines(), *steps]


def texts_for(graphs: Sequence[Graph], architecture: str) -> dict[str, GridText]:
    target = CudaTarget(architecture, 132)
    return {module_text(kernel): kernel for graph in graphs for kernel in kernels_of(graph, target)}


@needs_ptxas
@shares()
def test_kernels_assemble_without_spills(graphs: list[Graph], share: Share) -> None:
    architecture = share.architecture
    texts = texts_for(share.of(graphs), architecture)
    assert len(texts) > 30
    ptx = ptx_of(list(texts), architecture)
    assert not any(".extern .func" in text for text in ptx), "nothing links a library of functions"
    for text, (module, kernel), found in zip(ptx, texts.items(), assemble(ptx, architecture), strict=True):
        assert found.spilled_bytes == 0, text
        assert found.registers * kernel.threads <= REGISTERS, module
        assert found.shared_bytes <= SHARED_BYTES, module


def joined_texts(graph: Graph, target: CudaTarget) -> list[tuple[str, JoinedGrid]]:
    """Launches that a graph's kernels share if each waits for the one before."""
    kernels = list(kernels_of(graph, target))
    facts = [PartFacts(k.threads, prod(k.blocks), shared_bytes(k), (None,) * len(k.buffers)) for k in kernels]
    after = [(k - 1,) if k else () for k in range(len(kernels))]
    found = []
    for grid in plan_launches(facts, after, target.processors):
        parts = [kernels[part.number] for part in grid.parts]
        placed = tuple(dataclasses.replace(part, number=k) for k, part in enumerate(grid.parts))
        wide = [[max(WIDE, buffer.element_bytes) for buffer in k.buffers] for k in parts]
        entries = [Part(k, sizes, {}, False, (None,) * 99) for k, sizes in zip(parts, wide, strict=True)]
        if not grid.is_alone:
            found.append((joined_text(dataclasses.replace(grid, parts=placed), entries), grid))
    return found


@needs_ptxas
@shares()
def test_launches_of_several_kernels_assemble_without_spills(steps: list[Graph], share: Share) -> None:
    architecture = share.architecture
    target = CudaTarget(architecture, 132)
    found = share.of([each for graph in steps for each in joined_texts(graph, target)])
    assert found and all(grid.meets or grid.blocks == 1 for _, grid in found)
    ptx = ptx_of([text for text, _ in found], architecture)
    for (text, grid), made in zip(found, assemble(ptx, architecture), strict=True):
        assert made.spilled_bytes == 0, text
        assert made.registers <= (grid.most_registers or REGISTERS // grid.threads), text
        assert made.shared_bytes <= SHARED_BYTES, text


@needs_ptxas
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_of_the_runtime_assemble(architecture: str) -> None:
    widths = (1, 2, 4, 8, 16)
    kernels = [report_kernel(), *(f(5 * w, w) for w in widths for f in (copy_kernel, fill_kernel))]
    texts = [entry_text(k, [b.element_bytes for b in k.buffers], {}, guarded=not k.tells) for k in kernels]
    texts += [prologue_text(words) for words in (4, 480)]
    assert not any(found.spilled_bytes for found in assemble(ptx_of(texts, architecture), architecture))


def global_bytes(ptx: str) -> tuple[int, int]:
    """Bytes of the global accesses of a text, and of those that are 16 at once."""
    whole = wide = 0
    for vector, bits in re.findall(r"(?:ld|st)\.global(?:\.nc)?(?:\.v(\d))?\.[bfsu](\d+)", ptx):
        size = int(vector or 1) * int(bits) // 8
        whole += size
        wide += size if size == 16 else 0
    return whole, wide


OF_ROWS = 24
"""Bytes that a row has once, whatever its length: its label, whether that counts, its loss."""


@pytest.mark.parametrize("workload", ["softmax_layernorm", "black_scholes"])
def test_large_kernels_access_memory_in_pieces_of_16_bytes(workload: str) -> None:
    target = CudaTarget("sm_90", 132)
    kernels = [k for graph in graphs_of_steps(f"workload {workload}") for k in kernels_of(graph, target)]
    texts = ptx_of([module_text(kernel) for kernel in kernels], "sm_90")
    largest = max(texts, key=len)
    whole, wide = global_bytes(largest)
    assert wide >= 0.9 * (whole - OF_ROWS), (wide, whole, largest)
