"""Entries of branches and loops: nested plans, and where their buffers are in every step."""

from __future__ import annotations

from collections.abc import Sequence

from autojit.codegen.cpu.machine import aligned
from autojit.codegen.cpu.plan.records import BranchContext, LastValue, LoopContext, LoopRow
from autojit.codegen.lowered import (
    Argument,
    Entry,
    ErrorWords,
    Immediate,
    LoweredStep,
    LowerInner,
    Mover,
    Nested,
    Offset,
    Scratch,
    Tape,
    Word,
    Words,
)
from autojit.core.device import CPU, Device, reaches
from autojit.core.sizes import typical
from autojit.ir.graph import Value
from autojit.ops.control_flow import Cond
from autojit.ops.scan_steps import Scan
from autojit.ops.while_sweeps import WhileLoop
from autojit.schedule.kernels import NestedKernel

Kept = tuple[Word, int, list[tuple[Tape, int]]]
"""A loop's number of steps, its sweeps, and by the number of a tape: the sweep's, and the place in a step's record."""

ZERO = Immediate(0)
STEP_NS = 30.0  # of the loop itself; no measurement is recorded
UNKNOWN_STEPS = 2000.0  # what an unknown number counts as: enough that other Python threads may run meanwhile


def nested_entries(kernel: NestedKernel, lower: LowerInner, kept: dict[int, Kept]) -> list[Entry]:
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
    outputs = kernel.node.outputs
    tables = [Nested(p, (*operands, *outputs)) for p in plans]
    estimate = max(map(_estimate, plans))
    context = BranchContext(predicate=predicate, on_true=tables[0], on_false=tables[1])
    return Entry("@aj_branch", "", context, 1, estimate, "cond")


def _row(first: Argument, even: Argument, odd: Argument, stride: Argument = ZERO) -> LoopRow:
    return LoopRow(is_on_tape=ZERO, first=first, even=even, odd=odd, stride=stride, last=ZERO)


def _fixed(at: Argument, stride: int = 0) -> LoopRow:
    """An entry at one place, or moving by ``stride`` bytes a step."""
    return _row(at, at, at, Immediate(stride))


def _moving(stack: Value, one: Value, op: Scan) -> LoopRow:
    """Slices of a stack, each of the size of ``one``."""
    stride = one.type.size_bytes
    return _fixed(Offset(stack, stack.type.size_bytes - stride), -stride) if op.reverse else _fixed(stack, stride)


def _carries(
    starts: Sequence[Value], targets: Sequence[Value], inputs: Sequence[Value]
) -> tuple[list[LoopRow], list[LoopRow], list[LastValue]]:
    """The rows of carries, read and written, and what is copied behind the loop.

    A carry is in two places alternately, of which one is where the last value belongs.
    """
    read: list[LoopRow] = []
    written: list[LoopRow] = []
    finals: list[LastValue] = []
    for k, (start, target) in enumerate(zip(starts, targets, strict=True)):
        size, device = inputs[k].type.size_bytes, inputs[k].type.device
        other = Scratch(aligned(size), per_worker=False, device=device)
        read.append(_row(start, other, target))
        written.append(_row(target, target, other))
        mover = ZERO if reaches(device) else Mover(device, size)
        finals.append(LastValue(source=Immediate(k), target=target, bytes=Immediate(size), mover=mover))
    return read, written, finals


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
    context = LoopContext(
        steps=count,
        is_open=is_open,
        is_back=is_back,
        table=Nested(plan, tuple(ZERO for _ in rows)),
        error=ErrorWords(),
        tape=tape,
        n_rows=Immediate(len(rows)),
        n_last=Immediate(len(finals)),
    )
    flat = [word for row in (*rows, *finals) for word in row]
    return Entry("@aj_loop", "", (*context, *flat), 1, steps * _estimate(plan), label)


def _scan(kernel: NestedKernel, op: Scan, plan: LoweredStep) -> list[Entry]:
    first, rest = op.carries, op.carries + op.stacks
    operands, outputs, body = kernel.operands, kernel.node.outputs, op.body
    read, written, finals = _carries(operands[:first], outputs[:first], body.inputs)
    read += [_moving(operands[k], body.inputs[k], op) for k in range(first, rest)]
    read += [_fixed(x) for x in operands[rest:]]
    written += [_moving(y, one, op) for y, one in zip(outputs[first:], body.outputs[first:], strict=True)]
    head = (Words((op.length,)), ZERO, ZERO, Tape(0))
    return [_loop_entry(plan, [*read, *written], finals, head, "scan", float(typical(op.length)))]


def _while(kernel: NestedKernel, op: WhileLoop, plans: Sequence[LoweredStep], kept: dict[int, Kept]) -> list[Entry]:
    """An entry per sweep; they share the number of steps, and each pushes on a tape of its own."""
    steps, done, tapes = kept.get(op.resumes, (Word(), 0, []))
    tapes = list(tapes)
    entries: list[Entry] = []
    start = 0
    for number, (sweep, plan) in enumerate(zip(op.sweeps(), plans, strict=True)):
        mine, start = slice(start, start + sweep.carries), start + sweep.carries
        if number < done:
            continue
        tape, pushed = _pushed(sweep.body.outputs[sweep.carries :])
        read, written, finals = _carries(kernel.operands[mine], kernel.node.outputs[mine], sweep.body.inputs)
        read += [_on_tape(*tapes[k]) for k in sweep.reads]
        read += [_fixed(x) for x in kernel.operands[op.n_outputs :]]
        written += [_on_tape(*place) for place in pushed]
        head = (steps, Immediate(int(number == 0)), Immediate(int(sweep.reverse)), tape)
        entries.append(_loop_entry(plan, [*read, *written], finals, head, "while_loop", UNKNOWN_STEPS))
        tapes += pushed
    if op.kept:
        kept[op.kept] = steps, len(plans), tapes
    return entries


def _pushed(values: Sequence[Value]) -> tuple[Tape, list[tuple[Tape, int]]]:
    """A loop's tape, and where on it, or on one beside it, values are in a step's record: one for each device."""
    places: list[tuple[Device, int]] = []
    sizes: dict[Device, int] = {}
    for value in values:
        device = value.type.device
        places.append((device, sizes.get(device, 0)))
        sizes[device] = places[-1][1] + aligned(value.type.size_bytes)
    first, *others = sizes or {CPU: 0}
    tapes = {device: Tape(sizes[device], device) for device in others}
    tapes[first] = Tape(sizes.get(first, 0), first, tuple(tapes.values()))
    return tapes[first], [(tapes[device], place) for device, place in places]


def _on_tape(tape: Tape, place: int) -> LoopRow:
    return LoopRow(is_on_tape=Immediate(1), first=tape, even=Immediate(place), odd=ZERO, stride=ZERO, last=ZERO)
