"""Tiles of matrix products, as data: which warp instruction multiplies what, and how large a block's part is.

A block computes one tile of the result. Its warps are side by side in the tile, and each computes some fragments: the
result of one warp instruction, of which a lane holds a few elements. ``depth`` of the contracted axis is in shared
memory for each of some stages: one is multiplied while the others are on their way.
"""

from __future__ import annotations

from math import prod

from autojit.codegen.cuda.grid_function import MOST_REGISTERS
from autojit.codegen.cuda.lane_limits import REGISTERS
from autojit.codegen.cuda.target import CudaTarget
from autojit.core.dtypes import DType, bfloat16, float16, float32, float64
from autojit.core.records import record

WARP = 32
COLUMNS = 8
"""Of every fragment."""

CHUNK_BYTES = 16
"""What a lane brings at most, and what a row of a warp's matrix is in shared memory."""


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
        rate: products of two elements per cycle of a processor, as `product_choice` takes it: fitted to kernels that
            were measured on H100 (float32 in parts, bfloat16), else 60 % of what is published.
    """

    intrinsic: str
    rows: int
    depth: int
    neighbours: int
    operand: str
    rate: int


SPLIT = Fragment("mma.m16n8k8.row.col.tf32", 16, 8, 1, "float", 300)
"""float32 in two parts: three products of 11 bits each."""
SINGLE = Fragment("mma.m16n8k8.row.col.tf32", 16, 8, 1, "float", 600)
"""float32 rounded to 11 bits, where the user allows it."""
DOUBLE = Fragment("mma.m8n8k4.row.col.f64", 8, 4, 1, "double", 100)
DEEP_DOUBLE = Fragment("mma.m16n8k16.row.col.f64", 16, 16, 1, "double", 100)
HALF = Fragment("mma.m16n8k16.row.col.f32.f32", 16, 16, 2, "<2 x half>", 900)
BRAIN = Fragment("mma.m16n8k16.row.col.bf16", 16, 16, 2, "i32", 900)
GROUP = Fragment("wgmma", 16, 16, 2, "", 1400)
"""Of a group of four warps, each of which has sixteen of its rows: see `product_groups`."""
LANES = Fragment("", 16, 1, 1, "", 100)
"""No instruction of warps: every lane multiplies and adds its own elements."""

TENSOR_FRAGMENTS = {float32: SPLIT, float64: DOUBLE, float16: HALF, bfloat16: BRAIN}
GROUPED = (HALF, BRAIN)
"""The fragments in whose place a group multiplies."""
GROUP_ROWS = 64
"""Of what four warps multiply together; of a panel of an operand that does not run deep, 128 bytes of lines."""
GROUP_CAPABILITY = 90
"""This one alone: later ones have others."""

SHORT_SUM = 16
"""Sums of float32 up to this length are added up lane by lane.

Two parts of 11 bits leave an error of up to three units of the last bit; longer sums have as much from their roundings.
A product of this depth takes the time of its result's way to memory whatever multiplies.
"""

TENSOR_CAPABILITY = 80
"""Before, LLVM aborts the process where one of these is asked for; so it does for copies that nobody waits for."""
DEEP_DOUBLE_CAPABILITY = 90


def fragment_of(dtype: DType, target: CudaTarget, k: int) -> Fragment:
    """What multiplies elements of a dtype on a GPU, where the contracted axis has ``k`` of them."""
    if target.capability < TENSOR_CAPABILITY or (dtype is float32 and k <= SHORT_SUM):
        return LANES
    if dtype is float64 and target.capability >= DEEP_DOUBLE_CAPABILITY and k > DOUBLE.depth:
        return DEEP_DOUBLE
    if dtype is float32 and target.rounds_operands:
        return SINGLE
    return TENSOR_FRAGMENTS.get(dtype, LANES)


@record
class Tile:
    """What a block computes.

    Args:
        fragment: of all its warps.
        warps: down and across the tile.
        fragments: of one warp, down and across.
        depth: of the contracted axis in shared memory, for each slice.
        stages: parts of this depth that shared memory has room for.
        slices: groups of these warps that all have the whole tile, and take the parts of the contracted axis in turn.
    """

    fragment: Fragment
    warps: tuple[int, int]
    fragments: tuple[int, int]
    depth: int
    stages: int
    slices: int = 1

    @property
    def is_grouped(self) -> bool:
        """Whether groups of four warps multiply, straight from shared memory."""
        return self.fragment is GROUP

    @property
    def is_lone(self) -> bool:
        """Whether a processor has room for one block of it alone: the totals take half of the registers."""
        return self.is_grouped and self.fragments[1] > GROUP_PAIR

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
    def slice_threads(self) -> int:
        return WARP * self.warps[0] * self.warps[1]

    @property
    def threads(self) -> int:
        return self.slice_threads * self.slices

    @property
    def turn_depth(self) -> int:
        """What all slices take of the contracted axis at a time."""
        return self.depth * self.slices


MOST_TOTALS_BYTES = 256
"""Of the result in the registers of a lane, which has 255 of 4 bytes and needs as many for operands and addresses."""

MOST_SPLIT_BYTES = 128
"""Of it where operands are in two parts: a tile of 64 numbers a lane took 175 registers, or spilled some of 168."""

SHARED_BYTES = 48 * 1024
"""Of a block: what every GPU gives without asking."""

SHARED_PER_THREAD = (SHARED_BYTES - 16) // 256
"""Of a block of several slices, which joins launches of several kernels (`joined_plan`): their blocks have 256 threads
at most, and run as many blocks of a product side by side as they have shared memory for."""

MOST_STAGES = 4

BLOCKS_SIDE_BY_SIDE = 2
"""On a processor, for which a block leaves registers."""

# Warps, fragments of a warp (16 rows, 8 columns), bytes of depth for each line, slices.
LAYOUTS = (
    ((2, 4), (4, 4), 64, 1),  # 128 x 128
    ((2, 2), (4, 4), 64, 1),  # 128 x 64
    ((4, 2), (2, 4), 64, 1),  # 128 x 64 of half as large parts
    ((2, 2), (2, 4), 64, 1),  # 64 x 64
    ((1, 4), (2, 4), 64, 1),  # 32 x 128: few rows
    ((4, 1), (2, 4), 64, 1),  # 128 x 32: few columns
    ((2, 2), (1, 2), 128, 1),  # 32 x 32
    ((1, 4), (1, 2), 128, 1),  # 16 x 64: a few rows by many
    ((4, 1), (1, 1), 128, 1),  # 64 x 8: a matrix by a few vectors
    ((1, 1), (1, 2), 128, 1),  # 16 x 16
    ((1, 1), (1, 1), 128, 1),  # 16 x 8
    ((2, 2), (2, 2), 64, 2),  # 64 x 32: from here on for long sums of few elements
    ((2, 2), (1, 2), 128, 2),  # 32 x 32
    ((1, 1), (1, 2), 64, 4),  # 16 x 16
    ((1, 1), (1, 2), 64, 8),
    ((1, 2), (1, 2), 64, 4),  # 16 x 32
    ((2, 1), (1, 2), 64, 4),  # 32 x 16
    ((1, 1), (1, 1), 64, 4),  # 16 x 8
    ((1, 1), (1, 1), 64, 8),
)


GROUP_LAYOUTS = (
    (2, 128, 3),  # two blocks on a processor
    (2, 256, 4),
)
"""Groups of four warps, columns, stages."""

GROUP_PAIR = 16
"""Fragments of a warp up to which two blocks are on a processor."""

GROUP_DEPTH_BYTES = 128
"""Of a line: the rows that tensor cores read."""


def group_tiles_of(fragment: Fragment, dtype: DType, target: CudaTarget, k: int) -> list[Tile]:
    """The tiles that groups of warps compute, if the GPU and the dtype have such: from a turn for every stage on."""
    if fragment not in GROUPED or target.capability != GROUP_CAPABILITY:
        return []
    depth = GROUP_DEPTH_BYTES // dtype.size_bytes
    return [
        Tile(GROUP, (4 * groups, 1), (1, columns // COLUMNS), depth, stages)
        for groups, columns, stages in GROUP_LAYOUTS
        if k >= stages * depth
    ]


def tiles_of(fragment: Fragment, dtype: DType, k: int) -> list[Tile]:
    """The tiles of a fragment whose results fit in registers, from large to small; those of several slices last."""
    found = []
    size = dtype.size_bytes if dtype.size_bytes > 1 else 4  # each has a register on its way, where rows begin anywhere
    for warps, (down, across), line_bytes, slices in LAYOUTS:
        totals = down * across * 4 * max(dtype.size_bytes, 4)
        rows, columns = warps[0] * down * LANES.rows, warps[1] * across * COLUMNS
        depth = _depth(fragment, dtype, line_bytes // size, k)
        depth = max(depth, WARP * prod(warps) // min(rows, columns))  # every thread brings something
        if totals > (MOST_SPLIT_BYTES if fragment is SPLIT else MOST_TOTALS_BYTES):
            continue
        part_bytes = (rows + columns) * depth * slices * dtype.size_bytes
        room = SHARED_BYTES if slices == 1 else SHARED_PER_THREAD * slices * WARP * prod(warps)
        stages = min(MOST_STAGES, room // part_bytes)
        fragments = down * LANES.rows // fragment.rows, across
        if stages < 2:
            continue  # nothing would be on its way while a part is multiplied
        found.append(Tile(fragment, warps, fragments, depth, stages, slices))
    return found


def most_registers(tile: Tile, dtype: DType) -> int:
    """Of a thread: so many that a processor has room for two blocks, of 128 threads for three.

    One block alone has two warps for each scheduler, which wait for their instructions most of the time: on H100, 60 %
    of all cycles. Tiles of float64 need more registers than that leaves.
    """
    if dtype is float64 or tile.is_lone:
        return MOST_REGISTERS
    return min(MOST_REGISTERS, REGISTERS // (BLOCKS_SIDE_BY_SIDE * tile.threads))


def _depth(fragment: Fragment, dtype: DType, most: int, k: int) -> int:
    """A power of two that is no more than the contracted axis needs, of whole chunks and fragments."""
    depth = max(fragment.depth, CHUNK_BYTES // dtype.size_bytes)
    while depth < min(k, most):
        depth *= 2
    return depth
