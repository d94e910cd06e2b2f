"""Attention's kernels as data: what is printed, and who computes what.

A block has some lines of one side (queries, or keys) and walks tiles of the other side. Scores of a tile are in
registers, weights go through shared memory, and nothing as large as all scores is in memory.
"""

from __future__ import annotations

from math import prod

from autojit.codegen.attention_operands import AttentionOperands, operands_of
from autojit.codegen.cuda.product_job import has_copies
from autojit.codegen.cuda.product_tiles import COLUMNS, SHARED_BYTES, WARP, Fragment, Tile, fragment_of
from autojit.codegen.cuda.target import CudaTarget
from autojit.core.records import record
from autojit.schedule.kernels import StructuredKernel

FRAGMENT_ROWS = 16
"""Of every fragment of the dtypes that attention has kernels for."""

SPLIT_DEPTH = 32
"""Of float32 in two parts, summed up inside a tensor core: see `product_steps.SplitSteps`."""


@record
class AttentionJob(AttentionOperands):
    """What is printed for a GPU."""

    target: CudaTarget

    @property
    def copies(self) -> bool:
        """Whether the GPU copies to shared memory by itself."""
        return has_copies(self.target)


def job_of(kernel: StructuredKernel, target: CudaTarget) -> AttentionJob:
    """What is printed for an op of a schedule."""
    return AttentionJob(*operands_of(kernel), target)


@record
class AttentionPlan:
    """Who computes what.

    Args:
        lines: of a block.
        columns: lines of the other side in a tile.
        warps: down the lines, and side by side.
        sharing: into how many parts warps that are side by side divide scores; several may have the same part. Of
            results each has a part of its own.
    """

    lines: int
    columns: int
    warps: tuple[int, int]
    sharing: int

    @property
    def threads(self) -> int:
        return WARP * prod(self.warps)

    def tile(self, fragment: Fragment, across: int, depth: int) -> Tile:
        """A product of the block's lines by ``across`` fragments of each warp."""
        return Tile(fragment, self.warps, (1, across), depth, 1)


def padded(width: int) -> int:
    """What rows of shared memory have room for: a power of two that every fragment's depth divides."""
    return max(FRAGMENT_ROWS, 1 << (width - 1).bit_length())


# Lines of a block and of a tile. None was measured on hardware; the first that fits in shared memory is taken.
SIZES = ((64, 32), (32, 32), (32, 16), (16, 16))


def plan_of(
    job: AttentionJob, lines: int, resident: int, streamed: int, across: int, *, folds: bool = False
) -> AttentionPlan:
    """The largest blocks that fit.

    Args:
        lines: all there are of the block's side.
        resident: elements of each line that stay in shared memory.
        streamed: elements of each line of the other side.
        across: warps that are side by side.
        folds: whether something is folded along lines, all of which a warp then has.
    """
    size = job.dtype.size_bytes
    for down, columns in SIZES:
        used = size * (down * resident + columns * streamed + 2 * down * columns)
        is_filled = lines > down // 2 or (down, columns) == SIZES[-1]
        if used <= SHARED_BYTES - RESERVED_BYTES and is_filled:
            sharing = 1 if folds else min(across, columns // COLUMNS)
            return AttentionPlan(down, columns, (down // FRAGMENT_ROWS, across), sharing)
    raise AssertionError("wider operands have no kernels")


RESERVED_BYTES = 256
"""Of shared memory: alignment, and the word of a kernel that runs after errors."""


def fragment_for(job: AttentionJob, depth: int) -> Fragment:
    """What multiplies, where so many products are added up."""
    return fragment_of(job.dtype, job.target, depth)


__all__ = ["COLUMNS", "AttentionJob", "AttentionPlan", "fragment_for", "job_of", "padded", "plan_of"]
