"""The kernel that makes results of partial results.

Each element has a column of threads: every thread folds some of the parts, in order, and the threads fold what they
have as in any block (`lane_folds`). So the order depends on the number of parts, and on nothing that happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from autojit.codegen.cuda.grid_folds import Partials
from autojit.codegen.cuda.grid_function import WARP, Grid
from autojit.codegen.cuda.lane_folds import LaneFolds
from autojit.codegen.folding import partial_dtype, rounded_to
from autojit.codegen.grid_text import Buffer, GridText
from autojit.core.records import record
from autojit.schedule.loops import LoopProgram

THREADS = 256


@record
class _Part:
    """The blocks that serve one accumulator: from ``first`` on, each ``columns`` elements."""

    number: int
    first: int
    blocks: int
    columns: int


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
        columns = min(WARP, 1 << max(where.columns - 1, 0).bit_length())
        parts.append(_Part(number, blocks, -(-where.columns // columns), columns))
        blocks += parts[-1].blocks
    function = LaneFolds(Grid(THREADS, (max(blocks, 1), 1, 1)), follows_reports=kernel.reports)
    function.pointers(kernel.sizes)
    for part in parts:
        last = function.test("ult", function.block_x, part.first + part.blocks)
        with function.when(function.both(function.test("uge", function.block_x, part.first), last)):
            _combine(function, kernel, part)
    written = [Buffer("writes", b.element_bytes) for b in buffers]  # of which it is only passed most
    return function.finished(written, partial_bytes=kernel.partial_bytes)


def _combine(function: LaneFolds, kernel: LeavesPartials, part: _Part) -> None:
    """The elements of one accumulator that a block serves."""
    where, accumulator = kernel.partial_results[part.number], kernel.program.accumulators[part.number]
    op, wide, rows = accumulator.op, partial_dtype(accumulator), THREADS // part.columns
    row, lane = function.quotient(function.thread, part.columns), function.remainder(function.thread, part.columns)
    block = function.sub(function.block_x, part.first)
    element = function.offset(function.scaled(block, part.columns), lane)
    inside = None if where.columns % part.columns == 0 else function.test("ult", element, where.columns)
    column = element if inside is None else function.at_most(element, where.columns - 1)
    total = function.slot(wide)
    function.put(total, function.identity(op, wide))
    start = function.at(function.partials, where.offset)
    with function.loop(row, where.count, rows, stem="part") as number:
        place = function.offset(function.scaled(number, where.columns), column)
        value = function.emit.load(function.address(start, wide, place), wide)
        function.put(total, function.combine(op, function.get(total, wide), value))
    bits = THREADS.bit_length() - 1
    states = [(function.get(total, wide),)]
    ((found,),) = function.over_lanes(states, [function.plain(op)], part.columns.bit_length() - 1, bits)
    with function.perhaps(function.all_of(function.test("eq", row, 0), inside)):
        result = rounded_to(function.emit, found, accumulator.value.type.dtype)
        function.write(kernel.first_result + part.number, result, column)
