"""Recorder: the sink that measures. It keeps a row per call while the block is open and makes events afterwards."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Sequence
from threading import get_ident
from time import perf_counter_ns
from types import FrameType
from typing import TYPE_CHECKING, Any

from autojit.autograd.profiler.event_list import EventList
from autojit.autograd.profiler.events import NODE_SCOPE, USER_SCOPE, FunctionEvent
from autojit.autograd.profiler.observer import ENGINE, KERNEL, NODE, OP, OPS, USER, is_recordable, op_name
from autojit.core.records import record
from autojit.core.source import SourceLocation, is_own
from autojit.tensor.node import next_number
from autojit.tensor.state import state

if TYPE_CHECKING:
    from autojit.cuda.driver import EventClock

Shape = list[int]
Operands = Sequence[Any]
Places = Sequence[SourceLocation]
_SCOPES = {NODE: NODE_SCOPE, USER: USER_SCOPE}


@record
class Options:
    """What is recorded besides times."""

    shapes: bool = False
    stack: bool = False
    memory: bool = False
    flops: bool = False


class Row:
    """One call, as it is noted down."""

    shapes: Sequence[Shape] = ()
    ops: Sequence[str] = ()
    places: Sequence[Any] = ()  # SourceLocations, or texts
    size = 0  # bytes of the arrays it made
    device_start: Any = None
    device_end: Any = None
    start_ns = end_ns = 0

    def __init__(self, name: str, kind: str, number: int) -> None:
        self.name = name
        self.kind = kind
        self.number = number


class Recorder:
    """Notes rows, whose calls are nested properly; ``events`` makes an EventList of them."""

    tells_engine = True

    def __init__(self, options: Options, clock: EventClock | None) -> None:
        self.options = options
        self.clock = clock
        self.needs_shapes = options.shapes or options.flops
        self.needs_stack = options.stack
        self.needs_memory = options.memory
        self.rows: list[Row] = []
        self.open: list[Row] = []
        self.thread = get_ident()
        self.origin_ns = perf_counter_ns()

    def push(
        self, name: str, kind: str, number: int, operands: Operands = (), places: Places = (), ops: Sequence[str] = ()
    ) -> None:
        """Something begins. ``number`` is a node's, or the one an op's node will get, or ``NO_NUMBER``.

        ``ops`` are those that a kernel fuses, ``places`` where they, or a node's op, are in user code.
        """
        row = Row(name, kind, number)
        self.rows.append(row)
        self.open.append(row)
        if self.needs_shapes:
            row.shapes = shapes_of(operands)
        if kind == KERNEL:
            row.places, row.ops = places, ops
        elif self.needs_stack:
            row.places = places if kind == NODE else user_stack()
        if self.clock is not None:
            row.device_start = self.clock.mark()
        row.start_ns = perf_counter_ns()

    def pop(self, result: Any = None) -> None:
        """What began last has ended."""
        now = perf_counter_ns()
        row = self.open.pop()
        row.end_ns = now
        if self.clock is not None:
            row.device_end = self.clock.mark()
        if self.needs_memory and result is not None:
            row.size = owned_bytes(result)

    def quick_run(self, compute: Callable[..., Any]) -> Callable[..., Any] | None:
        """``Observer.run`` with ``push`` and ``pop`` written out, if times alone are wanted: ops are short and many."""
        if self.needs_shapes or self.needs_stack or self.needs_memory:
            return None
        now, add, opened = state.__dict__, self.rows.append, self.open
        mark = None if self.clock is None else self.clock.mark

        def run(function: Callable[..., Any], *arguments: Any) -> Any:
            name = op_name(function, arguments)
            if name is None or now["trace"] is not None:
                return compute(function, *arguments)
            row = Row(name, OP, next_number() if now["grad_enabled"] and is_recordable(function, arguments) else -1)
            add(row)
            opened.append(row)
            if mark is not None:
                row.device_start = mark()
            row.start_ns = perf_counter_ns()
            try:
                return compute(function, *arguments)
            finally:
                row.end_ns = perf_counter_ns()
                opened.pop()
                if mark is not None:
                    row.device_end = mark()

        return run

    def events(self) -> EventList:
        """The rows as events in order of their start; what is still open ends now."""
        while self.open:
            self.pop()
        if self.clock is not None:
            self.clock.wait()
        events = EventList(
            (self._event(k, row) for k, row in enumerate(self.rows)),
            use_device=None if self.clock is None else self.clock.name,
            profile_memory=self.options.memory,
            with_flops=self.options.flops,
        )
        if self.clock is not None:
            self.clock.close()
        events.populate_cpu_children()
        for event in reversed(events):  # children come after their parent
            event.cpu_memory_usage += sum(child.cpu_memory_usage for child in event.cpu_children)
        return events

    def _event(self, number: int, row: Row) -> FunctionEvent:
        event = FunctionEvent(
            id=number,
            name=row.name,
            thread=1,
            start_us=(row.start_ns - self.origin_ns) / 1e3,
            end_us=(row.end_ns - self.origin_ns) / 1e3,
            fwd_thread=int(row.kind in (NODE, ENGINE) and row.number >= 0),
            input_shapes=row.shapes if self.options.shapes else (),
            stack=[
                p if isinstance(p, str) else f"{os.path.basename(p.file)}({p.line}): {p.function}" for p in row.places
            ],
            scope=_SCOPES.get(row.kind, 0),
            sequence_nr=row.number,
            cpu_memory_usage=row.size,
            flops=flops_of(row.name, row.shapes) if self.options.flops and row.kind == OP else None,
            metadata={"kind": row.kind, "ops": list(row.ops)} if row.ops else {"kind": row.kind},
        )
        if self.clock is not None:
            event.use_device = self.clock.name
            event.append_kernel(row.name, 0, self.clock.elapsed_us(row.device_start, row.device_end))
        return event


def shapes_of(operands: Sequence[Any]) -> list[Shape]:
    """The shapes of arrays and tensors; ``[]`` for numbers and for what is absent."""
    return [list(getattr(x, "shape", ())) for x in operands]


def owned_bytes(result: Any) -> int:
    """Bytes of the arrays in a result that are not views."""
    arrays = result if isinstance(result, tuple | list) else (result,)
    return sum(a.nbytes for a in arrays if getattr(a, "base", a) is None)


def flops_of(name: str, shapes: Sequence[Shape]) -> int | None:
    """Floating-point operations of a product or of arithmetic per element; None for other ops."""
    name = name.removeprefix(OPS)
    shapes = shapes[1:] if name == "addmm" else shapes
    if name in ("mm", "addmm", "matmul_add") and len(shapes) > 1 and len(shapes[0]) > 1 and len(shapes[1]) > 1:
        (*batch, m, k), (*other, _, n) = shapes[0], shapes[1]
        return 2 * m * n * k * max(math.prod(batch), math.prod(other))
    if name in ("add", "sub", "mul", "div") and shapes:
        return max(math.prod(shape) for shape in shapes)
    return None


def user_stack() -> list[str]:
    """The running calls outside autojit, innermost first."""
    found: list[str] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not is_own(code):
            found.append(f"{os.path.basename(code.co_filename)}({frame.f_lineno}): {code.co_name}")
        frame = frame.f_back
    return found
