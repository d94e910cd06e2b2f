"""Scans along an axis (`codegen.scan_steps`): a thread for each line, or a block for each where there are few.

A thread walks its line step by step, as on the CPU. A block walks a long line tile by tile: each of its threads has one
step, they combine in a tree of fixed shape in shared memory, and what the tile ends with is carried on to the next.
That is for folds whose order may change: sums, which are kept wide, extrema, and logarithms of sums.
"""

from __future__ import annotations

from collections.abc import Sequence

from autojit.codegen.cuda.grid_function import CudaKernel, Grid
from autojit.codegen.cuda.target import CudaTarget
from autojit.codegen.cuda.thread_items import ItemKernel
from autojit.codegen.grid_text import Buffer, GridText
from autojit.codegen.scalar import Scalar, memory_type
from autojit.codegen.scan_steps import ScanSteps, State, around_axis
from autojit.core.dtypes import bool_
from autojit.core.sizes import size_min, typical
from autojit.ir.graph import Node
from autojit.ops.scans import Cumulative, CumulativeExtreme

SHORT = 32  # steps of a line, which a thread walks as fast as a block waits for its threads
BUSY_LINES = 256  # per processor: enough for a thread each
BLOCK_THREADS = 256


def print_scan(node: Node, target: CudaTarget) -> GridText:
    """The kernel of a scan; halves were widened by the passes."""
    outer, length, inner = around_axis(node)
    is_short = typical(length) <= SHORT or typical(outer * inner) >= BUSY_LINES * target.processors
    if is_short or not _is_associative(node):
        return _LineScan(node).print()
    return _BlockScan(node, outer * inner).print()


def _is_associative(node: Node) -> bool:
    """Whether steps may be combined before those in front of them are known."""
    if isinstance(node.op, Cumulative):
        return node.op.kind != "prod"  # of which a part may overflow where the whole does not
    return isinstance(node.op, CumulativeExtreme)


class _LineScan(ItemKernel):
    """Every thread has a line."""

    def __init__(self, node: Node) -> None:
        outer, length, inner = around_axis(node)
        super().__init__(node, outer * inner * size_min(length, 1))
        self.steps = ScanSteps(self, node)

    def print(self) -> GridText:
        scan = self.steps
        if not scan.length:
            return self.text()
        with self.item() as line:
            start = self.mul(self.quotient(line, scan.inner), scan.length * scan.inner)
            column = self.remainder(line, scan.inner)
            slots = [(self.slot(dtype), dtype) for dtype in scan.kept]

            def keep(place: str, state: State) -> None:
                scan.write(place, state)
                for (slot, _), value in zip(slots, state, strict=True):
                    self.put(slot, value)

            place = scan.place(start, "0", column)
            keep(place, scan.initial(place))
            with self.loop(1, scan.length, stem="step") as i:
                place = scan.place(start, i, column)
                keep(place, scan.next(place, i, tuple(self.get(slot, dtype) for slot, dtype in slots)))
        return self.text()


class _BlockScan(CudaKernel):
    """Every block has a line; in a tile, every thread has one step."""

    def __init__(self, node: Node, lines: int) -> None:
        super().__init__(Grid(BLOCK_THREADS, (lines, 1, 1)))
        self.node = node
        self.pointers([v.type.size for v in (*node.inputs, *node.outputs)])
        self.scan = ScanSteps(self, node)
        self.kept = self.scan.kept
        # two, so that nobody overwrites what others still read: between two uses of one there is a barrier
        self.tiles = [[self.shared(memory_type(dtype), BLOCK_THREADS) for dtype in self.kept] for _ in range(2)]

    def print(self) -> GridText:
        scan = self.scan
        start = self.mul(self.quotient(self.block_x, scan.inner), scan.length * scan.inner)
        column = self.remainder(self.block_x, scan.inner)
        carried = [self.slot(dtype) for dtype in self.kept]
        for slot, dtype in zip(carried, self.kept, strict=True):
            self.put(slot, self.emit.constant(0, dtype))
        with self.loop(0, scan.length, BLOCK_THREADS, stem="tile") as first:
            self._tile(start, column, first, carried)
        sizes = [v.type.dtype.size_bytes for v in (*self.node.inputs, *self.node.outputs)]
        count = len(self.node.inputs)
        return self.finished([Buffer("reads" if k < count else "writes", size) for k, size in enumerate(sizes)])

    def _tile(self, start: str, column: str, first: str, carried: Sequence[str]) -> None:
        """The steps from ``first`` on; ``carried`` hold the state before them, and then the one behind them."""
        scan = self.scan
        step = self.add(first, self.thread)
        inside = self.test("slt", step, scan.length)
        place = scan.place(start, self.least(step, scan.length - 1), column)
        state = scan.alone(place, step)
        distance, number = 1, 0
        while distance < BLOCK_THREADS:  # Hillis and Steele, Communications of the ACM 29(12), 1986
            before = self._of_thread(state, self.most(self.sub(self.thread, distance), 0), self.tiles[number % 2])
            state = self._chosen(self.test("sge", self.thread, distance), scan.joined(before, state), state)
            distance, number = 2 * distance, number + 1
        before = tuple(self.get(slot, dtype) for slot, dtype in zip(carried, self.kept, strict=True))
        state = self._chosen(self.test("ne", first, 0), scan.joined(before, state), state)
        with self.when(inside):
            scan.write(place, state)
        last = self._of_thread(state, str(BLOCK_THREADS - 1), self.tiles[number % 2])
        for slot, value in zip(carried, last, strict=True):
            self.put(slot, value)
        self.barrier()

    def _of_thread(self, state: State, thread: str, tile: Sequence[str]) -> State:
        """What a thread of the block has; all threads ask at once."""
        for array, value in zip(tile, state, strict=True):
            self.emit.store(value, self.address(array, value.dtype, self.thread))
        self.barrier()
        return tuple(
            self.emit.load(self.address(array, value.dtype, thread), value.dtype)
            for array, value in zip(tile, state, strict=True)
        )

    def _chosen(self, condition: str, one: State, other: State) -> State:
        return tuple(self.emit.select(Scalar(condition, bool_), a, b) for a, b in zip(one, other, strict=True))
