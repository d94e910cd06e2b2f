"""The words of matrix products: how they are cut into blocks and chunks, in steps and in slices of bands."""

from __future__ import annotations

from math import gcd, prod

from autojit.codegen.cpu.chunks import CHUNK_NS, wanted_chunks
from autojit.codegen.cpu.machine import CPU_MACHINE, aligned
from autojit.codegen.cpu.plan.records import ContractionWords, ProductWords
from autojit.codegen.cpu.products import gemm
from autojit.codegen.records import Record
from autojit.core.dtypes import DType, bfloat16, float32, float64
from autojit.core.sizes import is_symbolic, size_max, size_min, typical
from autojit.schedule.bands import Cut, Slices
from autojit.schedule.kernels import Kernel, MatmulKernel, joint_batch

# One thread at middling shapes: 77 and 39 at 64^3, 34 and 23 with ten columns. They only cut work into chunks.
GEMM_GFLOPS = {float32: 60.0, float64: 30.0, bfloat16: 120.0}
# Operands are packed again by every chunk; enough for a few threads and for balance. No measurement is recorded.
MAX_MATMUL_CHUNKS = 12
ROW_BLOCK_STEP = 48  # a multiple of every micro-kernel's rows
COLUMN_BLOCK_STEP = 64  # a multiple of every micro-kernel's columns


def slice_words(words: ProductWords, k: int, scratch: int, slices: Slices) -> tuple[str, Record[int]]:
    """The body for the product of one slice, ``k`` of the steps or what is left of them, and its words."""
    if slices.is_even:
        blocks = {"row_block": words.m, "row_blocks": 1, "col_block": words.n, "col_blocks": 1}
        return "matmul", words.but(k=k, units=1, units_per_chunk=1, scratch_bytes=scratch, **blocks)
    strides = {name: getattr(words, name) for name in ("rsa", "csa", "rsb", "csb", "rsc", "csc")}
    return "contract", ContractionWords(m=words.m, n=words.n, k=words.k, k_block=k, scratch_bytes=scratch, **strides)


def product_types(kernel: MatmulKernel) -> tuple[DType, DType]:
    """The dtypes of a product's operands and of its result, of which there is tile code."""
    operand, result = kernel.node.inputs[0].type.dtype, kernel.node.outputs[0].type.dtype
    assert operand in GEMM_GFLOPS and result is (float32 if operand is bfloat16 else operand), "see `expand`"
    return operand, result


def gemm_scratch(kernel: Kernel, cut: Cut, slices: Slices) -> int:
    """Bytes one worker needs for a matrix product of a band."""
    if not isinstance(kernel, MatmulKernel):
        return 0
    dtype, _ = product_types(kernel)
    words, _, _ = matmul_words(kernel, None if cut.contracts else slices)
    m, n, k = words.m, words.n, words.k
    if cut.contracts:
        return aligned(gemm.scratch_bytes(dtype, m, n, slices.part(k)))
    return aligned(gemm.scratch_bytes(dtype, size_min(m, words.row_block), n, k))


def matmul_words(kernel: MatmulKernel, slices: Slices | None = None) -> tuple[ProductWords, int, float]:
    """The words of ``aj_matmul`` (no scratch yet), the number of chunks and the estimated time."""
    a, b = kernel.node.inputs[:2]
    *batch, m, k = a.type.shape
    n = b.type.shape[-1]
    count = prod(batch)
    dtype, _ = product_types(kernel)
    estimate = 2.0 * typical(m * n * k * count) / GEMM_GFLOPS[dtype] + 200.0 * typical(count)
    wanted = max(1, min(MAX_MATMUL_CHUNKS, int(estimate / CHUNK_NS)))
    row_block, row_blocks, col_block, col_blocks, units_per_chunk = m, 1, n, 1, 1
    if is_symbolic(m * n * k * count) and slices is None:
        row_block, row_blocks, col_block, col_blocks, units_per_chunk = _symbolic_blocks(m, n, k, count, dtype)
    elif slices is not None and is_symbolic(m * n * k * count):
        row_block = slices.part(m) if count == 1 else m
        row_blocks = -(-m // row_block)
        units_per_chunk = 1 if count == 1 else slices.part(count)
    elif slices is not None:
        row_blocks = max(1, slices.count // gcd(count, slices.count))
        row_block = m // row_blocks
        units_per_chunk = count * row_blocks // slices.count
    elif count >= wanted:
        units_per_chunk = max(1, -(-count // wanted))
    elif m >= n:  # cut the longer side: the other operand is packed again by every block
        row_block, row_blocks = _blocks(m, -(-wanted // max(count, 1)), ROW_BLOCK_STEP)
    else:
        col_block, col_blocks = _blocks(n, -(-wanted // max(count, 1)), COLUMN_BLOCK_STEP)
    units = count * row_blocks * col_blocks
    (ao, ai), (bo, bi), (co, ci), inner = _batch_strides(kernel, m * n)
    words = ProductWords(
        m=m, n=n, k=k,
        rsa=kernel.a.strides[-2], csa=kernel.a.strides[-1],
        rsb=kernel.b.strides[-2], csb=kernel.b.strides[-1],
        rsc=n, csc=1, accumulate=int(kernel.init is not None),
        row_block=row_block, row_blocks=row_blocks,
        units_per_chunk=units_per_chunk, units=units, inner_batch=inner,
        a_outer=ao, a_inner=ai, b_outer=bo, b_inner=bi, c_outer=co, c_inner=ci,
        scratch_bytes=0, col_block=col_block, col_blocks=col_blocks,
    )  # fmt: skip
    chunks = -(-units // units_per_chunk) if units else 0
    return words, chunks, estimate


def _symbolic_blocks(m: int, n: int, k: int, count: int, dtype: DType) -> tuple[int, int, int, int, int]:
    """(row block, row blocks, column block, column blocks, units per chunk) by the rules of fixed sizes."""
    picoseconds = 2 * m * n * k * count * 1000 // round(GEMM_GFLOPS[dtype]) + 200_000 * count
    wanted = wanted_chunks(0.0, picoseconds, MAX_MATMUL_CHUNKS)
    units_per_chunk = -(-count // wanted) if count != 1 else 1
    share = wanted if count == 1 else -(-wanted // size_max(count, 1))
    by_rows = int(m >= n) if not is_symbolic(m - n) else size_min(1, m // size_max(n, 1))  # the longer side, 1 or 0
    row_block, row_blocks = _blocks(m, share, ROW_BLOCK_STEP)
    col_block, col_blocks = _blocks(n, share, COLUMN_BLOCK_STEP)
    rows = m + by_rows * (row_block - m), 1 + by_rows * (row_blocks - 1)
    columns = col_block + by_rows * (n - col_block), col_blocks + by_rows * (1 - col_blocks)
    return *rows, *columns, units_per_chunk


def _blocks(extent: int, wanted: int, step: int) -> tuple[int, int]:
    """(size, number) of about ``wanted`` blocks whose size is a multiple of ``step``."""
    share = -(-extent // wanted)
    size = size_max(size_min(extent, -(-share // step) * step), 1)
    return size, -(-extent // size)


def _batch_strides(kernel: MatmulKernel, matrix: int) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int], int]:
    """(outer, inner) batch strides of a, b, c and the inner batch extent."""
    axes = joint_batch((kernel.a, kernel.b), kernel.node.inputs[0].type.shape)
    assert len(axes) <= CPU_MACHINE.product_batch_axes, "operands with more batch axes have storage of their own"
    (_, (ao, bo)), (inner, (ai, bi)) = [(1, (0, 0)), (1, (0, 0)), *axes][-2:]
    return (ao, ai), (bo, bi), (matrix * inner, matrix), inner
