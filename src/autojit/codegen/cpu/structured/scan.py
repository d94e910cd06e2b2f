"""Scans along an axis (`codegen.scan_steps`).

With ``inner > 1`` a step handles a block of neighbouring lines as vectors and finds the state of the step before in the
result; single lines keep it in registers. Chunks cut the lines.
"""

from __future__ import annotations

from collections.abc import Sequence

from autojit.codegen.cpu.chunks import MAX_CHUNKS, wanted_chunks
from autojit.codegen.cpu.kernel_text import CpuKernel, KernelModule, KernelText
from autojit.codegen.scan_steps import ScanSteps, State
from autojit.core.config import config
from autojit.core.dtypes import DType
from autojit.core.sizes import size_max, size_min, surely_less, typical
from autojit.ir.graph import Node

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
        self.node = node
        self.scan = ScanSteps(self, node)
        self.outer, self.length, self.inner = self.scan.outer, self.scan.length, self.scan.inner
        self.kept = self.scan.kept

    def print(self) -> KernelText:
        types = [v.type for v in (*self.node.inputs, *self.node.outputs)]
        self.pointers([t.size for t in types])
        step = LOGSUMEXP_STEP_NS if getattr(self.node.op, "kind", "") == "logsumexp" else STEP_NS
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

    def _line(self, start: str) -> None:
        """One line with the state in local variables."""
        place = self.scan.place(start, "0", "0")
        slots = [(self.slot(dtype), dtype) for dtype in self.kept]
        self._keep(place, self.scan.initial(place), slots)
        with self.loop(1, self.length, stem="step") as i:
            place = self.scan.place(start, i, "0")
            state = tuple(self.get(slot, dtype) for slot, dtype in slots)
            self._keep(place, self.scan.next(place, i, state), slots)

    def _keep(self, place: str, state: State, slots: Sequence[tuple[str, DType]]) -> None:
        self.scan.write(place, state)
        for (slot, _), value in zip(slots, state, strict=True):
            self.put(slot, value)

    def _columns(self, start: str, first: str, last: str) -> None:
        """A block of neighbouring lines, step by step."""
        kept = [(self.scan.first_result + k, v.type.dtype) for k, v in enumerate(self.node.outputs)]
        with self.parallel_loop(first, last, "first") as column:
            place = self.scan.place(start, "0", column)
            self.scan.write(place, self.scan.initial(place))
        with self.loop(1, self.length, stem="step") as i:
            before = self.sub(i, 1)
            with self.parallel_loop(first, last, "column") as column:
                old = self.scan.place(start, before, column)
                place = self.scan.place(start, i, column)
                state = tuple(self.read(result, dtype, old) for result, dtype in kept)
                self.scan.write(place, self.scan.next(place, i, state))

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
                self.scan.write(place, state)

            with self.parallel_loop(low, high, "first") as column:
                place = self.scan.place(start, "0", column)
                leave(column, place, self.scan.initial(place))
            with self.loop(1, self.length, stem="step") as i, self.parallel_loop(low, high, "column") as column:
                place = self.scan.place(start, i, column)
                before = self.emit.load(kept(column), wide, self.access)
                leave(column, place, self.scan.next(place, i, (before,)))
