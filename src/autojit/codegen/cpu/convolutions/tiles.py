"""How a convolution's kernel cuts its work: packed images, runs of places, and tiles held in vector registers.

A tile is a few rows (result channels) by a few *grains* of places, a grain being ``VECTOR_BYTES``. Rows are cut into
tiles of one height and a lower last one, a run into tiles of one width and a narrower last one, which moves back to
overlap the one before. Runs are single rows of places or several; images are packed with or without copies per column
of the kernel (see `layout`). All that is chosen together, by an estimate of cycles.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import prod

from autojit.codegen.cpu.convolutions.layout import Layout
from autojit.codegen.cpu.convolutions.movers import Lanes
from autojit.codegen.cpu.convolutions.packing import VECTOR_BYTES, copies_whole_rows
from autojit.codegen.target import HostTarget
from autojit.core.records import record
from autojit.core.sizes import size_max, typical

RUN = 1024
"""Most places of a run over several rows that is staged: a tile's rows stay in the first-level cache.

4 KiB a row of float32; no measurement is recorded.
"""

WORTH_TRIMMING = 0.8
"""Lines of taps that only see zeros are left out when no more than this part of all lines is left.

No measurement is recorded.
"""

TALLEST, WIDEST = 12, 12
LATENCY, AHEAD = 4.4, 256
"""Cycles from one step of a sum to the next, and the instructions that a core looks ahead to other tiles.

A multiply-add takes 4 cycles on current cores; how the two were fitted is not recorded.
"""

COPY, WHOLE_COPY = 25.0, 8.0
"""Cycles to begin the copy of a row, and of one whose size is known to the compiler."""


@record
class Registers:
    """Vector registers as tiles use them.

    Args:
        together: grains in one vector.
        sums: vectors of sums that leave room for operands.
        at_once: grains multiplied and added in a cycle.
        of_pairs: what is multiplied are pairs of bfloat16.
    """

    together: int
    sums: int
    at_once: int
    of_pairs: bool = False

    @classmethod
    def of(cls, target: HostTarget, *, of_pairs: bool = False) -> Registers:
        together = max(1, target.vector_bytes // VECTOR_BYTES)
        sums = 3 * target.vector_registers * target.vector_bytes // (4 * together * VECTOR_BYTES)
        return cls(together, sums, target.multiplied_bytes // VECTOR_BYTES, of_pairs)

    def load_cycles(self, height: int, grains: int) -> float:
        """Of a step: two loads a cycle.

        LLVM makes the broadcast of a pair an instruction of its own, and one of 64 bytes begins in a cycle: with
        tiles of 8 rows and one vector, 64 to 128 channels of 3 x 3 / 2 took 4.1 ms, with 4 rows and 4 vectors 3.1.
        """
        if self.of_pairs:
            return float(height + -(-grains // self.together))
        return (height + grains) / 2


@record
class Tiling:
    """Rows and grains of the tiles; ``last`` and ``tail`` are 0 where nothing is left."""

    height: int
    last: int
    width: int
    tail: int

    @property
    def heights(self) -> tuple[int, ...]:
        return tuple(n for n in (self.height, self.last) if n)

    @property
    def widths(self) -> tuple[int, ...]:
        return tuple(n for n in (self.width, self.tail) if n)


@record
class Cut:
    """A layout, and how the places of a band are cut: ``rows`` rows of places per run, tiles on them.

    ``padded`` are the places that the tiles of a run compute.
    """

    layout: Layout
    tiling: Tiling
    rows: int
    count: int
    length: int
    padded: int
    is_direct: bool
    trims: bool


def best_cut(layouts: Sequence[Layout], rows: int, channels: int, lanes: int, registers: Registers) -> Cut:
    """What is estimated to take the fewest cycles; ``lanes`` are the elements of a grain."""
    found = [(cycles, cut) for layout in layouts for cycles, cut in _cuts(layout, rows, channels, lanes, registers)]
    return min(found, key=lambda item: item[0])[1]


def _cuts(layout: Layout, rows: int, channels: int, lanes: int, registers: Registers) -> Iterator[tuple[float, Cut]]:
    """Single rows per run, which can leave out lines of taps that see only zeros, and as many as go together."""
    depth, height, width = layout.band
    columns = layout.packed[2]
    apart = max(layout.result_step) > 1
    taps = sum(len(phase.taps) for phase in layout.phases) / max(1, len(layout.phases))
    if layout.is_open:
        together = -(-height // -(-height // size_max(1, RUN // columns)))
        length = (together - 1) * columns + width
        whole = -(-typical(length) // lanes) * lanes  # grains
        cycles, tiling = best_tiling(rows, (whole, lanes), False, (channels * taps, 1), registers)
        places = tiling.width * lanes
        padded = -(-length // places) * places
        tiling = Tiling(tiling.height, tiling.last, tiling.width, 0)
        yield cycles, Cut(layout, tiling, together, -(-height // together), length, padded, False, False)
        return
    is_whole = columns == width and not apart
    staged = -(-height // -(-height // max(1, RUN // columns)))
    for together in dict.fromkeys((1, height if is_whole else staged)):
        length = (together - 1) * columns + width
        share = _seen_share(layout) if together == 1 else 1.0
        trims = share < WORTH_TRIMMING
        steps = channels * taps * (share if trims else 1.0)
        plain = not apart and (together == 1 or is_whole)
        cycles, tiling = best_tiling(rows, (length, lanes), plain, (steps, together), registers)
        padded = -(-length // lanes) * lanes
        count = -(-height // together)
        is_direct = plain and length >= tiling.width * lanes
        packing = packing_cycles(layout, channels, lanes)
        yield (
            layout.bands * (depth * count * len(layout.phases) * cycles + packing),
            Cut(layout, tiling, together, count, length, padded, is_direct, trims),
        )


def _seen_share(layout: Layout) -> float:
    """Which part of all pairs of a row of places and a line of taps sees the image."""
    if not layout.is_flat:
        return 1.0
    pairs = [(layout.seen(phase, row), len(phase.rows)) for phase in layout.phases for row in range(phase.counts[1])]
    return sum(stop - first for (first, stop), _ in pairs) / max(1, sum(count for _, count in pairs))


def packing_cycles(layout: Layout, channels: int, lanes: int) -> float:
    """An estimate of what it takes to pack the image of a band."""
    depth, rows, columns = layout.packed
    lines = channels * prod(layout.parts) * depth * rows
    return lines * (WHOLE_COPY + 1.5 * columns / lanes if copies_whole_rows(layout) else COPY + 2.0 * columns)


@lru_cache(maxsize=4096)
def best_tiling(
    rows: int, run: tuple[int, int], may_be_direct: bool, work: tuple[float, int], registers: Registers
) -> tuple[float, Tiling]:
    """Cycles of all rows of one run, and the tiles that need the fewest.

    Args:
        rows: result channels.
        run: its places, and the lanes of a grain.
        may_be_direct: whether tiles may write to the result, where a run is as long as a tile.
        work: the steps of a sum (channels times taps), and the rows of places of the run.
    """
    length, lanes = run
    steps, lines = work
    grains = max(1, -(-length // lanes))
    best: tuple[float, Tiling] | None = None
    for height, width in _shapes(rows, grains, registers):
        last, (full, tail) = rows % height, divmod(grains, width)
        cycles = 0.0
        for h, n in ((height, rows // height), (last, 1)):
            if h:
                cycles += n * (full * _tile_cycles(h, width, steps, registers))
                cycles += n * _tile_cycles(h, tail, steps, registers) if tail else 0.0
        if not (may_be_direct and length >= width * lanes):
            cycles += rows * (lines * COPY + length / lanes)
        functions = (2 if last else 1) * (2 if tail else 1)
        cycles *= 1 + 0.01 * (functions - 1)
        if best is None or cycles < best[0]:
            best = cycles, Tiling(height, last, width, tail)
    assert best is not None
    return best


def _shapes(rows: int, grains: int, registers: Registers) -> Iterator[tuple[int, int]]:
    """Heights that cut the rows evenly, and for each the widths that make good use of the registers."""
    heights = dict.fromkeys(-(-rows // blocks) for blocks in range(1, max(rows, 1) + 1)) if rows else {1: None}
    for height in heights:
        most = min(registers.sums // max(height, 1) * registers.together, WIDEST, grains)
        if height <= TALLEST:
            for width in range(max(1, most // 2), most + 1):
                yield height, width


def _tile_cycles(height: int, grains: int, steps: float, registers: Registers) -> float:
    """Two grains are loaded per cycle, `Registers.at_once` multiplied and added; four instructions begin.

    Where a core multiplies two vectors of 64 bytes, a tile of 8 rows by one of them waits for its loads. On a Skylake
    server core, which was taken for one that multiplies half as much, 64 to 128 channels of 3 x 3 / 2 took 8.2 ms, with
    8 rows by two vectors 5.7; 4 x 4 / 2 7.2 and 4.9.
    """
    vectors = -(-grains // registers.together)
    products, loads = height * grains / registers.at_once, registers.load_cycles(height, grains)
    instructions = height * vectors + height + vectors
    latency = LATENCY * min(1.0, steps * instructions / AHEAD)
    return steps * (max(products, loads, instructions / 4, latency) + 0.03 * loads) + 15 + height * vectors


class HeldTile:
    """The vectors of a tile's rows, where each begins in bytes, and the types of all sums."""

    def __init__(self, height: int, vectors: Sequence[Lanes]) -> None:
        self.height, self.vectors = height, list(vectors)
        self.places = [sum(v.size_bytes for v in vectors[:k]) for k in range(len(vectors))]
        self.kinds = [v.text for v in vectors] * height
