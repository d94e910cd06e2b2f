"""What is printed for a matrix product: its shape, its tile, and which part of the work a kernel does."""

from __future__ import annotations

from math import gcd, prod
from typing import Literal

from autojit.codegen.cuda.grid_function import Grid
from autojit.codegen.cuda.product_choice import Choice, choose
from autojit.codegen.cuda.product_operands import Strided
from autojit.codegen.cuda.product_tiles import CHUNK_BYTES, TENSOR_CAPABILITY, Tile
from autojit.codegen.cuda.target import CudaTarget
from autojit.codegen.scalar import is_half
from autojit.core.dtypes import DType, float32
from autojit.core.records import record
from autojit.core.sizes import is_symbolic, typical
from autojit.schedule.kernels import Access, MatmulKernel, joint_batch


@record
class Shape:
    """A product without its values: equal ones are printed alike.

    Args:
        extents: m, n and k.
        batch: (extent, stride in each operand) from outside to inside.
        a, b: offset and strides of the last two axes.
        sizes: elements of each buffer.
    """

    extents: tuple[int, int, int]
    batch: tuple[tuple[int, tuple[int, int]], ...]
    a: tuple[int, int, int]
    b: tuple[int, int, int]
    sizes: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many matrices."""
        return prod(extent for extent, _ in self.batch)


Part = Literal["whole", "sums", "combine"]
"""Of a product that is computed by one kernel all of it, else the sums of its splits or what is made of them."""


@record
class ProductJob:
    """What is printed, without values: equal jobs are printed alike."""

    shape: Shape
    choice: Choice
    dtype: DType
    result: DType  # of halves also the total's: what follows rounds
    adds: bool
    copies: bool
    part: Part = "whole"

    @property
    def tile(self) -> Tile:
        return self.choice.tile

    @property
    def tiles(self) -> tuple[int, int]:
        """Of one matrix, down and across."""
        m, n, _ = self.shape.extents
        return -(-m // self.tile.rows), -(-n // self.tile.columns)

    @property
    def total(self) -> DType:
        """Of sums."""
        return float32 if is_half(self.dtype) else self.dtype

    @property
    def size(self) -> int:
        """Elements of the result."""
        m, n, _ = self.shape.extents
        return m * n * self.shape.count

    @property
    def neighbours(self) -> int:
        """Elements next to each other that a thread combines."""
        return gcd(COMBINED_AT_ONCE, self.shape.extents[1])

    @property
    def grid(self) -> Grid:
        """A block for each split of each tile of each matrix; or for some elements."""
        if self.part == "combine":
            return Grid(COMBINING_THREADS, (-(-self.size // (COMBINING_THREADS * self.neighbours)), 1, 1))
        return Grid(self.tile.threads, (prod(self.tiles) * self.choice.splits * self.shape.count, 1, 1))

    @property
    def partial_bytes(self) -> int:
        """Of the sums of all splits."""
        return self.size * self.choice.splits * self.total.size_bytes if self.choice.splits > 1 else 0


COMBINED_AT_ONCE = 4
COMBINING_THREADS = 128


def job_of(kernel: MatmulKernel, target: CudaTarget) -> ProductJob:
    """What is printed for a product; of open sizes typical ones decide which tiles suit it, and nothing is split."""
    shape = shape_of(kernel)
    dtype = kernel.node.inputs[0].type.dtype
    folds = kernel.epilogue is not None and bool(kernel.epilogue.program.accumulators)
    choice = choice_of(shape, dtype, target, splits=not folds, groups=_runs_wide(shape, dtype))
    result = kernel.node.outputs[0].type.dtype
    return ProductJob(shape, choice, dtype, result, kernel.init is not None, has_copies(target))


def has_copies(target: CudaTarget) -> bool:
    """Whether the GPU copies to shared memory by itself."""
    return target.capability >= TENSOR_CAPABILITY


def stored_as(shape: Shape) -> tuple[Strided, Strided]:
    """How the operands' matrices are stored."""
    m, n, k = shape.extents
    (first_a, ra, ca), (first_b, rb, cb) = shape.a, shape.b
    moves_a, moves_b = ([strides[number] for _, strides in shape.batch] for number in range(2))
    return Strided(m, k, ra, ca, (first_a, *moves_a)), Strided(n, k, cb, rb, (first_b, *moves_b))


def _runs_wide(shape: Shape, dtype: DType) -> bool:
    """Whether both operands can be copied 16 bytes at once, as far as sizes say."""
    width = CHUNK_BYTES // dtype.size_bytes
    return all(
        not any(map(is_symbolic, (stored.lines, stored.depth, stored.line_stride, stored.depth_stride, *stored.steps)))
        and stored.most_neighbours(width) == width
        for stored in stored_as(shape)
    )


def choice_of(shape: Shape, dtype: DType, target: CudaTarget, *, splits: bool = True, groups: bool = False) -> Choice:
    """The tile and the splits of a product, if it may have any."""
    m, n, k = map(typical, shape.extents)
    is_open = any(map(is_symbolic, (*shape.extents, shape.count)))
    return choose(dtype, target, (m, n, k), typical(shape.count), splits=splits and not is_open, groups=groups)


def shape_of(kernel: MatmulKernel) -> Shape:
    """What the text of a product depends on, besides its dtype."""
    x, w = (value.type.shape for value in kernel.node.inputs[:2])
    values = [*kernel.reads(), *kernel.writes()]
    batch = joint_batch((kernel.a, kernel.b), x)
    return Shape(
        (x[-2], w[-1], x[-1]),
        tuple((extent, (strides[0], strides[1])) for extent, strides in batch),
        _matrix(kernel.a),
        _matrix(kernel.b),
        tuple(value.type.size for value in values),
    )


def _matrix(access: Access) -> tuple[int, int, int]:
    return access.offset, access.strides[-2], access.strides[-1]
