"""How a loop kernel's work is cut into chunks, by shapes alone, so that results do not depend on threads."""

from __future__ import annotations

from math import prod

from autojit.codegen.walk import Walk
from autojit.core.records import record
from autojit.core.sizes import is_symbolic, size_max, size_min, surely_less, typical
from autojit.schedule.bands import Slices
from autojit.schedule.expressions import Applied, Guarded, Load, RandomWord

# Times of one Zen 4 core with AVX2, to the order of magnitude: they only say how many chunks a kernel is worth.
STEP_NS = 0.07  # one vectorised arithmetic step per element
BYTE_NS = 0.03  # one byte moved through a cache level: 25 to 40 GB/s
CHUNK_NS = 25_000.0  # least work of a chunk: idle workers take some 43 us to wake up (design note on threads)
MAX_CHUNKS = 64  # no measurement is recorded: a few for each thread of a large machine
MAX_PARTIAL_CHUNKS = 16  # likewise: one thread folds as many partial results, serially, at the end
ROW_ALIGN = 8  # rows that are folded: whole units of `loops.row_blocks`
INNER_ALIGN = 1024  # elements: a page of float32, so that two chunks share no page and no vector
# Elements that a float32 sum takes before it is added to a float64 total. Blocks of 1,024 were measured and cost
# nothing (37 GB/s from memory); of 4,096 no measurement is recorded.
SUM_BLOCK = 4096


def exceeds_block(elements: int) -> bool:
    """Whether a sum over this many elements may take more than one block."""
    return not surely_less(elements, SUM_BLOCK + 1)


@record
class ChunkPlan:
    """How a kernel is cut: ``count`` chunks of ``size`` rows (or inner elements when ``over_inner``)."""

    count: int
    size: int
    over_inner: bool
    estimate_ns: float


def plan_chunks(walk: Walk, slices: Slices | None = None) -> ChunkPlan:
    """Cut the work by its estimated time, or into the given slices of a band; depends on shapes only."""
    program = walk.program
    per_point, per_row = costs_ns(walk)
    estimate = typical(walk.row_count) * (typical(walk.inner_count) * per_point + per_row)
    has_partials = any(not a.prefix for a in program.accumulators)
    most = MAX_PARTIAL_CHUNKS if has_partials else MAX_CHUNKS
    over_inner = not walk.rows and len(walk.inner) == 1 and not program.reductions
    total = chunked_extent(walk, over_inner)
    if slices is not None:
        return ChunkPlan(slices.count, slices.part(total), over_inner, estimate)
    if total == 0:
        return ChunkPlan(1, 1, over_inner, estimate)
    picoseconds = walk.row_count * (walk.inner_count * round(1000 * per_point) + round(1000 * per_row))
    wanted = wanted_chunks(estimate, picoseconds, most)
    size = -(-total // wanted)
    if over_inner:
        size = size_min(total, -(-size // INNER_ALIGN) * INNER_ALIGN)
    elif (program.reductions or program.accumulators) and not is_symbolic(size) and size >= 4 * ROW_ALIGN:
        size = -(-size // ROW_ALIGN) * ROW_ALIGN  # few long rows stay as they are: they would be fewer chunks
    size = size_max(size, 1)
    return ChunkPlan(-(-total // size), size, over_inner, estimate)


def wanted_chunks(estimate_ns: float, picoseconds: int, most: int) -> int:
    """How many chunks the work is worth: by ``estimate_ns``, or by ``picoseconds`` where that is a symbolic size."""
    if not is_symbolic(picoseconds):
        return max(1, min(most, int(estimate_ns / CHUNK_NS)))
    return size_max(1, size_min(most, picoseconds // round(1000 * CHUNK_NS)))


def even_chunks(units: int, estimate_ns: float, picoseconds: int) -> tuple[int, int]:
    """(number, size) of the chunks that work of this many units is worth."""
    size = size_max(1, -(-units // wanted_chunks(estimate_ns, picoseconds, MAX_CHUNKS)))
    return size_max(1, -(-units // size)), size


def chunked_extent(walk: Walk, over_inner: bool) -> int:
    """How many rows (kept rows, inner elements) the chunks cut."""
    if over_inner:
        return walk.inner_count
    prefix = walk.program.prefix
    return prod(v.extent for v in walk.rows[:prefix]) if prefix else walk.row_count


def costs_ns(walk: Walk) -> tuple[float, float]:
    """Rough single-thread time of one point and, on top of its points, of one row."""
    program = walk.program
    per_point = per_row = 0.0
    for expr in program.exprs:
        cost = 0.0
        if isinstance(expr, Applied):
            cost = STEP_NS * (1 if expr.op.is_cheap else 8)
        elif isinstance(expr, Load | Guarded):
            cost = BYTE_NS * expr.dtype.size_bytes
        elif isinstance(expr, RandomWord):
            cost = STEP_NS * 40
        if expr in walk.varying:
            per_point += cost
        else:
            per_row += cost * 4
    for store in program.stores:
        if store.expr in walk.varying:
            per_point += 2 * BYTE_NS * store.value.type.dtype.size_bytes
    per_point += STEP_NS * (len(program.reductions) + 2 * len(program.accumulators))
    return per_point, per_row + 3.0 * (1 + len(program.reductions))
