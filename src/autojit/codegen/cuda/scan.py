"""Scans along an axis (`codegen.scan_steps`): a thread for each line, or blocks for each where there are few.

A thread walks its line step by step, as on the CPU. Blocks walk a long line tile by tile: a thread folds some steps
that follow each other, threads combine in a tree of fixed shape, and what is in front of a tile is joined to all of it.
One block carries it from tile to tile; of a very long line every tile has a block, and three kernels follow each other:
what tiles end with, what is in front of each, the results. That is for folds whose order may change: sums, which are
kept wide, extrema, logarithms of sums; and recurrences of float32, whose factors and terms are pairs in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import float_info

from autojit.codegen.cuda.counting import CountingKernel
from autojit.codegen.cuda.grid_function import WARP, Grid
from autojit.codegen.cuda.target import CudaTarget
from autojit.codegen.cuda.thread_items import ItemKernel, roles_of
from autojit.codegen.grid_text import GridText
from autojit.codegen.scalar import Scalar, memory_type
from autojit.codegen.scan_steps import ScanSteps, State, around_axis
from autojit.core.dtypes import bool_, float32, float64
from autojit.core.sizes import is_symbolic, size_min, typical
from autojit.ir.graph import Node
from autojit.ops.scans import Cumulative, CumulativeExtreme

SHORT = 32  # steps of a line, which a thread walks as fast as a block waits for its threads
BUSY_LINES = 256  # per processor: enough for a thread each
TOGETHER_BYTES = 32  # of neighbouring lines that threads side by side read at once, which is what memory gives
LONE_STEPS = 128  # of lines apart up to which a thread's reads stay in its cache till they are used [not measured]
THREADS = 256  # of a block
MOST_STEPS = 8  # of a thread in a tile
STATE_BYTES = 32  # of a thread in a tile: what it takes of registers, several times over
ONE_BLOCK = 8192  # steps of a line that one block walks before three kernels are worth their start
WARPS = THREADS // WARP
ALIGNMENT = 256

Source = Callable[[str], State]
"""The state of one step without those before it, by the number of the step."""


def print_scan(node: Node, target: CudaTarget) -> GridText:
    """The kernels of a scan; halves were widened by the passes."""
    outer, length, inner = around_axis(node)
    lines = outer * inner
    if _suits_threads(node, target) or not _is_associative(node):
        return _LineScan(node).print()
    if is_symbolic(length * lines) or length <= ONE_BLOCK or lines >= 2 * target.processors:
        return _TileScan(node, lines).walk()
    apply = _TileScan(node, lines, is_apart=True).apply()
    in_front = _TileScan(node, lines, is_apart=True, joins=True).join(apply)
    return _TileScan(node, lines, is_apart=True).reduce(in_front)


def _suits_threads(node: Node, target: CudaTarget) -> bool:
    """Whether a thread for each line is about as fast as a block: lines are short, or many and side by side."""
    outer, length, inner = around_axis(node)
    if typical(length) <= SHORT:
        return True
    is_together = typical(inner) * node.inputs[0].type.dtype.size_bytes >= TOGETHER_BYTES
    most = BUSY_LINES * target.processors
    return typical(outer * inner) >= most and (is_together or typical(length) <= LONE_STEPS)


def _is_associative(node: Node) -> bool:
    """Whether steps may be combined before those in front of them are known."""
    if isinstance(node.op, Cumulative):
        # a part of a product may overflow where the whole does not
        return node.op.kind != "prod" or node.outputs[0].type.dtype.kind != "float"
    return isinstance(node.op, CumulativeExtreme) or node.outputs[0].type.dtype is float32


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


class _PairSteps(ScanSteps):
    """A recurrence as pairs: what a state in front is multiplied by, and what is then added."""

    def __init__(self, function: CountingKernel, node: Node) -> None:
        super().__init__(function, node)
        self.kept = [float64, float64]

    def alone(self, place: str, step: str) -> State:
        emit = self.function.emit
        factor, term = (emit.cast(self.function.read(k, float32, place), float64) for k in range(2))
        return factor, term

    def joined(self, before: State, after: State) -> State:
        """Products that overflow stay finite: a state of zero in front then still is one. No float32 is as large."""
        emit = self.function.emit
        product = emit.mul(before[0], after[0])
        overflows = emit.logical_and(emit.isinf(product), emit.logical_not(emit.isinf(before[0])))
        overflows = emit.logical_and(overflows, emit.logical_not(emit.isinf(after[0])))
        largest = emit.copysign(emit.constant(float_info.max, float64), product)
        return emit.select(overflows, largest, product), emit.add(emit.mul(after[0], before[1]), after[1])

    def write(self, place: str, state: State) -> None:
        super().write(place, state[1:])


class _TileScan(CountingKernel):
    """A kernel whose blocks take tiles of lines.

    Args:
        node: the scan.
        lines: how many there are.
        is_apart: every tile has a block in some kernels; what tiles end with is in the memory of the chain.
        joins: it is the one of them where lines have a block each.
    """

    def __init__(self, node: Node, lines: int, *, is_apart: bool = False, joins: bool = False) -> None:
        is_fold = isinstance(node.op, Cumulative | CumulativeExtreme)
        self.scan = ScanSteps(self, node) if is_fold else _PairSteps(self, node)
        self.kept = self.scan.kept
        self.steps = min(MOST_STEPS, STATE_BYTES // sum(dtype.size_bytes for dtype in self.kept))
        self.tile = THREADS * self.steps
        self.tiles = -(-self.scan.length // self.tile)
        blocks = lines * self.tiles if is_apart and not joins else lines
        sizes = [v.type.size for v in (*node.inputs, *node.outputs)]
        super().__init__(Grid(THREADS, (blocks, 1, 1)), roles_of(node), sizes, 0)
        rooms = [-(-lines * self.tiles * dtype.size_bytes // ALIGNMENT) * ALIGNMENT for dtype in self.kept]
        self.rooms = [sum(rooms[:k]) for k in range(len(rooms))]
        self.partial_bytes = sum(rooms) if is_apart else 0
        self.totals = [self.shared(memory_type(dtype), WARPS) for dtype in self.kept]

    # -- the kernels

    def walk(self) -> GridText:
        """A block goes through its line."""
        source = self._take_line(self.block_x)
        self._through(self.scan.length, source, self._write_result)
        return self.ended()

    def reduce(self, then: GridText) -> GridText:
        """What each tile ends with."""
        source = self._take_line(self.quotient(self.block_x, self.tiles))
        first = self.mul(self.remainder(self.block_x, self.tiles), self.tile)
        own, _ = self._fold(first, self.scan.length, source)
        _, last = self._over_threads(own)
        with self.when(self.test("eq", self.thread, 0)):
            self._put_state(self.block_x, last)
        return self.ended(then)

    def join(self, then: GridText) -> GridText:
        """What each tile ends with, with all in front of it: a block for a line, the tiles are its steps."""
        base = self.mul(self.block_x, self.tiles)
        self._through(
            self.tiles, lambda k: self._state(self.add(base, k)), lambda k, s: self._put_state(self.add(base, k), s)
        )
        return self.ended(then)

    def apply(self) -> GridText:
        """The results of a tile."""
        source = self._take_line(self.quotient(self.block_x, self.tiles))
        number = self.remainder(self.block_x, self.tiles)
        before = self._state(self.most(self.sub(self.block_x, 1), 0))
        self._tile(
            self.mul(number, self.tile),
            self.scan.length,
            source,
            self._write_result,
            self.test("ne", number, 0),
            before,
        )
        return self.ended()

    # -- lines

    def _take_line(self, line: str) -> Source:
        """The block has a line; its steps."""
        scan = self.scan
        self.base = self.mul(self.quotient(line, scan.inner), scan.length * scan.inner)
        self.column = self.remainder(line, scan.inner)
        return lambda step: scan.alone(scan.place(self.base, step, self.column), step)

    def _write_result(self, step: str, state: State) -> None:
        self.scan.write(self.scan.place(self.base, step, self.column), state)

    def _state(self, number: str) -> State:
        """A state in the memory of the chain."""
        places = [
            self.address(self.own(room), dtype, number) for room, dtype in zip(self.rooms, self.kept, strict=True)
        ]
        return tuple(self.emit.load(place, dtype) for place, dtype in zip(places, self.kept, strict=True))

    def _put_state(self, number: str, state: State) -> None:
        for room, value in zip(self.rooms, state, strict=True):
            self.emit.store(value, self.address(self.own(room), value.dtype, number))

    # -- tiles

    def _through(self, length: int, source: Source, use: Callable[[str, State], None]) -> None:
        """Tile after tile of a line of steps."""
        carried = [self.slot(dtype) for dtype in self.kept]
        for slot, dtype in zip(carried, self.kept, strict=True):
            self.put(slot, self.emit.constant(0, dtype))
        with self.loop(0, length, self.tile, stem="tile") as first:
            before = tuple(self.get(slot, dtype) for slot, dtype in zip(carried, self.kept, strict=True))
            last = self._tile(first, length, source, use, self.test("ne", first, 0), before)
            for slot, value in zip(carried, last, strict=True):
                self.put(slot, value)
            self.barrier()

    def _tile(
        self, first: str, length: int, source: Source, use: Callable[[str, State], None], is_later: str, before: State
    ) -> State:
        """``use(step, state)`` for the steps of a tile; the state behind it. ``before`` counts if ``is_later``."""
        own, inside = self._fold(first, length, source)
        in_front, last = self._over_threads(own)
        has_neighbour = self.test("ne", self.thread, 0)
        in_front = self._chosen(has_neighbour, self._joined_if(is_later, before, in_front), before)
        has_front = self.either(has_neighbour, is_later)
        state = in_front
        for k, (step, is_there, alone) in enumerate(inside):
            joined = self.scan.joined(state, alone)
            state = self._chosen(has_front, joined, alone) if k == 0 else joined
            with self.when(is_there):
                use(step, state)
        return self._joined_if(is_later, before, last)

    def _fold(self, first: str, length: int, source: Source) -> tuple[State, list[tuple[str, str, State]]]:
        """What the thread's steps in a tile end with; of each its number, whether it is one of the line, its state.

        All is read before anybody writes: behind a line, threads read its last step.
        """
        begin = self.add(first, self.mul(self.thread, self.steps))
        state: State | None = None
        inside: list[tuple[str, str, State]] = []
        for k in range(self.steps):
            step = self.add(begin, k)
            is_there = self.test("slt", step, length)
            clamped = self.least(step, length - 1)
            alone = source(clamped)
            inside.append((clamped, is_there, alone))
            state = alone if state is None else self._chosen(is_there, self.scan.joined(state, alone), state)
        assert state is not None, "a thread has a step"
        return state, inside

    def _over_threads(self, own: State) -> tuple[State, State]:
        """What all threads in front of this one end with together, and what all do; all threads are there."""
        lane, warp = self.lane, self.warp
        state, distance = own, 1
        while distance < WARP:  # Hillis and Steele, Communications of the ACM 29(12), 1986
            other = tuple(self.shuffle_up(value, distance) for value in state)
            state = self._chosen(self.test("uge", lane, distance), self.scan.joined(other, state), state)
            distance *= 2
        with self.when(self.test("eq", lane, WARP - 1)):
            for array, value in zip(self.totals, state, strict=True):
                self.emit.store(value, self.address(array, value.dtype, warp))
        self.barrier()
        total = self._total_of("0")
        front = total
        for number in range(1, WARPS):
            front = self._chosen(self.test("eq", warp, number), total, front)
            total = self.scan.joined(total, self._total_of(str(number)))
        neighbour = tuple(self.shuffle_up(value, 1) for value in state)
        is_first_lane, is_first_warp = self.test("eq", lane, 0), self.test("eq", warp, 0)
        beyond = self._chosen(is_first_lane, front, self.scan.joined(front, neighbour))
        return self._chosen(is_first_warp, neighbour, beyond), total

    def _total_of(self, warp: str) -> State:
        pairs = zip(self.totals, self.kept, strict=True)
        return tuple(self.emit.load(self.address(array, dtype, warp), dtype) for array, dtype in pairs)

    def _joined_if(self, condition: str, before: State, after: State) -> State:
        return self._chosen(condition, self.scan.joined(before, after), after)

    def _chosen(self, condition: str, one: State, other: State) -> State:
        return tuple(self.emit.select(Scalar(condition, bool_), a, b) for a, b in zip(one, other, strict=True))
