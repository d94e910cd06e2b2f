"""Rows in blocks: a phase goes over several rows at a time, and what is computed once a row is computed in vectors.

Row by row, a short row ends in a sum across lanes, a number a row is computed in one lane, and column sums go to
memory and back for every row. In a block of rows each phase takes `_unit` rows at a time: they share what they read,
and a column's terms are added up before they reach its accumulator. Between two phases, what depends on the row alone
is computed for the whole block, along vectors, and kept in local arrays. The block's rows are still in the first-level
cache when the second phase reads them.

How to read: ``in_blocks`` (which programs), ``print_blocks`` -> ``_row_step`` and ``_inner_step`` alternately.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod

from autojit.codegen.cpu.chunks import SUM_BLOCK, exceeds_block
from autojit.codegen.cpu.loops.folds import Fold
from autojit.codegen.cpu.loops.row_dots import DotPrinter
from autojit.codegen.expressions import Memo
from autojit.codegen.phases import Phase, phases_of, row_results
from autojit.codegen.scalar import Scalar
from autojit.core.records import record
from autojit.core.sizes import is_symbolic, size_min, typical
from autojit.ir.graph import Value
from autojit.ir.index import LoopVariable
from autojit.schedule.expressions import Applied, Expr, Load
from autojit.schedule.loops import Accumulator

# Measured on one Zen 4 core (32 KiB and 1 MiB of cache), `X.T @ f(X @ q)` in float32 with 20 to 1,024 columns.
BLOCK_BYTES = 16 * 1024  # of a block's rows: 8 and 24 KiB take 5 to 15 % longer
LEAST_BLOCK, MOST_BLOCK_BYTES = 8, 64 * 1024  # rows, as far as they stay in the second-level cache; 16 take 15 % longer
MOST_ROWS = 128  # a row step is a loop along them, and its arrays are on the stack
FEWEST_ROWS = 16  # two units: fewer are not worth the text of another loop
DOT_UNIT = 8  # rows of dot products at a time: as many sums hide the latency of a multiply-add
UNIT = 4  # and of anything else: 8 are not faster, and twice the text
UNIT_EXPRESSIONS = 32  # of all rows of a unit: longer bodies (layer norm's derivative) gain nothing, and compile longer
SHORT_ROW = 64  # elements: the end of a sum across lanes costs as much as its elements
WIDEST, SHORTEST = 16, 4  # elements of the parts that a short loop is cut into, and of those that are vectors


@record(frozen=False)
class _Row:
    """What is known of one row of a unit."""

    number: str
    variables: dict[LoopVariable, str]
    memo: Memo
    folds: dict[Value, Fold]


class BlockPrinter(DotPrinter):
    """A printer of rows in blocks."""

    def prepare_blocks(self) -> None:
        """Decide whether rows go in blocks, and of how many."""
        self.block_rows = 0
        self.unit = 1
        self.kept_of_rows: dict[Expr, str] = {}  # per block: arrays of what depends on the row alone
        self.results_of_rows: dict[int, str] = {}  # and of what reductions gave
        if not self._in_blocks():
            return
        self.block_rows = self._rows_of_block()
        self.unit = min(UNIT, self.block_rows)
        while self.unit > 1 and self.unit * len(self.walk.varying) > UNIT_EXPRESSIONS:
            self.unit //= 2
        if self.unit == 1 and not self._has_dots():
            self.block_rows = 0

    def _rows_of_block(self) -> int:
        """How many rows stay in the first-level cache from one phase to the next."""
        program, walk = self.program, self.walk
        varying = [e for e in program.exprs if isinstance(e, Load) and e in walk.varying]
        read = {e.buffer: e.dtype.size_bytes for e in varying if not set(walk.rows).isdisjoint(e.positions[0].walk())}
        stored = sum(s.value.type.dtype.size_bytes for s in program.stores if s.expr in walk.varying)
        row_bytes = max(1, typical(walk.inner_count) * (sum(read.values()) + stored))
        most = MOST_ROWS
        if any(self._varies(a) for a in program.accumulators if a.kind == "all"):
            most = max(1, SUM_BLOCK // max(1, typical(walk.inner_count)))  # sums end with blocks
        if not program.reductions:
            return most  # read once
        rows = max(BLOCK_BYTES // row_bytes, min(LEAST_BLOCK, MOST_BLOCK_BYTES // row_bytes), 1)
        rows = min(most, rows)
        return rows // DOT_UNIT * DOT_UNIT or 1 << rows.bit_length() - 1

    def _varies(self, accumulator: Accumulator) -> bool:
        return accumulator.full or accumulator.expr in self.walk.varying

    def _has_dots(self) -> bool:
        return any(self.factors_of(r) is not None for r in self.program.reductions)

    def _in_blocks(self) -> bool:
        program, walk = self.program, self.walk
        if program.is_flat or not walk.rows or self.has_guards or self.cached or program.lookups or program.in_place:
            return False
        if typical(walk.row_count) < FEWEST_ROWS or any(getattr(r.op, "is_pair", False) for r in program.reductions):
            return False
        if any(a.kind == "col" for a in program.accumulators):
            return True
        return bool(program.reductions) and (self._has_dots() or typical(walk.inner_count) <= SHORT_ROW)

    # -- a block

    def print_blocks(self, low: str, high: str) -> None:
        """All rows of [low, high)."""
        with self.loop(low, high, self.block_rows, stem="rows") as start:
            self._block(start, self.least(self.add(start, self.block_rows), high))

    def _block(self, start: str, stop: str) -> None:
        self.kept_of_rows, self.results_of_rows = {}, {}
        phases = phases_of(self.walk)
        for phase in phases:
            self._row_step(phase.number, self._frontier(phase), start, stop)
            if phase.roots():
                self._inner_step(phase, start, stop)
        self._row_step(len(phases), [], start, stop)

    def _frontier(self, phase: Phase) -> list[Expr]:
        """What the inner loops of a phase read that is computed once a row."""
        found: list[Expr] = []
        stack = phase.roots()
        seen: set[Expr] = set()
        while stack:
            expr = stack.pop()
            if expr in seen:
                continue
            seen.add(expr)
            if expr in self.walk.varying:
                stack.extend(reversed(expr.args))
            elif isinstance(expr, Applied) and expr not in self.kept_of_rows:
                found.append(expr)
        return found

    def _row_step(self, number: int, kept: list[Expr], start: str, stop: str) -> None:
        """What depends on the row alone, before phase ``number``: computed along the rows, along vectors."""
        stores, sums = row_results(self.walk)
        stores = [(k, s) for k, s in stores if s.expr.phase == number]
        sums = [(k, a) for k, a in sums if a.expr.phase == number]
        if not (kept or stores or sums):
            return
        arrays = {expr: self.array(expr.dtype, self.block_rows) for expr in kept}
        with self.parallel_loop(start, stop, "of_row") as row:
            self._enter_row(row, start)
            memo = self.row_memo
            for expr, array in arrays.items():
                value = self.expr(expr, memo, number)
                self.emit.store(value, self.address(array, expr.dtype, self.sub(row, start)), self.access)
            for k, store in stores:
                value = self.expr(store.expr, memo, number)
                self.write(len(self.program.loads) + k, value, self.index(store.index, memo, number))
            for k, accumulator in sums:
                self.accumulate(k, [self.expr(accumulator.expr, memo, number)], memo)
        self.kept_of_rows.update(arrays)

    def _enter_row(self, row: str, start: str) -> None:
        """Make a row the current one: what earlier phases found of it is known."""
        self.set_counters(self.walk.rows, row)
        self.row_memo = {}
        place = self.sub(row, start)
        for reduction in self.program.reductions:
            array = self.results_of_rows.get(reduction.number)
            if array is not None:
                dtype = reduction.value.type.dtype
                value = self.emit.load(self.address(array, dtype, place), dtype, self.access)
                self.row_memo["row", reduction.number] = value
        for expr, array in self.kept_of_rows.items():
            self.row_memo[expr] = self.emit.load(self.address(array, expr.dtype, place), expr.dtype, self.access)

    # -- a phase

    def _inner_step(self, phase: Phase, start: str, stop: str) -> None:
        """The inner loops of a phase, for all rows of the block."""
        dots = {r.number: self.factors_of(r) for r in phase.reductions}
        for reduction in phase.reductions:
            dtype = reduction.value.type.dtype
            array = self.array(dtype, self.block_rows + 2 * DOT_UNIT)  # a last unit may begin early or end late
            self.results_of_rows[reduction.number] = self.address(array, dtype, DOT_UNIT)
        for number, factors in dots.items():
            if factors is not None:
                self._dots_of_block(number, factors, start, stop)
        rest = replace(phase, reductions=[r for r in phase.reductions if dots[r.number] is None])
        if not rest.roots():
            return
        unit, single = self.unit, start
        if unit > 1:
            single = self.add(start, self.mul(self.quotient(self.sub(stop, start), unit), unit))
            with self.loop(start, single, unit, stem="unit") as first:
                self._unit_of_rows(rest, [self.add(first, k) if k else first for k in range(unit)], start)
        if unit == 1 or not self._are_whole(unit):
            with self.loop(single, stop, stem="row") as row:
                self._unit_of_rows(rest, [row], start)

    def _are_whole(self, unit: int) -> bool:
        """Whether all chunks and blocks are known to be whole units of rows."""
        plan, prefix = self.plan, self.program.prefix
        sizes = [prod(v.extent for v in self.walk.rows[prefix:]), self.block_rows]
        if plan.count != 1 and not prefix:
            sizes.append(plan.size)
        return all(not is_symbolic(n) and n % unit == 0 for n in sizes)

    def _begin_behind(self, unit: int) -> bool:
        """Whether as many rows as a unit are known to be there where a chunk ends, wherever it begins."""
        least = prod(v.extent for v in self.walk.rows[self.program.prefix :])
        if self.plan.count != 1 and not self.program.prefix:
            least = size_min(least, self.plan.size)
        return not is_symbolic(least) and least >= unit

    def _dots_of_block(self, number: int, factors: Sequence[Load], start: str, stop: str) -> None:
        """A reduction of all rows of the block."""
        unit = min(DOT_UNIT, self.block_rows)
        if self._begin_behind(unit):  # a unit that is not whole begins a few rows earlier
            with self.loop(start, stop, unit, stem="dots") as place:
                first = place if self._are_whole(unit) else self.least(place, self.sub(stop, unit))
                self._unit_of_dots(number, factors, [self.add(first, k) if k else first for k in range(unit)], start)
            return
        last = self.sub(stop, 1)
        with self.loop(start, stop, unit, stem="dots") as first:
            rows = [self.least(self.add(first, k), last) if k else first for k in range(unit)]
            self._unit_of_dots(number, factors, rows, start)

    def _unit_of_dots(self, number: int, factors: Sequence[Load], rows: Sequence[str], start: str) -> None:
        """A reduction of a few rows at once."""
        starts: list[list[str]] = []
        shared: Memo = {}  # positions that no row moves: one address, read once
        for row in rows:
            self.set_counters(self.walk.rows, row)
            self.variables[self.walk.inner[0]] = "0"
            self.row_memo = {}
            starts.append([self._start_of(factor, shared) for factor in factors])
        dtype = factors[0].dtype
        place = self.sub(rows[0], start)
        for vector, sums in self.print_dots(factors, starts):
            at = self.address(self.results_of_rows[number], dtype, place)
            self.store_vector(vector, sums, at)
            place = self.add(place, vector.lanes)

    def _start_of(self, factor: Load, shared: Memo) -> str:
        """The address of a factor's first element in the current row."""
        (position,) = factor.positions
        is_shared = set(position.walk()).isdisjoint(self.walk.rows)
        known = shared.get(factor) if is_shared else None
        if known is None:
            where = self.index(position, self.row_memo)
            known = shared[factor] = self.address(self.buffers[factor.buffer], factor.dtype, where)
        found: str = known
        return found

    def _unit_of_rows(self, phase: Phase, numbers: list[str], start: str) -> None:
        """A phase of a few rows at once."""
        rows: list[_Row] = []
        for number in numbers:
            self._enter_row(number, start)
            self.row_folds = {}
            seen: set[Expr] = set()
            for root in phase.roots():
                self.hoist(root, phase.number, seen)
            for reduction in phase.reductions:
                self.open_reduction(reduction)
            rows.append(_Row(number, dict(self.variables), self.row_memo, self.row_folds))
        self._inner_of_unit(list(self.walk.inner), phase, rows)
        for row in rows:
            self._resume(row)
            place = self.sub(row.number, start)
            for reduction in phase.reductions:
                self.close_reduction(reduction)
                dtype = reduction.value.type.dtype
                value = self.row_memo["row", reduction.number]
                self.emit.store(value, self.address(self.results_of_rows[reduction.number], dtype, place))

    def _resume(self, row: _Row) -> None:
        self.variables.update({v: row.variables[v] for v in self.walk.rows})
        self.row_memo, self.row_folds = row.memo, row.folds

    def _inner_of_unit(self, loops: list[LoopVariable], phase: Phase, rows: list[_Row]) -> None:
        """The inner loops, for all rows of a unit at once."""
        if not loops:
            with self.parallel():
                self._points(phase, rows)
            return
        variable, rest = loops[0], loops[1:]

        def strip(low: str, high: str) -> None:
            loop = self.loop(low, high, stem="inner") if rest else self.parallel_loop(low, high, "inner")
            with loop as counter:
                self.variables[variable] = counter
                self._inner_of_unit(rest, phase, rows)
            if phase.reductions and not rest and exceeds_block(self.walk.inner_count):
                for row in rows:
                    for fold in row.folds.values():
                        self.flush(fold)

        extent = variable.extent
        low, high = "0", self.number(extent)
        if phase.reductions and not rest and exceeds_block(variable.extent):
            self.in_sum_blocks(low, high, SUM_BLOCK, strip)
        elif phase.reductions or rest or is_symbolic(extent):
            strip(low, high)
        else:
            self.shortest_vectorised = SHORTEST
            for first, last in pairwise(_cuts(extent)):
                strip(str(first), str(last))
            del self.shortest_vectorised

    def _points(self, phase: Phase, rows: list[_Row]) -> None:
        """One point of the inner loops in each row."""
        memos: list[Memo] = []
        for row in rows:
            self._resume(row)
            memo: Memo = {}
            memos.append(memo)
            for reduction in phase.reductions:
                self.reduce_element(reduction, self.expr(reduction.expr, memo, phase.number), memo)
            for k, store in phase.stores:
                value = self.expr(store.expr, memo, phase.number)
                self.write(len(self.program.loads) + k, value, self.index(store.index, memo, phase.number))
        for k, accumulator in phase.accumulators:
            values: list[Scalar] = []
            for row, memo in zip(rows, memos, strict=True):
                self._resume(row)
                values.append(self.expr(accumulator.expr, memo, phase.number))
            self.accumulate(k, values, memos[-1])


def _cuts(extent: int) -> list[int]:
    """Where to cut a loop into parts that are whole vectors: a rest of 13 is one of 8, one of 4 and one of 1."""
    found = [0]
    size = WIDEST
    while found[-1] < extent:
        whole = (extent - found[-1]) // size * size
        if whole:
            found.append(found[-1] + whole)
        size //= 2
    return found
