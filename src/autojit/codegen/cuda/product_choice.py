"""Which tile a product is computed in, and in how many parts its contracted axis is: by sizes alone.

An estimate of the cycles that a GPU takes decides. Its constants were fitted to 2,163 kernels measured on an H100 and
an H200, of 32 sizes in float32 and bfloat16, transposed and not (`docs/design/device_products.md`); it has to be right
about which of two tiles is faster, not about how fast.
"""

from __future__ import annotations

from collections.abc import Iterator

from autojit.codegen.cuda.product_tiles import WARP, Tile, fragment_of, group_tiles_of, tiles_of
from autojit.codegen.cuda.target import CudaTarget
from autojit.core.dtypes import DType, float32
from autojit.core.records import record

WARPS_AT_ONCE = 4
"""Warps that a processor runs side by side; a block of fewer leaves part of it idle."""
BYTES_PER_CYCLE = 20.0
"""Of operands from the second cache to a processor."""
GROUP_BYTES_PER_CYCLE = 36.0
"""The same where tensor cores read shared memory themselves: 528 to 600 TFLOP/s of 4096 and 8192 on H100."""
LONE_CYCLES = 12000.0
"""Of every block whose beginning and end no other block of the processor fills, because it is the only one."""
SLICE_CYCLES = 160.0
"""To add the sums of another slice, by way of shared memory."""
STEP_CYCLES = 34.0
"""To wait for a part of the operands and for all threads of the block."""
BLOCK_CYCLES = 2300.0
"""Until the first parts of the operands are there, and until the results are away."""
MEMORY_BYTES_PER_CYCLE = 16.0
"""Of what all processors read or write in memory, each one's share."""
COMBINE_CYCLES = 1100.0
"""Another launch, and its first and last access."""
FRAGMENT_EDGE = 12.0
"""Rows or columns of a warp's tile whose reading from shared memory takes as long as multiplying them."""

AS_GOOD = 4 / 3
"""Choices whose estimates differ by no more than this are told apart by the bytes of sums that splits leave in memory.

The estimate is no better than that, and what one kernel moves through the second cache others wait for.
"""

LONGEST_SUM = {float32: 4096}
"""What is added up term by term: BLAS works in blocks, and what these leave of errors is not doubled.

Of 20,000 positive terms it was 4.8 times BLAS's error in one sum, on the emulated device.
"""
MOST_SPLITS = 64
LEAST_STEPS = 2
"""Turns that a part of the contracted axis has at least, and an axis that slices take in turn."""


@record
class Choice:
    """A tile, and how many parts of the contracted axis are summed up apart, each of ``chunk`` elements."""

    tile: Tile
    splits: int
    chunk: int


def choose(
    dtype: DType,
    target: CudaTarget,
    extents: tuple[int, int, int],
    batch: int,
    *,
    splits: bool = True,
    groups: bool = False,
) -> Choice:
    """What is estimated to take the least time, or hardly more and leaves less in memory; of equals the larger one.

    Args:
        extents: m, n and k of one matrix.
        batch: how many matrices.
        splits: whether the contracted axis may be split.
        groups: whether groups of warps may multiply: operands are copied 16 bytes at once.
    """
    found = estimates(dtype, target, extents, batch, splits=splits, groups=groups)
    fastest = min(cycles for cycles, _ in found)
    good = [pair for pair in found if pair[0] <= fastest * AS_GOOD]
    fewest = min(choice.splits for _, choice in good)
    return min((pair for pair in good if pair[1].splits == fewest), key=lambda pair: pair[0])[1]


def estimates(
    dtype: DType,
    target: CudaTarget,
    extents: tuple[int, int, int],
    batch: int,
    *,
    splits: bool = True,
    groups: bool = False,
) -> list[tuple[float, Choice]]:
    """All ways to compute a product, with the cycles that each is taken to need; arguments as of `choose`."""
    m, n, k = extents
    found = []
    fragment = fragment_of(dtype, target, k)
    grouped = group_tiles_of(fragment, dtype, target, k) if groups else []
    for tile in (*grouped, *tiles_of(fragment, dtype, k)):
        if tile.slices > 1 and -(-k // tile.turn_depth) < LEAST_STEPS:
            continue
        tiles = -(-m // tile.rows) * -(-n // tile.columns) * batch
        most = -(-target.processors // max(tiles, 1)) if splits else 1
        least = -(-k // (LONGEST_SUM.get(dtype, k) * tile.slices)) if splits and k else 1
        choices = _choices(tile, k, least, most)
        found += [(_cycles(choice, dtype, target, m * n * batch, tiles), choice) for choice in choices]
    return found


def _choices(tile: Tile, k: int, least: int, most: int) -> Iterator[Choice]:
    """A tile with its splits: as many as give every processor one block, and powers of two up to that and one more."""
    if least == 1:
        yield Choice(tile, 1, k)
    else:
        yield _split(tile, k, least)
    powers = [1 << bit for bit in range(1, MOST_SPLITS.bit_length()) if 1 << bit < 2 * most]
    for count in sorted({*powers, min(most - 1, MOST_SPLITS)}):
        if count > least and -(-k // tile.turn_depth) // count >= LEAST_STEPS:
            yield _split(tile, k, count)


def _split(tile: Tile, k: int, count: int) -> Choice:
    """About ``count`` splits, each of whole turns."""
    steps = -(-k // tile.turn_depth)
    chunk = -(-steps // count) * tile.turn_depth
    return Choice(tile, -(-k // chunk), chunk)


def _cycles(choice: Choice, dtype: DType, target: CudaTarget, results: int, tiles: int) -> float:
    """The estimate, for so many elements of the result, in so many tiles."""
    tile = choice.tile
    warps = tile.threads // WARP
    overhead, rate = 1 + FRAGMENT_EDGE / tile.warp_rows + FRAGMENT_EDGE / tile.warp_columns, BYTES_PER_CYCLE
    if tile.is_grouped:
        overhead, rate = 1.0, GROUP_BYTES_PER_CYCLE
    multiplying = tile.rows * tile.columns / tile.fragment.rate * overhead
    bringing = (tile.rows + tile.columns) * dtype.size_bytes / rate
    depth = max(choice.chunk, 1)
    busy = depth * max(multiplying, bringing)  # of the processor, if it has other blocks to go on with
    turns = max(1, warps / WARPS_AT_ONCE)  # of warps that multiply while others bring
    alone = depth * (multiplying * max(1, WARPS_AT_ONCE / warps) + bringing / turns + STEP_CYCLES / tile.turn_depth)
    rounds = -(-tiles * choice.splits // target.processors)
    if tile.is_lone:
        busy += LONE_CYCLES
    alone += SLICE_CYCLES * (tile.slices - 1)
    found = max(rounds * busy, alone) + BLOCK_CYCLES
    if choice.splits > 1:
        moved = results * (choice.splits + 1) * max(dtype.size_bytes, 4)
        found += COMBINE_CYCLES + moved / (MEMORY_BYTES_PER_CYCLE * target.processors)
    return found
