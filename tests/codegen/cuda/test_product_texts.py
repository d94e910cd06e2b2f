"""Texts of products: LLVM selects and ptxas assembles them for every architecture, without spills; what they access."""

from __future__ import annotations

import numpy as np
import pytest

from autojit.codegen.cuda.entry_point import entry_text
from autojit.codegen.cuda.grid_function import MOST_REGISTERS
from autojit.codegen.cuda.product_choice import AS_GOOD, LONGEST_SUM, choose, estimates
from autojit.codegen.cuda.product_tiles import fragment_of, tiles_of
from autojit.codegen.cuda.products import print_product
from autojit.codegen.cuda.structured import print_structured
from autojit.codegen.cuda.target import CudaTarget
from autojit.codegen.grid_text import GridText
from autojit.core.dtypes import DType, bfloat16, float16, float32, float64, int8, int64
from autojit.ops.convolution import Convolution, ConvolutionInput, ConvolutionWeight
from autojit.schedule.kernels import MatmulKernel
from tests.codegen.cuda.product_kernels import View, product, whole
from tests.codegen.cuda.test_epilogues import FUSING, GRAPHS
from tests.codegen.cuda.test_structured import OPS, structured
from tests.ptxas import Share, assemble, needs_ptxas, ptx_of, shares
from tests.schedule.shown import scheduled

DTYPES = (float32, float64, float16, bfloat16, int8, int64)
SHAPES = ((1024, 2048, 512), (1001, 1003, 999), (40, 40, 40))
"""m, n and k: large, of no round size, of a few tiles."""


def _matrix(rows: int, columns: int, dtype: DType, *, is_turned: bool = False) -> View:
    """A matrix of which no memory is needed to describe it."""
    stored = np.empty((columns, rows) if is_turned else (rows, columns), dtype.numpy)
    return View(stored, stored.T if is_turned else stored)


def _texts(target: CudaTarget) -> list[GridText]:
    found = []
    for place, dtype in enumerate(DTYPES):
        for turn, (m, n, k) in enumerate(SHAPES):
            turned_a, turned_b = bool((place + turn) & 1), bool((place + turn) & 2)
            a, b = _matrix(m, k, dtype, is_turned=turned_a), _matrix(k, n, dtype, is_turned=turned_b)
            found.append(print_product(product(a, b, adds=turn == 1), target))
    return found


def _with_epilogues(target: CudaTarget) -> list[GridText]:
    texts = [text.format(m=1000, n=1024, k=512, t=t) for t in ("f32", "bf16") for text, _ in GRAPHS.values()]
    kernels = [kernel for text in texts for kernel in scheduled(text, FUSING).kernels]
    return [print_product(kernel, target) for kernel in kernels if isinstance(kernel, MatmulKernel)]


def _structured(target: CudaTarget) -> list[GridText]:
    """Samples of structured ops, and large convolutions."""
    samples = [sample for cls in OPS for sample in cls.samples(float32)[:1]]
    found = [print_structured(structured(*sample), target) for sample in samples]
    x, w, y = (np.empty(shape, "f4") for shape in ((16, 32, 30, 30), (64, 32, 3, 3), (16, 64, 28, 28)))
    how = (1, 1), (0, 0), (1, 1), 1
    for op, operands in (
        (Convolution(y.shape[2:], *how), (x, w)),
        (ConvolutionInput(x.shape[2:], *how), (y, w)),
        (ConvolutionWeight(w.shape[2:], *how), (x, y)),
    ):
        found.append(print_structured(structured(op, operands), target))
    return [text for text in found if text is not None]


@needs_ptxas
@shares(of_the_oldest=2)
def test_products_assemble_without_spills(share: Share) -> None:
    """Half of them where there are no tensor cores for float32; a third for each of the others, which print alike."""
    architecture = share.architecture
    target = CudaTarget(architecture, 132)
    texts = share.of([*_texts(target), *_with_epilogues(target), *_structured(target)])
    entries = [entry_text(text, [16] * len(text.buffers), {}) for text in texts]
    for assembled in assemble(ptx_of(entries, architecture), architecture):
        assert assembled.spilled_bytes == 0
        assert assembled.registers <= MOST_REGISTERS
        assert assembled.shared_bytes <= 48 * 1024  # what every GPU gives without asking


def _entries(target: CudaTarget, alignment: int) -> list[str]:
    """PTX of large products of three dtypes, whose operands are aligned to this many bytes, or to their elements."""
    entries = []
    for dtype in (float32, float16, float64):
        a, b = _matrix(1024, 1024, dtype), _matrix(1024, 1024, dtype, is_turned=True)
        text = print_product(product(a, b), target)
        entries.append(entry_text(text, [max(alignment, dtype.size_bytes)] * 3, {}))
    return ptx_of(entries, target.cpu)


def test_aligned_operands_are_read_in_wide_accesses() -> None:
    for ptx in _entries(CudaTarget("sm_75", 132), 16):
        loads = [line for line in ptx.splitlines() if "ld.global" in line]
        assert loads and all(".v4" in line or ".v2.b64" in line for line in loads), loads


def test_aligned_operands_are_copied_16_bytes_at_a_time_and_others_by_their_elements() -> None:
    for ptx in _entries(CudaTarget("sm_90", 132), 16):
        copies = [line for line in ptx.splitlines() if "cp.async.c" in line and "group" not in line]
        assert copies and all(", 16" in line for line in copies), copies
        assert "ld.global" not in ptx, "nothing goes through registers"
    for ptx, size in zip(_entries(CudaTarget("sm_90", 132), 1), (4, None, 8), strict=True):
        copies = [line for line in ptx.splitlines() if "cp.async.c" in line and "group" not in line]
        assert all(f", {size};" in line for line in copies)
        assert bool(copies) != ("ld.global" in ptx), "elements of 2 bytes go through registers"


@pytest.mark.parametrize("columns", [1024, 20, 4])
def test_results_and_what_they_meet_are_accessed_in_fours(columns: int) -> None:
    """Also of split sums, and where a kernel may not say that its buffers are apart."""
    target, found = CudaTarget("sm_90", 132), list[str]()
    for text in ("scaled", "kept"):
        for m, k in ((256, 64), (64, 4096)):
            graph = EPILOGUES[text].format(m=m, n=columns, k=k)
            (kernel,) = (kernel for kernel in scheduled(graph, FUSING).kernels if isinstance(kernel, MatmulKernel))
            printed: GridText | None = print_product(kernel, target)
            while printed is not None:
                found.append(entry_text(printed, [16] * len(printed.buffers), {}, guarded=True))
                printed = printed.combine
    for ptx in ptx_of(found, "sm_90"):
        widths = {line.split()[0] for line in ptx.splitlines() if "st.global" in line}
        assert widths == {"st.global.v4.b32"}, widths


EPILOGUES = {
    "scaled": "(x: f32[{m}, {k}], w: f32[{k}, {n}], p: f32[{m}, {n}]) {{ y: f32[{m}, {n}] = matmul(x, w); "
    "a: f32[{m}, {n}] = mul(y, p); return a }}",
    "kept": "(x: f32[{m}, {k}], w: f32[{k}, {n}], p: f32[{m}, {n}], q: f32[{m}, {n}]) {{ "
    "y: f32[{m}, {n}] = matmul(x, w); a: f32[{m}, {n}] = mul(y, p); b: f32[{m}, {n}] = add(a, q); return a, b }}",
}


def test_equal_shapes_share_a_text() -> None:
    one, other = (product(whole(np.zeros((9, 7), "f4")), whole(np.zeros((7, 5), "f4"))) for _ in range(2))
    target = CudaTarget("sm_90", 132)
    assert print_product(one, target) == print_product(other, target)


def test_small_products_take_small_tiles() -> None:
    target = CudaTarget("sm_90", 132)
    tiles = [choose(float32, target, (extent, extent, extent), 1).tile for extent in (8, 64, 512, 4096)]
    assert [tile.rows * tile.columns for tile in tiles] == sorted(tile.rows * tile.columns for tile in tiles)
    assert tiles[0].threads == 32 and tiles[0].depth == 8
    most = max(tile.rows * tile.columns for tile in tiles_of(fragment_of(float32, target, 4096), float32, 4096))
    assert tiles[-1].rows * tiles[-1].columns == most
    many = choose(float32, target, (8, 8, 8), 1000).tile
    assert many == tiles[0], "a batch of small matrices is not computed in tiles that they do not fill"


@pytest.mark.parametrize("dtype", [float32, bfloat16, float64], ids=str)
def test_long_sums_of_few_elements_are_split_until_all_processors_are_busy(dtype: DType) -> None:
    target = CudaTarget("sm_90", 132)
    for m, n, k in ((64, 27, 100_000), (128, 10, 8192), (512, 512, 65536)):
        choice = choose(dtype, target, (m, n, k), 1)
        assert choice.splits > 1 and (choice.splits - 1) * choice.chunk < k <= choice.splits * choice.chunk
        assert choice.chunk % choice.tile.turn_depth == 0
        tiles = -(-m // choice.tile.rows) * -(-n // choice.tile.columns)
        of_accuracy = -(-k // (LONGEST_SUM.get(dtype, k) * choice.tile.slices))
        assert tiles * choice.splits < 2 * target.processors or choice.splits <= max(2, of_accuracy)
    assert choose(dtype, target, (4096, 4096, 4096), 1).splits == 1
    assert choose(dtype, target, (64, 27, 100_000), 1, splits=False).splits == 1


@pytest.mark.parametrize("dtype", [float32, bfloat16], ids=str)
def test_nothing_about_as_fast_leaves_less_in_memory(dtype: DType) -> None:
    generator = np.random.default_rng(5)
    target, found = CudaTarget("sm_90", 132), []
    for m, n, k in (2 ** generator.uniform(4, 13, (40, 3))).astype(int).tolist():
        choice = choose(dtype, target, (m, n, k), 1)
        ways = estimates(dtype, target, (m, n, k), 1)
        cycles = next(cycles for cycles, other in ways if other == choice)
        fastest = min(way[0] for way in ways)
        found.append(choice)
        assert cycles <= AS_GOOD * fastest
        assert all(way[0] > AS_GOOD * fastest for way in ways if way[1].splits < choice.splits)
    assert len({choice.tile.slices for choice in found}) > 1, "the shapes are of both kinds"
