"""Which tile a product is computed in, and in how many parts its contracted axis is: by sizes alone.

An estimate of the cycles that a GPU takes decides. What it is made of was published for H100 and never measured here;
it has to be right about which of two tiles is faster, not about how fast.
"""

from __future__ import annotations

from collections.abc import Iterator

from autojit.codegen.cuda.product_tiles import WARP, Tile, fragment_of, tiles_of
from autojit.codegen.cuda.target import CudaTarget
from autojit.core.dtypes import DType, float32
from autojit.core.records import record

WARPS_AT_ONCE = 4
"""Warps that a processor runs side by side; a block of fewer leaves part of it idle."""
BYTES_PER_CYCLE = 40.0
"""Of operands from the second cache to a processor."""
STEP_CYCLES = 60.0
"""To wait for a part of the operands and for all threads of the block."""
BLOCK_CYCLES = 1500.0
"""Until the first parts of the operands are there, and until the results are away."""
MEMORY_BYTES_PER_CYCLE = 12.0
"""Of what all processors read or write in memory, each one's share."""
COMBINE_CYCLES = 4000.0
"""Another launch, and its first and last access."""
FRAGMENT_EDGE = 8.0
"""Rows or columns of a warp's tile whose reading from shared memory takes as long as multiplying them."""

LONGEST_SUM = {float32: 4096}
"""What is added up term by term: BLAS works in blocks, and what these leave of errors is not doubled.

Of 20,000 positive terms it was 4.8 times BLAS's error in one sum, on the emulated device.
"""
MOST_SPLITS = 64
LEAST_STEPS = 4
"""Depths of a tile that a part of the contracted axis has at least."""


@record
class Choice:
    """A tile, and how many parts of the contracted axis are summed up apart, each of ``chunk`` elements."""

    tile: Tile
    splits: int
    chunk: int


def choose(
    dtype: DType, target: CudaTarget, extents: tuple[int, int, int], batch: int, *, splits: bool = True
) -> Choice:
    """What is estimated to take the least time; of equals the first, which is larger.

    Args:
        extents: m, n and k of one matrix.
        batch: how many matrices.
        splits: whether the contracted axis may be split.
    """
    m, n, k = extents
    found = []
    for tile in tiles_of(fragment_of(dtype, target, k), dtype, k):
        tiles = -(-m // tile.rows) * -(-n // tile.columns) * batch
        most = -(-target.processors // max(tiles, 1)) if splits else 1
        least = -(-k // LONGEST_SUM.get(dtype, k)) if splits and k else 1
        found += [(_cycles(choice, dtype, target, extents, tiles), choice) for choice in _choices(tile, k, least, most)]
    return min(found, key=lambda pair: pair[0])[1]


def _choices(tile: Tile, k: int, least: int, most: int) -> Iterator[Choice]:
    """A tile with its splits: by powers of two, until every processor has a block."""
    if least == 1:
        yield Choice(tile, 1, k)
    else:
        yield _split(tile, k, least)
    count = 2
    while count < 2 * most and count <= MOST_SPLITS and -(-k // tile.depth) // count >= LEAST_STEPS:
        if count > least:
            yield _split(tile, k, count)
        count *= 2


def _split(tile: Tile, k: int, count: int) -> Choice:
    """About ``count`` splits, each of whole depths."""
    steps = -(-k // tile.depth)
    chunk = -(-steps // count) * tile.depth
    return Choice(tile, -(-k // chunk), chunk)


def _cycles(choice: Choice, dtype: DType, target: CudaTarget, extents: tuple[int, int, int], tiles: int) -> float:
    """The estimate."""
    tile, (m, n, _) = choice.tile, extents
    warps = tile.threads // WARP
    overhead = 1 + FRAGMENT_EDGE / tile.warp_rows + FRAGMENT_EDGE / tile.warp_columns
    multiplying = tile.rows * tile.columns / tile.fragment.rate * overhead
    bringing = (tile.rows + tile.columns) * dtype.size_bytes / BYTES_PER_CYCLE
    depth = max(choice.chunk, 1)
    busy = depth * max(multiplying, bringing)  # of the processor, if it has other blocks to go on with
    alone = depth * (multiplying * max(1, WARPS_AT_ONCE / warps) + bringing + STEP_CYCLES / tile.depth)
    rounds = -(-tiles * choice.splits // target.processors)
    found = max(rounds * busy, alone) + BLOCK_CYCLES
    if choice.splits > 1:
        moved = m * n * (choice.splits + 1) * max(dtype.size_bytes, 4)
        found += COMBINE_CYCLES + moved / (MEMORY_BYTES_PER_CYCLE * target.processors)
    return found
