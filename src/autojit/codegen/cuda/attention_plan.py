"""Attention's kernels as data: what is printed, and who computes what.

A block has some lines of one side (queries, or keys) and walks tiles of the other side. Scores of a tile are in
registers, weights go through shared memory, and nothing as large as all scores is in memory.
"""

from __future__ import annotations

from math import prod

from autojit.codegen.cuda.product_kernel import has_copies
from autojit.codegen.cuda.product_tiles import COLUMNS, SHARED_BYTES, WARP, Fragment, Tile, fragment_of
from autojit.codegen.cuda.target import CudaTarget
from autojit.core.dtypes import DType
from autojit.core.records import record
from autojit.ops.attention import Attending
from autojit.schedule.kernels import StructuredKernel, joint_batch

FRAGMENT_ROWS = 16
"""Of every fragment of the dtypes that attention has kernels for."""

SPLIT_DEPTH = 32
"""Of float32 in two parts, summed up inside a tensor core: see `product_steps.SplitSteps`."""


@record
class AttentionJob:
    """What is printed, without values: equal jobs are printed alike.

    Args:
        extents: queries, keys, elements of a key, elements of a value.
        batch: (extent, stride in each operand) from outside to inside.
        places: offset and last two strides of each operand; of the logarithms of sums and the key the last one alone.
        sizes: elements of each buffer.
        mask: the dtype of the mask, if there is one.
    """

    op: Attending
    dtype: DType
    mask: DType | None
    target: CudaTarget
    extents: tuple[int, int, int, int]
    batch: tuple[tuple[int, tuple[int, ...]], ...]
    places: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many matrices."""
        return prod(extent for extent, _ in self.batch)

    @property
    def copies(self) -> bool:
        """Whether the GPU copies to shared memory by itself."""
        return has_copies(self.target)

    def number(self, what: str) -> int:
        """The buffer of an operand or a result, by its name."""
        return self.names.index(what)

    @property
    def names(self) -> list[str]:
        """Of operands and results, in the order of the buffers."""
        op = self.op
        found = ["q", "k", "v", *["mask"] * op.has_mask, *["key"] * op.draws]
        if op.name == "attention":
            return [*found, "y", "lse"]
        return [*found, "y", "lse", "y_bar", "q_bar", "k_bar", "v_bar"]


def job_of(kernel: StructuredKernel, target: CudaTarget) -> AttentionJob:
    """What is printed for an op of a schedule."""
    node, accesses = kernel.node, kernel.accesses
    assert isinstance(node.op, Attending)
    q, k, v = (value.type for value in node.inputs[:3])
    batched = [access for access in accesses if access.value.type.dtype.name != "int64"]
    return AttentionJob(
        node.op,
        q.dtype,
        node.inputs[3].type.dtype if node.op.has_mask else None,
        target,
        (q.shape[-2], k.shape[-2], q.shape[-1], v.shape[-1]),
        tuple(joint_batch(batched, q.shape)),
        tuple((access.offset, *access.strides[-2 if len(access.strides) == q.ndim else -1 :]) for access in accesses),
        tuple(value.type.size for value in (*[access.value for access in accesses], *node.outputs)),
    )


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
