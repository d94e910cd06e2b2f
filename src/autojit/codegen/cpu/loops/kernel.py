"""A LoopProgram as one LLVM function for CPUs.

``void kernel(ptr args, i64 chunk, i64 worker)``: ``args`` is an array of buffer pointers (loads, then stores, then one
per accumulator, then one block of partial results when rows are cut into chunks; then the arguments of reports, see
`kernel_text`). Chunks cut the rows, or the single inner loop when there are no rows; their number depends on shapes
alone, so results do not depend on threads. With partial results a second function ``kernel_combine`` folds the chunks
in order.

How to read: ``print`` -> ``_rows`` -> ``row`` -> ``_phase`` -> ``_inner_loops``; expressions are in
`codegen.expressions`, what a row keeps in `row_cache`, reductions in `folds`, the division of work in `chunks`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import prod

from autojit.codegen.cpu.chunks import SUM_BLOCK, chunked_extent, exceeds_block, plan_chunks
from autojit.codegen.cpu.kernel_text import KernelModule, KernelText
from autojit.codegen.cpu.loops.partial_results import print_combine
from autojit.codegen.cpu.loops.row_blocks import BlockPrinter
from autojit.codegen.cpu.loops.walk import CpuWalk
from autojit.codegen.emission_order import FEWEST, emission_order
from autojit.codegen.expressions import Memo
from autojit.codegen.phases import Phase, phases_of, row_results
from autojit.codegen.piecewise import below, cuts, outcome
from autojit.core.config import config
from autojit.core.sizes import size_max, surely_less
from autojit.ir.index import LoopVariable
from autojit.schedule.bands import Slices
from autojit.schedule.expressions import Expr
from autojit.schedule.loops import LoopProgram, Store

Bounds = tuple[str, str]


class LoopPrinter(BlockPrinter):
    """Prints one kernel."""

    def __init__(self, program: LoopProgram, symbol: str, slices: Slices | None = None) -> None:
        super().__init__(KernelModule(), symbol, CpuWalk(program), is_checked=config.check)
        self.plan = plan_chunks(self.walk, slices)
        self.prepare_folds()

    def print(self) -> KernelText:
        program = self.program
        self.plan_cache()
        self.prepare_blocks()
        self.pointers(self.argument_sizes())
        if self.cache_bytes:
            self.place_cache(len(self.sizes) - 1)
        total = self.number(chunked_extent(self.walk, self.plan.over_inner))
        low, high = "0", total
        if self.plan.count != 1:
            low, high = self.chunk_bounds(self.plan.size, total)
        self.open_accumulators()
        if self.plan.over_inner:
            self.row((low, high))
        elif program.prefix:
            with self.loop(low, high, stem="prefix") as position:
                self._prefix_block(position)
        else:
            self._rows(low, high)
        self.close_accumulators()
        self.finish()
        if self.partial_bytes:
            print_combine(self)
        partial, scratch = self.partial_bytes, self.cache_bytes
        return self.kernel_text(self.plan.count, self.plan.estimate_ns, partial_bytes=partial, scratch_bytes=scratch)

    # -- rows

    def _prefix_block(self, position: str) -> None:
        """The rows of one kept position: its columns are filled, then folded into."""
        program = self.program
        folded = prod(v.extent for v in self.walk.rows[program.prefix :])
        for k, accumulator in enumerate(program.accumulators):
            if not accumulator.prefix:
                continue
            offset = self.mul(position, self.walk.inner_count)
            base = self.buffers[self.accumulator_argument(k)]
            self.bases[k] = self.address(base, accumulator.value.type.dtype, offset)
            self.fill(k)
        start = self.mul(position, folded)
        self._rows(start, self.add(start, folded))

    def _rows(self, low: str, high: str) -> None:
        """All rows of [low, high), in blocks that sums over the rows can end at."""
        block = size_max(1, SUM_BLOCK // size_max(self.walk.inner_count, 1))
        if self.block_rows:  # whole ones
            block = size_max(1, block // self.block_rows) * self.block_rows
        if not self.totals or surely_less(self.walk.row_count, block + 1):
            self._rows_between(low, high)
        else:
            self.in_sum_blocks(low, high, block, self._rows_between)

    def _rows_between(self, low: str, high: str) -> None:
        if self.block_rows:
            self.print_blocks(low, high)
            return
        with self.loop(low, high, stem="row") as row:
            self.set_counters(self.walk.rows, row)
            self.row(None)

    def row(self, bounds: Bounds | None) -> None:
        """One row: its phases, within bounds of the first inner loop."""
        self.row_memo = {}
        for phase in phases_of(self.walk):
            phase.kept += [e for e, (first, _) in self.cached.items() if first == phase.number]
            self._phase(phase, bounds)
        self._row_results()

    # -- one phase

    def _phase(self, phase: Phase, bounds: Bounds | None) -> None:
        roots = phase.roots()
        if not roots:
            return
        seen: set[Expr] = set()
        for root in (*roots, *self.walk.lookups_of(store.index for _, store in phase.stores)):
            self.hoist(root, phase.number, seen)
        self.pick_addresses(roots, phase.number)
        for reduction in phase.reductions:
            self.open_reduction(reduction)
        self._inner_loops(list(self.walk.inner), bounds, phase)
        for reduction in phase.reductions:
            self.close_reduction(reduction)

    def _inner_loops(self, loops: list[LoopVariable], bounds: Bounds | None, phase: Phase) -> None:
        if not loops:
            with self.parallel():
                self._point(phase)
            return
        variable, rest = loops[0], loops[1:]
        low, high = bounds or ("0", self.number(variable.extent))

        def part(start: str, stop: str) -> None:
            loop = self.loop(start, stop, stem="inner") if rest else self.parallel_loop(start, stop, "inner")
            with loop as counter:
                self.variables[variable] = counter
                self._inner_loops(rest, None, phase)

        def strip(start: str, stop: str) -> None:
            part(start, stop)
            for reduction in phase.reductions:
                if reduction.value in self.row_folds:
                    self.flush(self.row_folds[reduction.value])

        folds = bool(phase.reductions or self.totals)
        if folds and exceeds_block(variable.extent) and not rest:
            self.in_sum_blocks(low, high, SUM_BLOCK, strip)
        elif folds and exceeds_block(self.walk.inner_count) and not rest:
            strip(low, high)
            self.flush_accumulators()
        else:
            self._in_parts(loops, bounds, phase, part)

    def _in_parts(
        self, loops: list[LoopVariable], bounds: Bounds | None, phase: Phase, print_part: Callable[[str, str], None]
    ) -> None:
        """``print_part(start, stop)`` for every part of the first loop in which guards have one answer.

        Sums stay whole.
        """
        variable, exprs, places = loops[0], list[Expr](), list[int]()
        if self.has_guards and not (phase.reductions or self.totals):
            exprs += below(phase.roots(), lambda e: e not in self.walk.varying or self.is_kept(e, phase.number))
            places = cuts(exprs, variable, prod(v.extent for v in loops[1:]))
        if not places:
            print_part(*(bounds or ("0", self.number(variable.extent))))
            return
        before = self.answers
        for low, high in pairwise([0, *places, variable.extent]):
            start, stop = self.number(low), self.number(high)
            if bounds is not None:
                start = self.most(bounds[0], start)
                stop = self.least(bounds[1], stop)
            answers = {g: outcome(g, variable, low, high) for e in exprs for g in e.guards}
            self.answers = before | {guard: answer for guard, answer in answers.items() if answer is not None}
            print_part(start, stop)
        self.answers = before

    def _point(self, phase: Phase) -> None:
        """One point of the inner loops."""
        memo: Memo = {}
        stored = self._compute_in_order(phase, memo)
        for expr in phase.kept:
            self.keep(expr, self.expr(expr, memo, phase.number), memo)
        for reduction in phase.reductions:
            self.reduce_element(reduction, self.expr(reduction.expr, memo, phase.number), memo)
        self._store_all([store for store in phase.stores if store not in stored], memo)
        for k, accumulator in phase.accumulators:
            self.accumulate(k, [self.expr(accumulator.expr, memo, phase.number)], memo)

    def _compute_in_order(self, phase: Phase, memo: Memo) -> list[tuple[int, Store]]:
        """Compute what is below the roots of a long body, few values alive at a time; what was stored on the way."""

        def is_known(expr: Expr) -> bool:
            if expr in self.cached and self.cached[expr][0] < phase.number:
                return True
            return expr in self.row_memo and expr not in self.walk.varying

        stored: list[tuple[int, Store]] = []
        if len(self.program.exprs) < FEWEST:  # so the body is short, too
            return stored
        for expr in emission_order(phase.roots(), is_known):
            self.expr(expr, memo, phase.number)
            ripe = [(slot, store) for slot, store in phase.stores if store.expr is expr]
            self._store_all(ripe, memo)
            stored += ripe
        return stored

    def _store_all(self, stores: list[tuple[int, Store]], memo: Memo) -> None:
        """Write values to their buffers; what a buffer held before is read first, for those that still need it."""
        for slot, store in stores:
            phase = store.expr.phase
            value = self.expr(store.expr, memo, phase)
            self.read_overwritten(store, memo)
            self.write(len(self.program.loads) + slot, value, self.index(store.index, memo, phase))

    def _row_results(self) -> None:
        """Row-level stores and accumulators, after the last phase."""
        memo = self.row_memo
        stores, accumulators = row_results(self.walk)
        self._store_all(stores, memo)
        for k, accumulator in accumulators:
            self.accumulate(k, [self.expr(accumulator.expr, memo, accumulator.expr.phase)], memo)


def print_loops(program: LoopProgram, symbol: str, slices: Slices | None = None) -> KernelText:
    """The kernel's LLVM text and how it is cut (into ``slices`` in a band). ``program`` must be settled."""
    return LoopPrinter(program, symbol, slices).print()
