"""Printing the folds of a LoopProgram: reductions over the inner loops and accumulators over the rows.

Every fold runs in a local variable or, for column accumulators, in memory. Sums of float32 are cut into blocks of
``SUM_BLOCK`` elements, by shapes alone: a block is summed in float32 (many lanes), the blocks in float64, so that the
error does not grow with the number of elements. `FoldPrinter.flush` ends a block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from autojit.codegen.cpu.chunks import ChunkPlan, exceeds_block
from autojit.codegen.cpu.loops.row_cache import CachingPrinter
from autojit.codegen.cpu.machine import aligned
from autojit.codegen.expressions import Memo
from autojit.codegen.folding import fold_dtype, partial_dtype, rounded_to, total_dtype
from autojit.codegen.scalar import Scalar
from autojit.core.dtypes import DType, int64
from autojit.core.records import record
from autojit.ir.graph import Value
from autojit.schedule.loops import Accumulator, RowReduction


@record
class Fold:
    """The variables of one fold: ``slot`` of ``dtype`` takes elements, ``total`` of ``wide`` takes blocks (if any)."""

    op: Any
    dtype: DType
    slot: str
    wide: DType
    total: str


class FoldPrinter(CachingPrinter):
    """A printer of expressions that folds."""

    plan: ChunkPlan

    def prepare_folds(self) -> None:
        """Decide what has partial results and where they are in a chunk's block."""
        self.row_folds: dict[Value, Fold] = {}
        self.row_pairs: dict[Value, tuple[str, str]] = {}  # (slot of the best value, slot of its position)
        self.totals: dict[int, Fold] = {}  # accumulators of kind "all", by position
        self.bases: dict[int, str] = {}  # accumulators of kind "col": address of their first element
        self.partials: dict[int, int] = {}  # accumulator position -> byte offset in a chunk's block
        offset = 0
        for k, accumulator in enumerate(self.program.accumulators):
            if accumulator.prefix or self._is_direct(accumulator):
                dtype = accumulator.value.type.dtype  # what folds in memory has room for what it folds in
                assert accumulator.kind == "all" or fold_dtype(dtype) is dtype, accumulator
                continue
            self.partials[k] = offset
            count = self.walk.inner_count if accumulator.kind == "col" else 1
            offset += aligned(count * partial_dtype(accumulator).size_bytes)
        self.partial_bytes = offset

    def _is_direct(self, accumulator: Accumulator) -> bool:
        """Whether one chunk writes the result itself."""
        dtype = accumulator.value.type.dtype
        return self.plan.count == 1 and (accumulator.kind == "all" or fold_dtype(dtype) is dtype)

    def argument_sizes(self) -> list[int]:
        """Elements behind every argument."""
        program = self.program
        values = [*program.loads, *(s.value for s in program.stores), *(a.value for a in program.accumulators)]
        sizes = [v.type.size for v in values]
        sizes += [self.plan.count * self.partial_bytes] if self.partial_bytes else []
        return sizes + ([self.cache_bytes] if self.cache_bytes else [])

    def partial_argument(self) -> int:
        """The argument of the partial results."""
        return len(self.sizes) - (2 if self.cache_bytes else 1)

    def accumulator_argument(self, position: int) -> int:
        return len(self.program.loads) + len(self.program.stores) + position

    # -- one fold

    def open_fold(self, op: Any, dtype: DType, *, is_long: bool) -> Fold:
        """Variables that hold the identity."""
        fold_in = fold_dtype(dtype)
        wide = total_dtype(op.name, dtype) if is_long else fold_in
        slot = self.slot(fold_in)
        fold = Fold(op, fold_in, slot, wide, slot if wide is fold_in else self.slot(wide))
        self.put(slot, self._identity(op, fold_in))
        if fold.total != slot:
            self.put(fold.total, self._identity(op, wide))
        return fold

    def _identity(self, op: Any, dtype: DType) -> Scalar:
        identity: Scalar = op.lower(self.fold, dtype)[0]
        return identity

    def fold_into(self, fold: Fold, value: Scalar) -> None:
        combine: Callable[[Scalar, Scalar], Scalar] = fold.op.lower(self.fold, fold.dtype)[1]
        self.put(fold.slot, combine(self.get(fold.slot, fold.dtype), Scalar(value.text, fold.dtype)))

    def flush(self, fold: Fold) -> None:
        """End a block: its sum joins the total."""
        if fold.total == fold.slot:
            return
        block = self.emit.cast(self.get(fold.slot, fold.dtype), fold.wide)
        self.put(fold.total, self.emit.add(self.get(fold.total, fold.wide), block))
        self.put(fold.slot, self._identity(fold.op, fold.dtype))

    # -- reductions over the inner loops

    def open_reduction(self, reduction: RowReduction) -> None:
        dtype = reduction.expr.dtype
        if not getattr(reduction.op, "is_pair", False):
            is_long = exceeds_block(self.walk.inner_count)
            self.row_folds[reduction.value] = self.open_fold(reduction.op, dtype, is_long=is_long)
            return
        best, where = self.slot(fold_dtype(dtype)), self.slot(int64)
        self.put(best, self.emit.constant(0, fold_dtype(dtype)))
        self.put(where, self.emit.constant(-1, int64))
        self.row_pairs[reduction.value] = (best, where)

    def reduce_element(self, reduction: RowReduction, value: Scalar, memo: Memo) -> None:
        if reduction.value in self.row_folds:
            self.fold_into(self.row_folds[reduction.value], value)
        else:
            self._reduce_pair(reduction, value, memo)

    def _reduce_pair(self, reduction: RowReduction, value: Scalar, memo: Memo) -> None:
        best, where = self.row_pairs[reduction.value]
        emit = self.emit
        dtype = fold_dtype(reduction.expr.dtype)
        old, at = self.get(best, dtype), self.get(where, int64)
        here = Scalar(self.index(self.walk.position, memo), int64)
        new = Scalar(value.text, dtype)
        beats = reduction.op.lower(emit, dtype)[1]
        wins = emit.logical_or(beats(new, old), emit.lt(at, emit.constant(0, int64)))
        self.put(best, emit.select(wins, new, old))
        self.put(where, emit.select(wins, here, at))

    def close_reduction(self, reduction: RowReduction) -> None:
        """Make the result known to the rest of the row."""
        dtype = reduction.value.type.dtype
        if reduction.value in self.row_pairs:
            value = self.emit.cast(self.get(self.row_pairs[reduction.value][1], int64), dtype)
        else:
            fold = self.row_folds[reduction.value]
            self.flush(fold)
            value = rounded_to(self.emit, self.get(fold.total, fold.wide), dtype)
        self.row_memo["row", reduction.number] = value

    # -- accumulators over the rows

    def open_accumulators(self) -> None:
        for k, accumulator in enumerate(self.program.accumulators):
            if accumulator.kind == "all":
                dtype = accumulator.value.type.dtype
                self.totals[k] = self.open_fold(accumulator.op, dtype, is_long=True)
            elif not accumulator.prefix:
                self.bases[k] = self._partial_pointer(k)
                self.fill(k)

    def _partial_pointer(self, position: int) -> str:
        if position not in self.partials:
            return self.buffers[self.accumulator_argument(position)]
        chunk_base = self.mul("%chunk", self.partial_bytes)
        base = self.add(chunk_base, self.partials[position])
        return self.at(self.buffers[self.partial_argument()], base)

    def fill(self, position: int) -> None:
        """Write the identity to every element of a column accumulator."""
        accumulator = self.program.accumulators[position]
        dtype = fold_dtype(accumulator.value.type.dtype)
        identity = self._identity(accumulator.op, dtype)
        with self.loop(0, self.walk.inner_count, stem="fill") as i:
            self.emit.store(identity, self.address(self.bases[position], dtype, i))

    def accumulate(self, position: int, values: Sequence[Scalar], memo: Memo) -> None:
        """Fold elements into an accumulator.

        They are folded with each other first, and the accumulator then with what they gave, in an order that is kept:
        reassociated, it would wait for one multiply-add after the other.
        """
        accumulator = self.program.accumulators[position]
        dtype = fold_dtype(accumulator.value.type.dtype)
        combine: Callable[[Scalar, Scalar], Scalar] = accumulator.op.lower(self.fold, dtype)[1]
        first, *others = [Scalar(value.text, dtype) for value in values]
        term = reduce(combine, others, first)
        if position in self.totals:
            self.fold_into(self.totals[position], term)
            return
        if others:
            combine = accumulator.op.lower(self.emit, dtype)[1]
        at = self.address(self.bases[position], dtype, self.index(self.walk.position, memo))
        old = self.emit.load(at, dtype, self.access)
        self.emit.store(combine(old, term), at, self.access)

    def flush_accumulators(self) -> None:
        for fold in self.totals.values():
            self.flush(fold)

    def in_sum_blocks(self, low: str, high: str, size: int, body: Callable[[str, str], None]) -> None:
        """``body(start, stop)`` for blocks of ``size`` from low to high; running sums end with each block."""
        span = self.sub(high, low)
        rounded = self.add(span, size - 1)
        count = self.binary("sdiv", rounded, size)
        with self.loop(0, count, stem="block") as b:
            start = self.add(low, self.mul(b, size))
            top = self.add(start, size)
            body(start, self.least(top, high))
            self.flush_accumulators()

    def close_accumulators(self) -> None:
        """Write totals to the partial results, or rounded to the result itself."""
        for k, fold in self.totals.items():
            self.flush(fold)
            total = self.get(fold.total, fold.wide)
            if k not in self.partials:
                total = rounded_to(self.emit, total, self.program.accumulators[k].value.type.dtype)
            self.emit.store(total, self._partial_pointer(k))
