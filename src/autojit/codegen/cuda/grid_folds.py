"""Folds of a program's grid: what a lane holds of a row, what threads total up, what a block leaves behind.

Totals (accumulators of kind "all") are a local variable of each thread, in the wide dtype of `partial_dtype`, which
takes a tile's fold at a time. Columns are a variable for every element that the lane holds, or, in long rows, memory of
the team's partial results.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from autojit.codegen.cuda.grid_expressions import Point
from autojit.codegen.cuda.grid_plan import GridPlan
from autojit.codegen.cuda.lane_folds import Combine, LaneFolds, State
from autojit.codegen.cuda.shifted_reads import ShiftedReads
from autojit.codegen.folding import fold_dtype, partial_dtype, rounded_to, total_dtype
from autojit.codegen.function_text import Operand
from autojit.codegen.scalar import Scalar
from autojit.codegen.walk import Walk
from autojit.core.dtypes import DType, int64
from autojit.core.records import record
from autojit.schedule.loops import Accumulator, RowReduction

Counted = tuple[Scalar, str | None]
"""A value, and the condition under which it counts."""

PARTIAL_ALIGNMENT = 16  # bytes: where an accumulator's partial results begin


@record
class Partials:
    """The partial results of an accumulator: ``count`` for each element, of ``columns`` each, from a byte offset on."""

    offset: int
    count: int
    columns: int


class GridFolds(LaneFolds, ShiftedReads):
    """A kernel on a GPU that folds what its expressions say."""

    def __init__(self, plan: GridPlan, walk: Walk, *, is_checked: bool) -> None:
        super().__init__(plan.grid, walk, is_checked=is_checked)
        self.plan = plan
        self.totals: dict[int, str] = {}  # accumulators of kind "all" -> the thread's variable
        self.columns: dict[int, list[str]] = {}  # of kind "col" -> a variable for each element that the lane holds
        self.long_columns = ("0", "0")  # the team's share, and where its columns begin
        self.partial_results: dict[int, Partials] = {}  # what a single team or block does not finish
        self.partial_bytes = 0
        for number, accumulator in enumerate(self.program.accumulators):
            self._place(number, accumulator)

    def _place(self, number: int, accumulator: Accumulator) -> None:
        """Decide whether an accumulator has partial results, and where."""
        is_column, plan = accumulator.kind == "col", self.plan
        count = plan.shares if is_column else plan.blocks
        columns = self.walk.inner_count * plan.kept if is_column else 1
        if count != 1 or (is_column and plan.is_long):
            self.partial_results[number] = Partials(self.partial_bytes, count, columns)
            size = count * columns * partial_dtype(accumulator).size_bytes
            self.partial_bytes = self.round_up_bytes(self.partial_bytes + size)

    @property
    def first_result(self) -> int:
        """The buffer of the first accumulator."""
        return len(self.program.loads) + len(self.program.stores)

    @staticmethod
    def round_up_bytes(size: int) -> int:
        return -(-size // PARTIAL_ALIGNMENT) * PARTIAL_ALIGNMENT

    # -- of one thread

    def folded(self, op: Any, values: Sequence[Counted], dtype: DType) -> Scalar:
        """Values that count under a condition, in order, in the dtype that folds of ``dtype`` run in."""
        within = fold_dtype(dtype)
        identity, total = self.identity(op, within), None
        for value, condition in values:
            element = self.masked(Scalar(value.text, within), condition, identity)
            total = element if total is None else self.combine(op, total, element)
        return identity if total is None else total

    def best(self, reduction: RowReduction, points: Sequence[Point]) -> State:
        """The best value among points in order of their positions, and its position; -1 where there is none."""
        within, emit = fold_dtype(reduction.expr.dtype), self.emit
        state: State = (emit.constant(0, within), emit.constant(-1, int64))
        for point in points:
            value = self.at_point(point, reduction.expr, reduction.expr.phase)
            here = self.masked(Scalar(point.position, int64), point.inside, emit.constant(-1, int64))
            state = self.better(reduction.op, state, (Scalar(value.text, within), here))
        return state

    def better(self, op: Any, a: State, b: State) -> State:
        """Of two values with positions the one that beats the other, of equals the earlier; position -1 is none."""
        emit = self.emit
        beats = op.lower(emit, a[0].dtype)[1]
        is_earlier = emit.logical_and(emit.logical_not(beats(a[0], b[0])), emit.lt(b[1], a[1]))
        wins = emit.logical_or(beats(b[0], a[0]), is_earlier)
        takes = emit.logical_and(emit.ge(b[1], 0), emit.logical_or(emit.lt(a[1], 0), wins))
        return emit.select(takes, b[0], a[0]), emit.select(takes, b[1], a[1])

    # -- reductions over a row

    def fold_points(self, reduction: RowReduction, points: Sequence[Point]) -> State:
        """A reduction over the points of a lane."""
        if getattr(reduction.op, "is_pair", False):
            return self.best(reduction, points)
        expr = reduction.expr
        values = [(self.at_point(point, expr, expr.phase), point.inside) for point in points]
        return (self.folded(reduction.op, values, expr.dtype),)

    def joining(self, reduction: RowReduction) -> Combine:
        """How its states combine."""
        if getattr(reduction.op, "is_pair", False):
            return lambda a, b: self.better(reduction.op, a, b)
        return self.plain(reduction.op)

    def wide(self, reduction: RowReduction, state: State) -> State:
        """A state as totals of many tiles take it: float32 sums are added up in float64."""
        if len(state) > 1:
            return state
        return (self.emit.cast(state[0], total_dtype(reduction.op.name, reduction.expr.dtype)),)

    # -- columns

    @property
    def has_columns(self) -> bool:
        return any(a.kind == "col" for a in self.program.accumulators) and self.walk.inner_count != 0

    def open_columns(self, count: int) -> None:
        """Variables for as many elements as the lane holds."""
        for number, accumulator in self._column_accumulators():
            within = fold_dtype(accumulator.value.type.dtype)
            self.columns[number] = [self.slot(within) for _ in range(count)]
            for slot in self.columns[number]:
                self.put(slot, self.identity(accumulator.op, within))

    def clear_columns(self, point: Point, share: str, columns: str, present: str | None) -> None:
        """Begin an element of long columns, which are memory of the team's partial results."""
        with self.perhaps(self.all_of(point.inside, present)):
            for number, accumulator in self._column_accumulators():
                identity = self.identity(accumulator.op, partial_dtype(accumulator))
                self.emit.store(identity, self.partial_address(number, share, self.offset(columns, point.position)))

    def add_to_columns(self, number: int, values: Sequence[Counted], points: Sequence[Point]) -> None:
        """Fold an element of the row into each column that the lane holds."""
        op = self.program.accumulators[number].op
        within = fold_dtype(self.program.accumulators[number].value.type.dtype)
        for k, (point, (value, condition)) in enumerate(zip(points, values, strict=True)):
            element = Scalar(value.text, within)
            if not self.plan.is_long:
                slot = self.columns[number][k]
                element = self.masked(element, condition, self.identity(op, within))
                self.put(slot, self.combine(op, self.get(slot, within), element))
                continue
            share, columns = self.long_columns
            at = self.partial_address(number, share, self.offset(columns, point.position))
            with self.perhaps(condition):
                self.emit.store(self.combine(op, self.emit.load(at, within), element), at)

    def close_columns(self, points: Sequence[Point], share: str, columns: str, first: str | None) -> None:
        """Fold the columns of a team's groups; the lanes of its first group leave the results."""
        low = self.plan.group.bit_length() - 1
        high = low + self.plan.team.bit_length() - 1
        for number, accumulator in self._column_accumulators():
            within = fold_dtype(accumulator.value.type.dtype)
            states: list[State] = [(self.get(slot, within),) for slot in self.columns[number]]
            if high > low:
                states = self.over_lanes(states, [self.plain(accumulator.op)] * len(states), low, high)
            for _, vector in groupby(zip(points, states, strict=True), lambda pair: pair[0].slot):
                together = list(vector)
                with self.perhaps(self.all_of(together[0][0].inside, first)):
                    for point, (total,) in together:
                        self.leave(number, total, share, self.offset(columns, point.start.position), point.shift)

    def _column_accumulators(self) -> list[tuple[int, Accumulator]]:
        return [(k, a) for k, a in enumerate(self.program.accumulators) if a.kind == "col"]

    # -- totals

    def open_totals(self) -> None:
        for number, accumulator in enumerate(self.program.accumulators):
            if accumulator.kind == "all":
                wide = partial_dtype(accumulator)
                self.totals[number] = self.slot(wide)
                self.put(self.totals[number], self.identity(accumulator.op, wide))

    def add_to_total(self, number: int, value: Scalar) -> None:
        """Fold a tile's value into the thread's total."""
        op, wide = self.program.accumulators[number].op, partial_dtype(self.program.accumulators[number])
        total = self.combine(op, self.get(self.totals[number], wide), self.emit.cast(value, wide))
        self.put(self.totals[number], total)

    def close_totals(self) -> None:
        """Fold the totals of a block's threads; the first of them leaves the result."""
        if not self.totals:
            return
        accumulators = [self.program.accumulators[number] for number in self.totals]
        states = [(self.get(self.totals[n], partial_dtype(a)),) for n, a in zip(self.totals, accumulators, strict=True)]
        bits = self.plan.threads.bit_length() - 1
        found = self.over_lanes(states, [self.plain(a.op) for a in accumulators], 0, bits)
        with self.when(self.test("eq", self.thread, 0)):
            for number, (total,) in zip(self.totals, found, strict=True):
                self.leave(number, total, self.block_x, 0)

    def leave(self, number: int, value: Scalar, part: Operand, column: Operand, shift: int = 0) -> None:
        """Write an element of an accumulator, ``shift`` behind a column: the result, or one of its partial results."""
        accumulator = self.program.accumulators[number]
        if number in self.partial_results:
            wide = partial_dtype(accumulator)
            self.emit.store(self.emit.cast(value, wide), self.partial_address(number, part, column, shift))
            return
        argument = self.first_result + number
        result = rounded_to(self.emit, value, accumulator.value.type.dtype)
        self.write(argument, result, self.behind(self.number(column), shift))

    def partial_address(self, number: int, part: Operand, column: Operand, shift: int = 0) -> str:
        """Where an element of a partial result is, ``shift`` behind a column."""
        where = self.partial_results[number]
        place = self.offset(self.scaled(part, where.columns), column)
        start = self.at(self.partials, where.offset)
        return self.address(start, partial_dtype(self.program.accumulators[number]), self.behind(place, shift))
