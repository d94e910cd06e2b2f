"""How a grid of threads goes through the loops of a program, by shapes and the target's processors alone.

Two forms. A *flat* program folds nothing along its rows and keeps no columns: all its points are one line, cut into
tiles. In every other, *groups* of lanes walk rows, and the groups of a *team* share rows out and fold together what
they accumulated::

    block -> team -> group -> lane -> slots x vector elements of a row

A lane holds at most `MOST_ELEMENTS` elements of a row at once. Rows that are longer than a block holds so are *long*:
each phase walks them tile by tile and reads memory again. Rows without reductions need not be held by one block: their
tiles go to different ones.

Every fold is a tree of fixed shape: in a lane by position, over lanes, over warps, over the partial results of teams in
order. The shape depends on extents and on `CudaTarget.processors`, so results on two kinds of GPU may differ as sums in
another order do, and never from one run to the next.

Sizes may be open. What a kernel's text depends on (lanes, vectors, how rows are walked) is then decided by typical
sizes; how many tiles, rows and blocks there are follows the sizes of a call. Rows of open length are walked.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from autojit.codegen.cuda.grid_function import WARP, Grid
from autojit.codegen.cuda.lane_limits import (
    MOST_ELEMENTS,
    MOST_REGISTERS,
    carried_words,
    is_turned,
    most_elements,
    registers,
    vector_width,
)
from autojit.codegen.cuda.target import CudaTarget
from autojit.codegen.cuda.transposition import TILE_THREADS, Transposition, transposition
from autojit.codegen.phases import row_results
from autojit.codegen.walk import Walk
from autojit.core.records import record
from autojit.core.sizes import is_symbolic, size_max, size_min, typical
from autojit.ir.index import LoopVariable
from autojit.schedule.expressions import Applied
from autojit.schedule.loops import LoopProgram

# Of these numbers none was tuned on hardware; four vectors in flight instead of two were no faster on an H200.
FLAT_THREADS = 256  # of a block
# Vectors of a buffer that a lane reads before it waits. Little's law: 4.3 TB/s over 132 processors, for the 700 ns that
# memory takes, is 23 KiB in flight on each. Two vectors of 16 bytes are that for 736 threads, half of what fits with 40
# registers; one would need all 1,472, and four keep registers from programs that read several buffers.
IN_FLIGHT = 2
ROW_THREADS = 128  # of a block, where rows take no more
COLUMN_THREADS = 256
FEWEST_COLUMNS = 8  # lanes side by side: of 16 bytes each they take a whole line of the cache
OWN_REGISTERS = 24  # of a thread, for addresses, counters and constants; half of the others are for intermediate values
LIVELY_REGISTERS = 104  # of a thread, up to which a processor runs 20 warps: rows wait for their folds side by side
LONG_THREADS = 512  # of a block that walks long rows: 128 registers are left for a thread
MOST_THREADS = 1024
FOLDING_THREADS = 512  # per processor: what is in flight where partial results are left
BUSY_THREADS = 256  # per processor: rows take more lanes each as long as there are fewer
LIGHT_EXPRESSIONS = (
    32  # of an element, up to which lanes are few and accesses wide: latency is the memory's, not theirs
)
FUNCTION_EXPRESSIONS = 16  # that a function of mathematics counts for: `exp` is 17 instructions, `tanh` 40
ONE_LAUNCH = 16  # turns of a team up to which nothing is left to combine: a second launch costs as much
FEWEST_TURNS = 4  # of a team that leaves partial results of columns: each is read again
OPEN_SLOTS = 4  # elements of a lane in a tile of a row whose length is open: many are short


@record
class GridPlan:
    """Who computes what.

    Args:
        is_flat: all points are one line.
        is_long: a group walks the tiles of a row one after the other.
        threads: of a block; a power of two, as are ``group`` and ``team``.
        group: lanes that hold a row, or a tile of it, together.
        slots: vectors that a lane holds.
        vector: neighbours in a vector.
        tiles: parts of a row.
        team: groups of one block that share rows out.
        kept: positions that accumulators keep, or 1. Here and below, numbers may be open sizes.
        shares: parts into which the rows of a kept position are cut, one for each team.
        rows: of a share.
        blocks: of the grid.
        transposes: what passes through shared memory in tiles, if anything does.
    """

    is_flat: bool
    is_long: bool
    threads: int
    group: int
    slots: int
    vector: int
    tiles: int
    team: int
    kept: int
    shares: int
    rows: int
    blocks: int
    transposes: Transposition | None = None

    @property
    def grid(self) -> Grid:
        return Grid(self.threads, (self.blocks, 1, 1))

    @property
    def tile(self) -> int:
        """Elements of a tile."""
        return self.group * self.slots * self.vector

    @property
    def groups(self) -> int:
        """Of a block."""
        return self.threads // self.group

    @property
    def teams(self) -> int:
        """Of the grid, not counting tiles."""
        return self.kept * self.shares

    @property
    def turns(self) -> int:
        """Rows that a group walks."""
        return -(-self.rows // self.team)


def plan_grid(program: LoopProgram, target: CudaTarget) -> tuple[Walk, GridPlan]:
    """Which loops run inside, and who computes what."""
    walk = Walk(program, program.rows, program.inner)
    has_columns = any(a.kind == "col" for a in program.accumulators)
    of_rows = ([], []) if program.is_flat and program.rows else row_results(walk)
    if program.reductions or any(store.value in program.in_place for _, store in of_rows[0]):
        return walk, _rows(walk, target.processors)
    has_rows = any(of_rows)
    if has_columns or has_rows:
        return walk, _columns(walk, target.processors)
    walk = Walk(program, (), (*program.rows, *program.inner))
    what = transposition(walk)
    if what is not None:
        blocks = what.blocks(walk)
        return walk, GridPlan(True, False, TILE_THREADS, TILE_THREADS, 1, what.vector, 1, 1, 1, 1, 1, blocks, what)
    return walk, _flat(walk, target.processors)


def _flat(walk: Walk, processors: int) -> GridPlan:
    vector = min(vector_width(walk), most_elements(walk))
    folds = bool(walk.program.accumulators)
    is_heavy = _expressions(walk) > LIGHT_EXPRESSIONS
    while is_heavy and vector > 1 and typical(walk.inner_count) < vector * processors * BUSY_THREADS:
        vector //= 2
    count = walk.inner_count // vector * vector  # what is left is a last, shorter turn
    usual = typical(count)
    threads = _within(_power_above(-(-usual // vector)), WARP, FLAT_THREADS)
    is_even = folds or count % (IN_FLIGHT * threads * vector) == 0
    is_large = usual >= MOST_ELEMENTS * threads * processors
    most = most_elements(walk) // vector
    slots = IN_FLIGHT if is_even and is_large and most >= IN_FLIGHT else 1
    tiles = size_max(1, -(-count // (threads * slots * vector)))
    blocks = tiles
    if folds and (is_symbolic(tiles) or tiles > ONE_LAUNCH):
        blocks = size_max(1, size_min(tiles, processors * FOLDING_THREADS // threads))
    elif folds:
        slots = min(_power_above(slots * tiles), most)  # one block waits for memory as often as it has turns
        tiles, blocks = -(-count // (threads * slots * vector)), 1
    return GridPlan(True, False, threads, threads, slots, vector, tiles, 1, 1, 1, 1, blocks)


def _expressions(walk: Walk) -> int:
    """How many expressions there are of an element, weighed by what they take."""
    functions = sum(isinstance(e, Applied) and not e.op.is_cheap and e.dtype.is_floating_point for e in walk.varying)
    return len(walk.varying) + (FUNCTION_EXPRESSIONS - 1) * functions


def _rows(walk: Walk, processors: int) -> GridPlan:
    rows, most, words = typical(walk.row_count), most_elements(walk), carried_words(walk)
    if is_symbolic(walk.inner_count):
        return _open_rows(walk, processors)
    if is_turned(walk) and rows >= processors * WARP:
        return _turned_rows(walk, processors)
    vector = min(vector_width(walk), most)
    vectors = -(-walk.inner_count // vector)
    widest = _within(_power_above(vectors), 1, MOST_THREADS)

    def holds(group: int, elements: int, most_registers: int = MOST_REGISTERS) -> bool:
        own, has = -(-vectors // group) * vector, min(registers(max(group, ROW_THREADS)), most_registers)
        return own <= elements and own * words <= (has - OWN_REGISTERS) // 2

    group = min(widest, WARP)
    while group < widest and not holds(group, most):
        group *= 2
    while WARP <= group < widest and rows * group < processors * BUSY_THREADS and holds(2 * group, most):
        group *= 2
    if holds(group, most) and not holds(group, most, LIVELY_REGISTERS):
        group = min(2 * group, widest)
    slots, tiles = -(-vectors // group), 1
    is_long = not holds(group, MOST_ELEMENTS)
    if is_long:
        group, slots = LONG_THREADS, max(1, most // 2 // vector)
        tiles = -(-vectors // (group * slots))
    threads = max(group, _within(_power_above(rows * group), WARP, ROW_THREADS))
    return _of_rows(walk, processors, is_long, threads, group, slots, vector, tiles)


def _open_rows(walk: Walk, processors: int) -> GridPlan:
    """Rows of open length: a group walks the tiles of each."""
    rows, most = typical(walk.row_count), most_elements(walk)
    vector = min(vector_width(walk), most)
    vectors = -(-walk.inner_count // vector)
    has_columns = any(a.kind == "col" for a in walk.program.accumulators)
    widest = _within(_power_above(typical(vectors)), WARP, LONG_THREADS)
    group = ROW_THREADS if has_columns else WARP
    while group < widest and rows * group < processors * BUSY_THREADS:
        group *= 2
    slots = max(1, min(OPEN_SLOTS, most // 2) // vector)
    tiles = size_max(1, -(-vectors // (group * slots)))
    threads = group if has_columns else max(group, ROW_THREADS)  # a team has the memory of its columns alone
    return _of_rows(walk, processors, True, threads, group, slots, vector, tiles)


def _turned_rows(walk: Walk, processors: int) -> GridPlan:
    """A lane for each row: neighbours in memory are in neighbouring rows."""
    slots = min(walk.inner_count, most_elements(walk) // 2)
    tiles = -(-walk.inner_count // slots)
    threads = _within(_power_above(typical(walk.row_count)), WARP, ROW_THREADS)
    return _of_rows(walk, processors, tiles > 1, threads, 1, slots, 1, tiles)


def _of_rows(
    walk: Walk, processors: int, is_long: bool, threads: int, group: int, slots: int, vector: int, tiles: int
) -> GridPlan:
    """The plan of groups that hold rows: each one row, or, where something is accumulated, the rows of a share."""
    rows, groups = walk.row_count, threads // group
    if not walk.program.accumulators:
        blocks = size_max(1, -(-rows // groups))
        return GridPlan(False, is_long, threads, group, slots, vector, tiles, 1, 1, rows, size_min(rows, 1), blocks)
    kept, team, shares, share, blocks = _shared_out(walk, groups, processors * FOLDING_THREADS // threads)
    return GridPlan(False, is_long, threads, group, slots, vector, tiles, team, kept, shares, share, blocks)


def _columns(walk: Walk, processors: int) -> GridPlan:
    vector = vector_width(walk)
    vectors = size_max(1, -(-walk.inner_count // vector))
    kept, folded = (typical(prod(v.extent for v in part)) for part in _parted(walk))
    lanes = typical(vectors)
    group = _within(_power_above(lanes), 1, WARP)
    while group > FEWEST_COLUMNS and kept * -(-lanes // group) < processors and folded * group >= 2 * COLUMN_THREADS:
        group //= 2
    tiles = -(-vectors // group)
    threads = _within(_power_above(typical(walk.row_count) * group), WARP, COLUMN_THREADS)
    most = processors * FOLDING_THREADS // threads // typical(tiles)
    kept, team, shares, share, blocks = _shared_out(walk, threads // group, most)
    return GridPlan(False, False, threads, group, 1, vector, tiles, team, kept, shares, share, blocks * tiles)


def _shared_out(walk: Walk, groups: int, blocks: int) -> tuple[int, int, int, int, int]:
    """(kept positions, groups of a team, shares of each position, rows of a share, blocks), of ``blocks`` at most.

    Fewer blocks than positions are not had: each position has a team.
    """
    kept, folded = (prod(v.extent for v in part) for part in _parted(walk))
    team = min(groups, _power_above(typical(folded) + 1) // 2 or 1)
    teams = groups // team
    shares = 1
    if is_symbolic(folded) or folded > ONE_LAUNCH * team:
        most = max(1, blocks * teams // max(typical(kept), 1))
        shares = size_max(1, size_min(-(-folded // (FEWEST_TURNS * team)), most))
    rows = -(-folded // shares)
    shares = size_max(1, -(-folded // size_max(rows, 1)))
    return kept, team, shares, rows, size_max(1, -(-kept * shares // teams))


def _parted(walk: Walk) -> tuple[Sequence[LoopVariable], Sequence[LoopVariable]]:
    """The rows' loops that accumulators keep, and those that they fold."""
    return walk.rows[: walk.program.prefix], walk.rows[walk.program.prefix :]


def _power_above(number: int) -> int:
    """The least power of two that is not less."""
    return 1 << max(number - 1, 0).bit_length()


def _within(number: int, low: int, high: int) -> int:
    return max(low, min(number, high))
