"""Tiles of matrix products, as data: which warp instruction multiplies what, and how large a block's part is.

A block computes one tile of the result. Its warps are side by side in the tile, and each computes some fragments: the
result of one warp instruction, of which a lane holds a few elements. ``depth`` of the contracted axis is brought to
shared memory at a time.
"""

from __future__ import annotations

from autojit.codegen.cuda.target import CudaTarget
from autojit.core.dtypes import DType, bfloat16, float16, float32, float64
from autojit.core.records import record

WARP = 32
COLUMNS = 8
"""Of every fragment."""

MOST_DEPTH = 64
"""Most of the contracted axis that tensor cores add up: their sums are cut off, not rounded, which must not grow."""


@record
class Fragment:
    """One product of small matrices that the lanes of a warp compute together.

    Lane ``4 g + t`` holds the elements in row g and columns 2 t and 2 t + 1 of every eight rows of the result.

    Args:
        intrinsic: LLVM's name of the instruction.
        rows: of the left operand.
        depth: columns of the left operand.
        neighbours: elements next to each other in depth that one register holds.
        operand: LLVM's type of a register of an operand.
    """

    intrinsic: str
    rows: int
    depth: int
    neighbours: int
    operand: str


SPLIT = Fragment("mma.m16n8k8.row.col.tf32", 16, 8, 1, "float")
DOUBLE = Fragment("mma.m8n8k4.row.col.f64", 8, 4, 1, "double")
HALF = Fragment("mma.m16n8k16.row.col.f32.f32", 16, 16, 2, "<2 x half>")
BRAIN = Fragment("mma.m16n8k16.row.col.bf16", 16, 16, 2, "i32")
LANES = Fragment("", 16, 1, 1, "")
"""No instruction of warps: every lane multiplies and adds its own elements."""

TENSOR_FRAGMENTS = {float32: SPLIT, float64: DOUBLE, float16: HALF, bfloat16: BRAIN}
SHORT_SUM = 16
"""Sums of float32 up to this length are added up lane by lane.

Two parts of 11 bits leave an error of up to three units of the last bit; longer sums have as much from their roundings.
A product of this depth takes the time of its result's way to memory whatever multiplies.
"""

TENSOR_CAPABILITY = 80
"""Before, LLVM aborts the process where one of these is asked for."""


def fragment_of(dtype: DType, target: CudaTarget, k: int) -> Fragment:
    """What multiplies elements of a dtype on a GPU, where the contracted axis has ``k`` of them."""
    if target.capability < TENSOR_CAPABILITY or (dtype is float32 and k <= SHORT_SUM):
        return LANES
    return TENSOR_FRAGMENTS.get(dtype, LANES)


@record
class Tile:
    """What a block computes.

    Args:
        fragment: of all its warps.
        warps: down and across the tile.
        fragments: of one warp, down and across.
        depth: of the contracted axis in shared memory.
    """

    fragment: Fragment
    warps: tuple[int, int]
    fragments: tuple[int, int]
    depth: int

    @property
    def rows(self) -> int:
        return self.warps[0] * self.warp_rows

    @property
    def columns(self) -> int:
        return self.warps[1] * self.warp_columns

    @property
    def warp_rows(self) -> int:
        return self.fragments[0] * self.fragment.rows

    @property
    def warp_columns(self) -> int:
        return self.fragments[1] * COLUMNS

    @property
    def threads(self) -> int:
        return WARP * self.warps[0] * self.warps[1]


# Warps, fragments of a warp, depth. Fragments of eight rows are twice as many. None was measured on hardware.
LAYOUTS = (
    ((2, 2), (2, 4), 16),  # 64 x 64; with 32 the elements on their way take too many registers
    ((2, 2), (1, 2), 32),  # 32 x 32
    ((1, 1), (1, 2), 32),  # 16 x 16
    ((1, 1), (1, 1), 32),  # 16 x 8
)


def tile_of(dtype: DType, target: CudaTarget, extents: tuple[int, int, int], batch: int) -> Tile:
    """The largest tile that a product fills and has enough of to keep all processors busy, else the smallest.

    Args:
        extents: m, n and k of one matrix.
        batch: how many matrices.
    """
    m, n, k = extents
    fragment = fragment_of(dtype, target, k)
    tiles = [
        Tile(fragment, warps, (down * LANES.rows // fragment.rows, across), _depth(fragment, dtype, depth, k))
        for warps, (down, across), depth in LAYOUTS
    ]
    for tile in tiles:
        is_filled = m > tile.rows // 2 and n > tile.columns // 2
        if is_filled and -(-m // tile.rows) * -(-n // tile.columns) * batch >= target.processors:
            return tile
    return tiles[-1]


def _depth(fragment: Fragment, dtype: DType, most: int, k: int) -> int:
    """A power of two, at most ``most`` words of 32 bits: no more than the contracted axis needs."""
    depth = max(fragment.depth, 8)
    limit = most * 4 // max(dtype.size_bytes, 2)
    while depth < min(k, limit):
        depth *= 2
    return min(depth, MOST_DEPTH)


def row_pad(size_bytes: int) -> int:
    """Elements behind each line of depth in shared memory, so that the rows that a warp reads are in other banks."""
    return max(4, 16 // size_bytes) if size_bytes > 1 else 16


def column_pad(size_bytes: int, extent: int) -> int:
    """Elements behind each line of ``extent`` rows in shared memory, so that the lines a warp reads are in other banks.

    Banks are 4 bytes wide and 32; a warp reads four lines of eight elements.
    """
    if size_bytes == 8:
        return 4
    return 8 if extent % 32 in (0, 16) else 0
