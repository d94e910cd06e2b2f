"""What LLVM and NVIDIA's assembler make of grids: accesses of 128 bits, no spills, every architecture.

Facts, not texts: a text may change whenever they hold.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache

import pytest

from autojit.codegen.cuda.entry_point import entry_text
from autojit.codegen.cuda.grid_function import MOST_REGISTERS
from autojit.codegen.cuda.grid_loops import print_grid
from autojit.codegen.cuda.machine import CUDA_MACHINE
from autojit.codegen.cuda.target import CudaTarget
from autojit.ir import parse_graph
from autojit.passes.pipeline import optimize
from autojit.schedule.kernels import LoopKernel
from autojit.schedule.loops import LoopProgram
from autojit.schedule.scheduler import schedule
from tests.codegen.cuda.grids import LARGE, launches, loop_kernels
from tests.codegen.cuda.test_grid_forms import softmax
from tests.codegen.cuda.test_op_samples import PARTS, samples
from tests.ptxas import ARCHITECTURES, assemble, needs_ptxas, ptx_of

NORMALISED = (
    "m0: f32[8192] = sum[axes=(1,)](y); m1: f32[8192, 1] = reshape[shape=(8192, 1)](m0); "
    "m: f32[8192, 1024] = broadcast_to[shape=(8192, 1024)](m1); d: f32[8192, 1024] = sub(y, m); "
    "q: f32[8192, 1024] = square(d); v0: f32[8192] = sum[axes=(1,)](q); v1: f32[8192] = rsqrt(v0); "
    "v2: f32[8192, 1] = reshape[shape=(8192, 1)](v1); v: f32[8192, 1024] = broadcast_to[shape=(8192, 1024)](v2); "
    "n: f32[8192, 1024] = mul(d, v);"
)
MODELS = {
    "softmax and layer norm": f"(x: f32[8192, 1024]) {{ {softmax(8192, 1024)} {NORMALISED} return y, n }}",
    "chain": "(x: f32[8192, 1024], w: f32[8192, 1024]) { a: f32[8192, 1024] = mul(x, w); "
    "b: f32[8192, 1024] = tanh(a); c: f32[8192, 1024] = sin(b); d: f32[8192, 1024] = add(c, x); return d, b }",
    "column sums": "(x: f32[8192, 1024]) { y: f32[8192, 1024] = square(x); s: f32[1024] = sum[axes=(0,)](y); "
    "return s }",
    "turned": "(x: f32[8192, 1024]) { t: f32[1024, 8192] = permute[axes=(1, 0)](x); y: f32[1024, 8192] = exp(t); "
    "return y }",
}


def program_of(text: str) -> LoopProgram:
    kernels = loop_kernels(schedule(optimize(parse_graph(text), CUDA_MACHINE), CUDA_MACHINE))
    assert kernels and len(kernels) == 1
    return kernels[0].program


def entries(program: LoopProgram, target: CudaTarget = LARGE) -> list[str]:
    """The texts of a program's kernel and of what combines its partial results."""
    return [entry_text(k, [256] * len(k.buffers), {}) for k in launches(print_grid(program, target))]


PIECES = [f"x{k}" for k in range(12)]
MODELS["pieces"] = (
    f"({', '.join(f'{name}: f32[64, 512]' for name in PIECES)}) "
    f"{{ c: f32[768, 512] = concatenate[axis=0]({', '.join(PIECES)}); y: f32[768, 512] = exp(c); return y }}"
)
UPDATE = (
    "(p: f32[1048576], g: f32[1048576], m: f32[1048576]) { k: f32[1048576] = add(m, g); q: f32[1048576] = sub(p, k); "
    "return q, k }"
)


@cache
def model_ptx(architecture: str) -> dict[str, list[str]]:
    """The models' kernels, all compiled in one child; that of ``chain`` again with buffers that move; an update."""
    target = CudaTarget(architecture, 132)
    texts = {name: entries(program_of(text), target) for name, text in MODELS.items()}
    grid = print_grid(program_of(MODELS["chain"]), target)
    texts["moving chain"] = [entry_text(grid, [256] * len(grid.buffers), {0: False, 2: True})]
    (update,) = schedule(optimize(parse_graph(UPDATE), CUDA_MACHINE), CUDA_MACHINE, {0: 0, 1: 2}).kernels
    assert isinstance(update, LoopKernel) and update.program.in_place
    texts["update"] = entries(update.program, target)
    found = iter(ptx_of([text for each in texts.values() for text in each], architecture))
    return {name: [next(found) for _ in each] for name, each in texts.items()}


def accesses(ptx: str) -> Counter[str]:
    """How often each kind of access to global memory stands in a text."""
    return Counter(re.findall(r"\b((?:ld|st)\.global[.\w]*)", ptx))


def test_rows_are_read_and_written_once_in_wide_accesses() -> None:
    """16 elements of a row in each lane: four vectors of four in, four out for each of the two results."""
    (ptx,) = model_ptx("sm_90")["softmax and layer norm"]
    assert accesses(ptx) == {"ld.global.nc.v4.b32": 4, "st.global.v4.b32": 8}
    assert ".local" not in ptx


def test_a_chain_of_functions_reads_and_writes_wide() -> None:
    (ptx,) = model_ptx("sm_90")["chain"]
    assert set(accesses(ptx)) == {"ld.global.nc.v4.b32", "st.global.v4.b32"}


def test_buffers_that_move_are_accessed_alike() -> None:
    """Their addresses come out of the table, 64 bits each."""
    (ptx,) = model_ptx("sm_90")["moving chain"]
    moved, plain = accesses(ptx), accesses(model_ptx("sm_90")["chain"][0])
    assert moved["ld.global.nc.b64"] == 2
    wide = {kind: count for kind, count in moved.items() if ".v4" in kind}
    assert sum(wide.values()) == sum(plain.values()) == sum(moved.values()) - 2


def test_what_is_updated_in_place_is_read_before_it_is_written_in_wide_accesses() -> None:
    (ptx,) = model_ptx("sm_90")["update"]
    found = re.findall(r"\b((?:ld|st)\.global[.\w]*)", ptx)
    assert set(found) == {"ld.global.v4.b32", "st.global.v4.b32"}
    assert found == sorted(found), "loads come first"


def test_a_vector_asks_once_which_piece_it_is_in() -> None:
    """One address is chosen among twelve; no piece has a branch."""
    (ptx,) = model_ptx("sm_90")["pieces"]
    found = accesses(ptx)
    assert sum(count for kind, count in found.items() if kind.startswith("ld")) <= 4
    assert found["st.global.v4.b32"] == 1
    assert not re.findall(r"\bbra\b", ptx)


def test_columns_are_summed_several_rows_at_a_time() -> None:
    found = accesses(model_ptx("sm_90")["column sums"][0])
    assert found["ld.global.nc.v4.b32"] >= 4
    assert set(found) == {"ld.global.nc.v4.b32", "st.global.v4.b32"}


def test_indices_are_divided_in_32_bits() -> None:
    for texts in model_ptx("sm_90").values():
        for ptx in texts:
            assert not re.findall(r"\b(?:mul\.hi|div|rem)\.[su]64", ptx)


@needs_ptxas
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_model_kernels_do_not_spill(architecture: str) -> None:
    texts = [ptx for each in model_ptx(architecture).values() for ptx in each]
    for assembled in assemble(texts, architecture):
        assert assembled.spilled_bytes == assembled.stack_bytes == 0
        assert assembled.registers <= 128


@needs_ptxas
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_samples_assemble(architecture: str) -> None:
    found = list(samples(1, values=False))[::16]
    texts = dict.fromkeys(text for _, programs, _ in found for program in programs for text in entries(program))
    assert len(texts) > 15
    assert not any(each.spilled_bytes for each in assemble(ptx_of(list(texts), architecture), architecture))


@pytest.mark.slow
@needs_ptxas
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("part", range(PARTS))
def test_all_samples_assemble(architecture: str, part: int) -> None:
    target = CudaTarget(architecture, 1 + part % 2 * 131)
    texts = dict.fromkeys(
        text for _, programs, _ in samples(part, values=False) for p in programs for text in entries(p, target)
    )
    assert not any(each.spilled_bytes for each in assemble(ptx_of(list(texts), architecture), architecture))


@needs_ptxas
@pytest.mark.parametrize("architecture", ["sm_75", "sm_90"])
def test_a_lane_of_many_places_takes_no_more_registers_than_it_is_told(architecture: str) -> None:
    """An embedding of each of 64 steps: a lane looks up as many positions."""
    steps = [
        f"s{k}: i64[32, 1] = slice[starts=(0, {k}), stops=(32, {k + 1}), steps=(1, 1)](i); "
        f"b{k}: i64[32, 128] = broadcast_to[shape=(32, 128)](s{k}); y{k}: f32[32, 128] = gather[axis=0](x, b{k});"
        for k in range(64)
    ]
    results = ", ".join(f"y{k}" for k in range(64))
    program = program_of(f"(x: f32[65, 128], i: i64[32, 64]) {{ {' '.join(steps)} return {results} }}")
    for made in assemble(ptx_of(entries(program, CudaTarget(architecture, 132)), architecture), architecture):
        assert made.registers <= MOST_REGISTERS and not made.spilled_bytes
