"""Entries of branches and loops: nested plans, and where their buffers are in every step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autojit.codegen.cpu.machine import aligned
from autojit.codegen.lowered import (
    Argument,
    Counter,
    Entry,
    ErrorWords,
    Immediate,
    LoweredStep,
    Nested,
    Offset,
    Scratch,
    Tape,
    Word,
    Words,
)
from autojit.core.sizes import typical
from autojit.ir.graph import Value
from autojit.ops.control_flow import Cond
from autojit.ops.scan_steps import Scan
from autojit.ops.while_sweeps import Sweep, WhileLoop
from autojit.schedule.kernels import NestedKernel

Lower = Callable[[Any], LoweredStep]
Row = tuple[Argument, ...]

Kept = tuple[Word, int, list[tuple[Tape, int]]]
"""A loop's number of steps, its sweeps, and the places of its tapes."""

ZERO = Immediate(0)
STEP_NS = 30.0  # of the loop itself
UNKNOWN_STEPS = 2000.0  # what an unknown number counts as: so many that other Python threads may run meanwhile


def nested_entries(kernel: NestedKernel, lower: Lower, kept: dict[int, Kept]) -> list[Entry]:
    """The entries of a branch or loop; ``lower`` lowers a schedule inside the step.

    ``kept`` holds, by number, what earlier loops of the step have left for later ones.
    """
    op = kernel.node.op
    plans = [lower(plan) for plan in kernel.schedules]
    if isinstance(op, Cond):
        return [_branch(kernel, plans)]
    if isinstance(op, Scan):
        return _scan(kernel, op, plans[0])
    assert isinstance(op, WhileLoop)
    return _while(kernel, op, plans, kept)


def _estimate(plan: LoweredStep) -> float:
    return STEP_NS + sum(e.estimate_ns for e in plan.entries)


def _branch(kernel: NestedKernel, plans: Sequence[LoweredStep]) -> Entry:
    predicate, *operands = kernel.operands
    counters = [Counter(), Counter()]
    outputs = kernel.node.outputs
    tables = [Nested(p, (*operands, *outputs), c) for p, c in zip(plans, counters, strict=True)]
    estimate = max(map(_estimate, plans))
    return Entry("@aj_branch", "", (predicate, *tables, *counters), 1, estimate, "cond")


def _fixed(at: Argument, stride: int = 0) -> Row:
    """An entry at one place, or moving by ``stride`` bytes a step."""
    return Immediate(0), at, at, at, Immediate(stride), ZERO


def _moving(stack: Value, one: Value, op: Scan) -> Row:
    """Slices of a stack, each of the size of ``one``."""
    stride = one.type.size_bytes
    return _fixed(Offset(stack, (op.length - 1) * stride), -stride) if op.reverse else _fixed(stack, stride)


def _carried(start: Argument, size_bytes: int, target: Argument) -> tuple[Row, Row]:
    """A carry, (read, written): in two places by turns, of which one is where the last value belongs."""
    other = Scratch(aligned(size_bytes), per_worker=False)
    read = (Immediate(0), start, other, target, ZERO, ZERO)
    return read, (Immediate(0), target, target, other, ZERO, ZERO)


def _loop_entry(
    plan: LoweredStep, rows: Sequence[Row], finals: Sequence[Row], head: Sequence[Argument], label: str, steps: float
) -> Entry:
    """``head``: steps, whether their number is open, whether tapes go backwards, tape."""
    count, is_open, is_back, tape = head
    counter = Counter()
    table = Nested(plan, tuple(ZERO for _ in rows), counter)
    context = (
        count,
        is_open,
        is_back,
        table,
        ErrorWords(),
        tape,
        counter,
        Immediate(len(rows)),
        Immediate(len(finals)),
    )
    flat = [word for row in (*rows, *finals) for word in row]
    return Entry("@aj_loop", "", (*context, *flat), 1, steps * _estimate(plan), label)


def _scan(kernel: NestedKernel, op: Scan, plan: LoweredStep) -> list[Entry]:
    first, rest = op.carries, op.carries + op.stacks
    operands, outputs, body = kernel.operands, kernel.node.outputs, op.body
    read: list[Row] = []
    written: list[Row] = []
    finals: list[Row] = []
    for k in range(first):
        size = body.inputs[k].type.size_bytes
        into, out = _carried(operands[k], size, outputs[k])
        read.append(into)
        written.append(out)
        finals.append((Immediate(k), outputs[k], Immediate(size)))
    read += [_moving(operands[k], body.inputs[k], op) for k in range(first, rest)]
    read += [_fixed(x) for x in operands[rest:]]
    written += [_moving(y, one, op) for y, one in zip(outputs[first:], body.outputs[first:], strict=True)]
    head = (Words((op.length,)), ZERO, ZERO, Tape(0))
    return [_loop_entry(plan, [*read, *written], finals, head, "scan", float(typical(op.length)))]


def _while(kernel: NestedKernel, op: WhileLoop, plans: Sequence[LoweredStep], kept: dict[int, Kept]) -> list[Entry]:
    """An entry per sweep; they share the number of steps, and each pushes on a tape of its own."""
    steps, done, tapes = kept.get(op.resumes, (Word(), 0, []))
    tapes = list(tapes)  # per number of a tape: the sweep's, the place in a step's record
    entries: list[Entry] = []
    start = 0
    for number, (sweep, plan) in enumerate(zip(op.sweeps(), plans, strict=True)):
        if number >= done:
            mine = _records(sweep)
            entries.append(_sweep(kernel, op, sweep, plan, (number == 0, start, steps, tapes, mine)))
            tapes += mine[1]
        start += sweep.carries
    if op.kept:
        kept[op.kept] = steps, len(plans), tapes
    return entries


def _records(sweep: Sweep) -> tuple[Tape, list[tuple[Tape, int]]]:
    """A sweep's tape, and the places of what it pushes in a step."""
    places: list[int] = []
    size = 0
    for value in sweep.body.outputs[sweep.carries :]:
        places.append(size)
        size += aligned(value.type.size_bytes)
    tape = Tape(size)
    return tape, [(tape, place) for place in places]


def _sweep(kernel: NestedKernel, op: WhileLoop, sweep: Sweep, plan: LoweredStep, parts: Any) -> Entry:
    is_open, start, steps, tapes, (tape, places) = parts
    constants = kernel.operands[op.n_outputs :]
    read: list[Row] = []
    written: list[Row] = []
    finals: list[Row] = []
    for k in range(sweep.carries):
        size = sweep.body.inputs[k].type.size_bytes
        target = kernel.node.outputs[start + k]
        into, out = _carried(kernel.operands[start + k], size, target)
        read.append(into)
        written.append(out)
        finals.append((Immediate(k), target, Immediate(size)))
    read += [_on_tape(*tapes[k]) for k in sweep.reads]
    read += [_fixed(x) for x in constants]
    written += [_on_tape(*place) for place in places]
    head = (steps, Immediate(int(is_open)), Immediate(int(sweep.reverse)), tape)
    return _loop_entry(plan, [*read, *written], finals, head, "while_loop", UNKNOWN_STEPS)


def _on_tape(tape: Tape, place: int) -> Row:
    return Immediate(1), tape, Immediate(place), ZERO, ZERO, ZERO
