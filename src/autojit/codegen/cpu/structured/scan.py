"""Scans along an axis: running folds, running extrema with their positions, the linear recurrence.

Operands are seen as (outer, length, inner) around the axis. A line is the elements of one outer and one inner position;
lines are independent. With ``inner > 1`` a step handles a block of neighbouring lines as vectors and finds the state of
the step before in the result; single lines keep it in registers. Chunks cut the lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from autojit.codegen.cpu.chunks import MAX_CHUNKS, wanted_chunks
from autojit.codegen.cpu.kernel_text import CpuKernel, KernelModule, KernelText
from autojit.codegen.scalar import Scalar
from autojit.core.config import config
from autojit.core.dtypes import DType, float32, float64, int64
from autojit.core.sizes import size_max, size_min, surely_less, typical
from autojit.ir.graph import Node
from autojit.ir.op import Op
from autojit.ops.scans import Cumulative, CumulativeExtreme, LinearRecurrence

Scan = Cumulative | CumulativeExtreme | LinearRecurrence
State = tuple[Scalar, ...]
# They only cut work into chunks; no measurement is recorded.
STEP_NS = 1.5  # latency of one step of a line, or of a vector of lines
LOGSUMEXP_STEP_NS = 12.0
LANES = 64  # columns of a block are a multiple of this: four cache lines of float32, which no other chunk touches
WIDE_LANES = 1024  # columns whose states are beside the results: 8 KiB of cache, and rows that are fetched ahead


def print_scan(node: Node) -> KernelText:
    """The kernel of a scan; halves were widened by the passes."""
    return _ScanPrinter(node).print()


class _ScanPrinter(CpuKernel):
    def __init__(self, node: Node) -> None:
        super().__init__(KernelModule(), "kernel", is_checked=config.check)
        assert isinstance(node.op, Scan)
        self.op: Scan = node.op
        self.node = node
        shape = node.outputs[0].type.shape
        axis = node.op.axis
        self.outer, self.length, self.inner = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
        self.first_result = len(node.inputs)
        self.is_reversed = getattr(node.op, "reverse", False)
        self.kept = [v.type.dtype for v in node.outputs]  # what the state is kept in
        if isinstance(node.op, Cumulative) and self.kept[0] is float32 and node.op.kind != "logsumexp":
            self.kept = [float64]

    def print(self) -> KernelText:
        types = [v.type for v in (*self.node.inputs, *self.node.outputs)]
        self.pointers([t.size for t in types])
        step = LOGSUMEXP_STEP_NS if getattr(self.op, "kind", "") == "logsumexp" else STEP_NS
        estimate = 50.0 + typical(self.outer * self.length) * step * max(1.0, typical(self.inner) / 8)
        picoseconds = self.outer * self.length * round(1000 * step) * size_max(8, self.inner) // 8
        wanted = wanted_chunks(estimate, picoseconds, MAX_CHUNKS)
        blocks = size_max(1, size_min(-(-wanted // size_max(self.outer, 1)), self.inner // LANES))
        width = size_min(self.inner, -(-self.inner // (blocks * LANES)) * LANES)
        blocks = size_max(1, -(-self.inner // size_max(width, 1)))
        units = self.outer * blocks
        size = size_max(1, -(-units // wanted))
        bounds = self.chunk_bounds(size, units)
        if surely_less(0, self.length):
            self._units(bounds, blocks, width)
        elif self.length != 0:
            with self.when(self.test("sgt", self.length, 0)):
                self._units(bounds, blocks, width)
        return self.finished(size_max(1, -(-units // size)), estimate)

    def _units(self, bounds: tuple[str, str], blocks: int, width: int) -> None:
        """Lines, or blocks of lines, one after the other."""
        with self.loop(*bounds, stem="unit") as number:
            line = self.quotient(number, blocks)
            start = self.mul(line, self.length * self.inner)
            block = self.remainder(number, blocks)
            first = self.mul(block, width)
            last = self.least(self.add(first, width), self.inner)
            if self.inner == 1:
                self._line(start)
            elif self.kept[0] is self.node.outputs[0].type.dtype:
                self._columns(start, first, last)
            else:
                self._wide_columns(start, first, last)

    def _place(self, start: str, step: str, column: str) -> str:
        """The position of a step's element; step 0 comes first in scan order."""
        if self.is_reversed:
            step = self.sub(self.length - 1, step)
        row = self.mul(step, self.inner)
        return self.add(self.add(start, row), column)

    def _line(self, start: str) -> None:
        """One line with the state in local variables."""
        place = self._place(start, "0", "0")
        slots = [(self.slot(dtype), dtype) for dtype in self.kept]
        self._keep(place, self._initial(place), slots)
        with self.loop(1, self.length, stem="step") as i:
            place = self._place(start, i, "0")
            state = tuple(self.get(slot, dtype) for slot, dtype in slots)
            self._keep(place, self._next(place, i, state), slots)

    def _keep(self, place: str, state: State, slots: Sequence[tuple[str, DType]]) -> None:
        self._write(place, state)
        for (slot, _), value in zip(slots, state, strict=True):
            self.put(slot, value)

    def _columns(self, start: str, first: str, last: str) -> None:
        """A block of neighbouring lines, step by step."""
        kept = [(self.first_result + k, v.type.dtype) for k, v in enumerate(self.node.outputs)]
        with self.parallel_loop(first, last, "first") as column:
            place = self._place(start, "0", column)
            self._write(place, self._initial(place))
        with self.loop(1, self.length, stem="step") as i:
            before = self.sub(i, 1)
            with self.parallel_loop(first, last, "column") as column:
                old = self._place(start, before, column)
                place = self._place(start, i, column)
                state = tuple(self.read(result, dtype, old) for result, dtype in kept)
                self._write(place, self._next(place, i, state))

    def _wide_columns(self, start: str, first: str, last: str) -> None:
        """Blocks of ``WIDE_LANES`` neighbouring lines, whose states are wider than the results and kept beside them."""
        (wide,) = self.kept
        totals = self.array(wide, WIDE_LANES)
        span = self.sub(last, first)
        blocks = self.quotient(self.add(span, WIDE_LANES - 1), WIDE_LANES)
        with self.loop(0, blocks, stem="block") as number:
            low = self.add(first, self.mul(number, WIDE_LANES))
            high = self.least(self.add(low, WIDE_LANES), last)

            def kept(column: str) -> str:
                return self.address(totals, wide, self.sub(column, low))

            def leave(column: str, place: str, state: State) -> None:
                self.emit.store(state[0], kept(column), self.access)
                self._write(place, state)

            with self.parallel_loop(low, high, "first") as column:
                place = self._place(start, "0", column)
                leave(column, place, self._initial(place))
            with self.loop(1, self.length, stem="step") as i, self.parallel_loop(low, high, "column") as column:
                place = self._place(start, i, column)
                before = self.emit.load(kept(column), wide, self.access)
                leave(column, place, self._next(place, i, (before,)))

    def _write(self, place: str, state: State) -> None:
        for k, value in enumerate(state):
            self.write(self.first_result + k, self.emit.cast(value, self.node.outputs[k].type.dtype), place)

    def _operand(self, number: int, place: str) -> Scalar:
        dtype = self.node.inputs[number].type.dtype
        found = self.read(number, dtype, place)
        return self.emit.cast(found, self.kept[0]) if isinstance(self.op, Cumulative) else found

    def _initial(self, place: str) -> State:
        """The state after the first element."""
        if isinstance(self.op, LinearRecurrence):
            return (self._operand(1, place),)
        x = self._operand(0, place)
        return (x, self.emit.constant(0, int64)) if isinstance(self.op, CumulativeExtreme) else (x,)

    def _next(self, place: str, step: str, state: State) -> State:
        emit, op = self.emit, self.op
        x = self._operand(0, place)
        if isinstance(op, LinearRecurrence):
            return (emit.add(emit.mul(x, state[0]), self._operand(1, place)),)
        if isinstance(op, CumulativeExtreme):
            best = emit.maximum(state[0], x) if op.kind == "max" else emit.minimum(state[0], x)
            reaches = emit.logical_or(emit.eq(x, best), emit.isnan(x))
            return best, emit.select(reaches, Scalar(step, int64), state[1])
        if op.kind == "logsumexp":
            return (Op.registry["logaddexp"]().lower(emit, state[0], x),)
        return (emit.add(state[0], x) if op.kind == "sum" else emit.mul(state[0], x),)
