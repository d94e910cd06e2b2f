"""Entries of branches and loops: nested plans, and where their buffers are in every step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autojit.codegen.cpu.machine import aligned
from autojit.codegen.cpu.plan.records import BranchContext, LastValue, LoopContext, LoopRow
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

Kept = tuple[Word, int, list[tuple[Tape, int]]]
"""A loop's number of steps, its sweeps, and the places of its tapes."""

ZERO = Immediate(0)
STEP_NS = 30.0  # of the loop itself; no measurement is recorded
UNKNOWN_STEPS = 2000.0  # what an unknown number counts as: enough that other Python threads may run meanwhile


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
    context = BranchContext(
        predicate=predicate, on_true=tables[0], on_false=tables[1], true_runs=counters[0], false_runs=counters[1]
    )
    return Entry("@aj_branch", "", context, 1, estimate, "cond")


def _row(first: Argument, even: Argument, odd: Argument, stride: Argument = ZERO) -> LoopRow:
    return LoopRow(is_on_tape=ZERO, first=first, even=even, odd=odd, stride=stride, last=ZERO)


def _fixed(at: Argument, stride: int = 0) -> LoopRow:
    """An entry at one place, or moving by ``stride`` bytes a step."""
    return _row(at, at, at, Immediate(stride))


def _moving(stack: Value, one: Value, op: Scan) -> LoopRow:
    """Slices of a stack, each of the size of ``one``."""
    stride = one.type.size_bytes
    return _fixed(Offset(stack, (op.length - 1) * stride), -stride) if op.reverse else _fixed(stack, stride)


def _carried(start: Argument, size_bytes: int, target: Argument) -> tuple[LoopRow, LoopRow]:
    """A carry, (read, written): in two places alternately, of which one is where the last value belongs."""
    other = Scratch(aligned(size_bytes), per_worker=False)
    return _row(start, other, target), _row(target, target, other)


def _loop_entry(
    plan: LoweredStep,
    rows: Sequence[LoopRow],
    finals: Sequence[LastValue],
    head: Sequence[Argument],
    label: str,
    steps: float,
) -> Entry:
    """``head``: steps, whether their number is open, whether tapes go backwards, tape."""
    count, is_open, is_back, tape = head
    counter = Counter()
    context = LoopContext(
        steps=count,
        is_open=is_open,
        is_back=is_back,
        table=Nested(plan, tuple(ZERO for _ in rows), counter),
        error=ErrorWords(),
        tape=tape,
        counter=counter,
        n_rows=Immediate(len(rows)),
        n_last=Immediate(len(finals)),
    )
    flat = [word for row in (*rows, *finals) for word in row]
    return Entry("@aj_loop", "", (*context, *flat), 1, steps * _estimate(plan), label)


def _scan(kernel: NestedKernel, op: Scan, plan: LoweredStep) -> list[Entry]:
    first, rest = op.carries, op.carries + op.stacks
    operands, outputs, body = kernel.operands, kernel.node.outputs, op.body
    read: list[LoopRow] = []
    written: list[LoopRow] = []
    finals: list[LastValue] = []
    for k in range(first):
        size = body.inputs[k].type.size_bytes
        into, out = _carried(operands[k], size, outputs[k])
        read.append(into)
        written.append(out)
        finals.append(LastValue(source=Immediate(k), target=outputs[k], bytes=Immediate(size)))
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
    read: list[LoopRow] = []
    written: list[LoopRow] = []
    finals: list[LastValue] = []
    for k in range(sweep.carries):
        size = sweep.body.inputs[k].type.size_bytes
        target = kernel.node.outputs[start + k]
        into, out = _carried(kernel.operands[start + k], size, target)
        read.append(into)
        written.append(out)
        finals.append(LastValue(source=Immediate(k), target=target, bytes=Immediate(size)))
    read += [_on_tape(*tapes[k]) for k in sweep.reads]
    read += [_fixed(x) for x in constants]
    written += [_on_tape(*place) for place in places]
    head = (steps, Immediate(int(is_open)), Immediate(int(sweep.reverse)), tape)
    return _loop_entry(plan, [*read, *written], finals, head, "while_loop", UNKNOWN_STEPS)


def _on_tape(tape: Tape, place: int) -> LoopRow:
    return LoopRow(is_on_tape=Immediate(1), first=tape, even=Immediate(place), odd=ZERO, stride=ZERO, last=ZERO)
