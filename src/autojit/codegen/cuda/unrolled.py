"""Scans of known length as what a device is told turn by turn: the host takes no part in them.

The body of a scan is lowered once. Where a device does all of it, a turn is the body's work on other buffers: slices of
stacks are at places that the turn's number says, carries go from one place to another and end where they belong, what
the body keeps for itself is in memory that all turns share. So a scan is part of the run around it, and of its graph.

Derivatives read what a carry was before every step. Where the scan gives that, the carry is in the stack: a turn writes
it to the slice of the next, and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Sequence

from autojit.codegen.cuda.moved_work import MovedWork, Place
from autojit.codegen.lowered import (
    DeviceCopy,
    DeviceRun,
    DeviceWork,
    Launch,
    LoweredStep,
    Offset,
    Scratch,
    simple_work,
)
from autojit.core.device import CPU, Device
from autojit.core.sizes import is_counted, is_symbolic
from autojit.core.types import TensorType
from autojit.ir.graph import Graph, Node, Value, values_of
from autojit.ops.scan_steps import Scan
from autojit.schedule.kernels import NestedKernel
from autojit.schedule.schedule import Schedule

MOST_LAUNCHES = 4096
"""Of one scan in a run. A graph of more takes seconds to make; longer scans are loops over graphs of so many."""


class UnrolledScan:
    """The turns of a scan as work of a device.

    Args:
        kernel: the scan.
        body: its body, all of which a device does.
    """

    def __init__(self, kernel: NestedKernel, body: LoweredStep) -> None:
        op = kernel.node.op
        assert isinstance(op, Scan)
        self.op = op
        self.kernel = kernel
        self.body = body
        self.memory = body.schedule.memory
        self.device = _device_of(body)
        self.table = {value: k for k, value in enumerate(body.schedule.graph.inputs)}
        self.results = {value: k for k, value in enumerate(body.schedule.outputs)}
        self.histories: dict[int, int] = {}  # of carries: the result that is what they were before every step
        self.work: list[DeviceWork] = [
            item for run in body.device_runs() for item in run.work if not self._is_history_of(item)
        ]
        arena = self.memory.arenas.get(self.device, 0)
        self.temporaries = Scratch(arena, per_worker=False, device=self.device)
        self.regions = [self._scratch(size_bytes) for size_bytes in self.memory.regions]
        carried = kernel.node.outputs[: op.carries]
        self.others = [self._scratch(value.type.size_bytes) for value in carried]
        self.partials = {item: self._partials(item) for item in simple_work(self.work) if isinstance(item, Launch)}

    @property
    def turns_at_a_time(self) -> int:
        """The most turns that one run takes."""
        return max(MOST_LAUNCHES // max(len(list(simple_work(self.work))), 1), 1)

    def rounds(self) -> NestedKernel:
        """A loop of the host over as many turns as a run takes: a scan over scans; what is left comes behind."""
        op, node, size = self.op, self.kernel.node, self.turns_at_a_time
        first, rest = op.carries, op.carries + op.stacks
        given = self.body.schedule.graph
        inputs = [
            Value(v.type if not first <= k < rest else _stacked(v.type, size)) for k, v in enumerate(given.inputs)
        ]
        outputs = [Value(v.type if k < first else _stacked(v.type, size)) for k, v in enumerate(given.outputs)]
        turns = Node(Scan(op.body, first, op.stacks, size, op.reverse), tuple(inputs), tuple(outputs), node.source)
        inner = NestedKernel(turns, turns.inputs, self.kernel.schedules)
        graph = Graph(turns.inputs, (turns,), turns.outputs)
        failing = frozenset([inner]) if self.body.schedule.failing else frozenset[NestedKernel]()
        schedule = Schedule(graph, (inner,), turns.outputs, {}, self.body.schedule.machine, failing)
        loop = Scan(graph, first, op.stacks, op.length // size, op.reverse)
        return NestedKernel(Node(loop, node.inputs, node.outputs, node.source), self.kernel.operands, (schedule,))

    def turns_in(self, rounds: NestedKernel) -> int:
        """How many turns a loop over them takes."""
        assert isinstance(rounds.node.op, Scan)
        return rounds.node.op.length * self.turns_at_a_time

    def turns(self, first: int, count: int, *, goes_on: bool = False, commits: bool = False) -> list[DeviceWork]:
        """The work of some turns.

        Args:
            first: the number of the first.
            count: of them.
            goes_on: carries come from where those of earlier turns have ended.
            commits: what they write lasts after the step.
        """
        targets = self.kernel.node.outputs[: self.op.carries]
        if not count:
            pairs = zip(targets, self.kernel.operands, strict=False)
            return [DeviceCopy(target, start, start.type.size_bytes, commits) for target, start in pairs]
        starts: Sequence[Value] = targets if goes_on else self.kernel.operands[: self.op.carries]
        made: list[DeviceWork] = []
        carried: list[Place] = [*starts]
        for k, start in enumerate(starts):
            if k in self.histories:
                carried[k] = self._history(k, first)
            elif goes_on:  # no turn reads where it writes
                carried[k] = self._scratch(start.type.size_bytes)
            if carried[k] is not start:
                made.append(DeviceCopy(carried[k], start, start.type.size_bytes, commits))
        for turn in range(count):
            left = count - 1 - turn
            written = [self._written(k, first + turn, left) for k in range(self.op.carries)]
            places = _Places(self, first + turn, carried, written)
            made += [places.moved(item, commits) for item in self.work]
            carried = written
        return made

    def _written(self, carry: int, turn: int, left: int) -> Place:
        """Where a turn writes a carry, ``left`` turns before the last, which writes it where it belongs."""
        if left and carry in self.histories:
            return self._history(carry, turn + 1)
        return self.others[carry] if left % 2 else self.kernel.node.outputs[carry]

    def _history(self, carry: int, turn: int) -> Offset:
        return self.slice(self.kernel.node.outputs[self.histories[carry]], turn)

    def slice(self, stack: Value, turn: int) -> Offset:
        """The part of a stack that a turn reads or writes."""
        size_bytes = stack.type.size_bytes // self.op.length
        place = self.op.length - 1 - turn if self.op.reverse else turn
        return Offset(stack, place * size_bytes, size_bytes)

    def _is_history_of(self, item: DeviceWork) -> bool:
        """Whether an item of the body's work says what a carry was before; the first that does is its history."""
        if not isinstance(item, DeviceCopy) or not isinstance(item.source, Value):
            return False
        carry = self.table.get(item.source, self.op.carries)
        result = self.results.get(item.target) if isinstance(item.target, Value) else None
        if result is None or carry >= self.op.carries or result < self.op.carries or carry in self.histories:
            return False
        self.histories[carry] = result
        return True

    def _scratch(self, size_bytes: int) -> Scratch:
        return Scratch(size_bytes, per_worker=False, device=self.device)

    def _partials(self, launch: Launch) -> Scratch | None:
        """The memory of a kernel's partial results in all turns."""
        size_bytes = launch.kernel.partial_bytes
        return launch.partials or (self._scratch(size_bytes) if size_bytes else None)


class _Places(MovedWork):
    """Where the values of the body are in one turn."""

    def __init__(self, scan: UnrolledScan, turn: int, carried: Sequence[Place], written: Sequence[Place]) -> None:
        super().__init__(scan.partials)
        self.scan = scan
        self.turn = turn
        self.carried = carried
        self.written = written

    def place_of(self, value: Value) -> Place:
        """See `MovedWork`."""
        scan = self.scan
        home = scan.memory.home(value)
        first, operands, outputs = scan.op.carries, scan.kernel.operands, scan.kernel.node.outputs
        if home in scan.table:
            k = scan.table[home]
            if k < first:
                return self.carried[k]
            return operands[k] if k >= first + scan.op.stacks else scan.slice(operands[k], self.turn)
        if home in scan.results:
            k = scan.results[home]
            return self.written[k] if k < first else scan.slice(outputs[k], self.turn)
        if home in scan.memory.region_of:
            return Offset(scan.regions[scan.memory.region_of[home]], 0, value.type.size_bytes)
        return Offset(scan.temporaries, scan.memory.offsets[home], value.type.size_bytes)


def unrolled_scan(kernel: NestedKernel, body: LoweredStep) -> UnrolledScan | None:
    """A scan whose turns a device does without the host; None: it takes part.

    It takes part where the body asks it for something, where what moves from turn to turn is in its memory, and where
    the number of turns is not known, or the step counts how large something is.
    """
    op = kernel.node.op
    values = (*kernel.operands, *kernel.node.outputs, *values_of(body.schedule.graph))
    if not isinstance(op, Scan) or is_symbolic(op.length) or any(is_counted(value.type.size) for value in values):
        return None
    parts = [entry.arguments[0] for entry in body.single_entries()]
    if not parts or not all(isinstance(part, DeviceRun) for part in parts):
        return None
    device = _device_of(body)
    moving = (*kernel.operands[: op.carries + op.stacks], *kernel.node.outputs)
    return UnrolledScan(kernel, body) if all(value.type.device == device for value in moving) else None


def _stacked(type: TensorType, count: int) -> TensorType:
    return type.with_shape((count, *type.shape))


def _device_of(body: LoweredStep) -> Device:
    return next((run.device for run in body.device_runs()), CPU)
