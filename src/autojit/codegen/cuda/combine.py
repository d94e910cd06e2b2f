"""The kernel that makes results of partial results.

Each element has a column of threads: every thread folds some of the parts, in order, and the threads fold what they
have as in any block (`lane_folds`). So the order depends on the number of parts, and on nothing that happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from autojit.codegen.cuda.grid_folds import Partials
from autojit.codegen.cuda.grid_function import WARP, Grid
from autojit.codegen.cuda.lane_folds import LaneFolds, State
from autojit.codegen.cuda.lane_limits import VECTOR_BYTES
from autojit.codegen.folding import partial_dtype, rounded_to
from autojit.codegen.grid_text import Buffer, GridText
from autojit.core.records import record
from autojit.schedule.loops import LoopProgram

THREADS = 256
FEWEST_COLUMNS = 8  # lanes side by side: of 16 bytes each they take a whole line of the cache
BUSY_BLOCKS = 64  # half of the processors of a large GPU: columns are taken by fewer lanes each until there are as many


@record
class _Part:
    """The blocks that serve one accumulator: from ``first`` on, each ``columns`` lanes of ``vector`` elements."""

    number: int
    first: int
    blocks: int
    columns: int
    vector: int


class LeavesPartials(Protocol):
    """A kernel some of whose accumulators have partial results."""

    partial_results: dict[int, Partials]
    partial_bytes: int
    sizes: Sequence[int]

    @property
    def program(self) -> LoopProgram:
        """Whose accumulators they are."""

    @property
    def reports(self) -> bool:
        """Whether the kernel takes error words."""

    @property
    def first_result(self) -> int:
        """The buffer of the first accumulator."""


def print_combine(kernel: LeavesPartials, buffers: Sequence[Buffer]) -> GridText:
    """The second kernel of one with these buffers that leaves partial results; it takes the same arguments."""
    parts: list[_Part] = []
    blocks = 0
    for number, where in kernel.partial_results.items():
        vector = _neighbours(where.columns, partial_dtype(kernel.program.accumulators[number]).size_bytes)
        lanes = -(-where.columns // vector)
        columns = min(WARP, 1 << max(lanes - 1, 0).bit_length())
        while columns > FEWEST_COLUMNS and -(-lanes // columns) < BUSY_BLOCKS:
            columns //= 2
        parts.append(_Part(number, blocks, -(-lanes // columns), columns, vector))
        blocks += parts[-1].blocks
    function = LaneFolds(Grid(THREADS, (max(blocks, 1), 1, 1)), follows_reports=kernel.reports)
    function.pointers(kernel.sizes)
    for part in parts:
        last = function.test("ult", function.block_x, part.first + part.blocks)
        with function.when(function.both(function.test("uge", function.block_x, part.first), last)):
            _combine(function, kernel, part)
    written = [Buffer("writes", b.element_bytes, b.in_pieces) for b in buffers]  # of which it is only passed most
    return function.finished(written, partial_bytes=kernel.partial_bytes)


def _neighbours(columns: int, size_bytes: int) -> int:
    """How many elements of partial results a thread folds side by side: a wide access, where they have whole ones."""
    vector = VECTOR_BYTES // size_bytes
    while columns % vector:
        vector //= 2
    return vector


def _combine(function: LaneFolds, kernel: LeavesPartials, part: _Part) -> None:
    """The elements of one accumulator that a block serves."""
    where, accumulator = kernel.partial_results[part.number], kernel.program.accumulators[part.number]
    op, wide, rows = accumulator.op, partial_dtype(accumulator), THREADS // part.columns
    row, lane = function.quotient(function.thread, part.columns), function.remainder(function.thread, part.columns)
    block = function.sub(function.block_x, part.first)
    element = function.scaled(function.offset(function.scaled(block, part.columns), lane), part.vector)
    is_exact = where.columns % (part.columns * part.vector) == 0
    inside = None if is_exact else function.test("ult", element, where.columns)
    column = element if inside is None else function.at_most(element, where.columns - part.vector)
    totals = [function.slot(wide) for _ in range(part.vector)]
    for total in totals:
        function.put(total, function.identity(op, wide))
    start = function.at(function.partials, where.offset)
    with function.loop(row, where.count, rows, stem="part") as number:
        place = function.offset(function.scaled(number, where.columns), column)
        first = function.address(start, wide, place)
        values = [function.emit.load(function.address(first, wide, k), wide) for k in range(part.vector)]
        for total, value in zip(totals, values, strict=True):
            function.put(total, function.combine(op, function.get(total, wide), value))
    bits = THREADS.bit_length() - 1
    states: list[State] = [(function.get(total, wide),) for total in totals]
    found = function.over_lanes(states, [function.plain(op)] * len(states), part.columns.bit_length() - 1, bits)
    with function.perhaps(function.all_of(function.test("eq", row, 0), inside)):
        for k, (folded,) in enumerate(found):
            result = rounded_to(function.emit, folded, accumulator.value.type.dtype)
            function.write(kernel.first_result + part.number, result, function.offset(column, k))
