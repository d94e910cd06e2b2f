"""Branches and loops of a plan: bodies that run nested plans; calls of Python. Compiled once per machine.

A nested plan is a plan of its own with a pointer table of its own; its body runs it by ``aj_step``. The contexts are
`BranchContext` and `LoopContext`.
"""

from __future__ import annotations

from autojit.codegen.cpu.plan.records import (
    EVERY,
    INTERRUPTED,
    BranchContext,
    CallWords,
    LastValue,
    LoopContext,
    LoopRow,
    MoverWords,
    TapeWords,
)
from autojit.codegen.cpu.plan.runner import POLL, STEP
from autojit.codegen.module_text import ModuleText, Signature
from autojit.codegen.native_function import BODY, NativeFunction, body
from autojit.core.once import once

POLL_STEPS = 256
"""A loop without a known number lets Python handle signals after this many steps."""

INT64_MOST = 2**63 - 1

_MAKE_ROOM = Signature("aj_make_room", "ptr tape, i64 steps, ptr error", "i1")


@once
def control_ir() -> str:
    """The whole module."""
    module = ModuleText()
    NativeFunction.define(module, _MAKE_ROOM, _write_make_room, linkage="internal", attributes="")
    NativeFunction.define(module, body("aj_loop"), _write_loop, attributes="")
    NativeFunction.define(module, body("aj_branch"), _write_branch, attributes="")
    NativeFunction.define(module, body("aj_call"), _write_call, attributes="")
    return module.text()


def _write_make_room(f: NativeFunction) -> None:
    """Make room on a tape; whether there is no error. A call that gave no answer met a signal."""
    tape, steps, error = f.parameters
    make_room = f.get(tape, TapeWords.make_room)
    before = f.get(tape, TapeWords.answers)
    f.call(BODY, tape, steps, 0, by=make_room)
    with f.when(f.test("eq", f.get(tape, TapeWords.answers), before)):
        f.store("i64", INTERRUPTED, error)
    f.ret(f.is_zero(f.load("i64", error)))


def _write_branch(f: NativeFunction) -> None:
    """``aj_branch``: run one of two plans."""
    predicate, on_true, on_false = (f.get(f.parameters[0], word) for word in BranchContext.fields.values())
    is_true = f.is_set(f.load("i8", predicate), "i8")
    table = f.choose(is_true, on_true, on_false, "ptr")
    f.call(STEP, table)


def _write_call(f: NativeFunction) -> None:
    """``aj_call``: call a function of Python's. A call that gave no answer met a signal."""
    words = f.parameters[0]
    function, context = f.get(words, CallWords.function), f.get(words, CallWords.context)
    error, before = f.get(words, CallWords.error), f.get(words, CallWords.answers)
    f.call(BODY, context, 0, 0, by=function)
    with f.when(f.test("eq", f.get(words, CallWords.answers), before)):
        f.store("i64", INTERRUPTED, error)


class _Loop:
    """The words of a loop's context, and what is known before the first step."""

    def __init__(self, f: NativeFunction) -> None:
        context = f.parameters[0]
        self.steps, self.table = f.get(context, LoopContext.steps), f.get(context, LoopContext.table)
        self.error, self.tape = f.get(context, LoopContext.error), f.get(context, LoopContext.tape)
        self.n_rows, self.n_last = f.get(context, LoopContext.n_rows), f.get(context, LoopContext.n_last)
        self.rows = f.after(LoopContext, context)
        self.last_values = f.item(LoopRow, self.rows, self.n_rows)
        self.is_open = f.is_set(f.get(context, LoopContext.is_open))
        self.is_back = f.is_set(f.get(context, LoopContext.is_back))
        self.known = f.load("i64", self.steps)
        self.n = f.choose(self.is_open, INT64_MOST, self.known)
        self.last_step = f.sub(self.n, 1)
        self.keeps = f.is_set(f.get(self.tape, TapeWords.record_bytes))


def _write_loop(f: NativeFunction) -> None:
    """``aj_loop``: point the table at the buffers of a step, ask whether there is one, and run the plan."""
    loop = _Loop(f)
    is_short = f.test("slt", f.get(loop.tape, TapeWords.capacity), loop.known)
    with f.when(f.both(f.both(loop.keeps, f.negate(loop.is_open)), is_short)):
        f.return_unless(f.call(_MAKE_ROOM, loop.tape, loop.known, loop.error))
    step = f.junction("i64", stem="step")
    f.go(step, 0)
    (k,) = f.begin(step)
    with f.when(loop.is_open):
        _prepare_open_step(f, loop, k)
    with f.loop(0, loop.n_rows, stem="row") as i:
        address = _address(f, loop, f.item(LoopRow, loop.rows, i), k)
        f.store("i64", address, f.element(loop.table, "i64", i))
    with f.when(_goes_on(f, loop, k)):
        f.call(STEP, loop.table)
        f.return_when(f.is_set(f.load("i64", loop.error)))
        f.go(step, f.add(k, 1))
    with f.when(loop.is_open):
        f.store("i64", k, loop.steps)
    _copy_last_values(f, loop)


def _prepare_open_step(f: NativeFunction, loop: _Loop, k: str) -> None:
    """In a loop without a known number of steps: room on the tape, or now and then a look for signals."""
    is_full = f.both(f.test("sge", k, f.get(loop.tape, TapeWords.capacity)), loop.keeps)
    with f.when(is_full):
        f.return_unless(f.call(_MAKE_ROOM, loop.tape, f.add(k, 1), loop.error))
    with f.otherwise():
        is_due = f.test("eq", f.binary("and", k, POLL_STEPS - 1), POLL_STEPS - 1)
        with f.when(is_due):
            f.call(POLL, loop.error, EVERY)
            f.return_when(f.is_set(f.load("i64", loop.error)))


def _address(f: NativeFunction, loop: _Loop, row: str, k: str) -> str:
    """Where an entry of the table points in step ``k``: see `LoopRow`."""
    words = LoopRow.fields.values()
    is_on_tape, first, even, odd, stride, last = (f.get(row, word) for word in words)
    with f.when(f.is_set(is_on_tape)):
        tape = f.convert("inttoptr", first, "i64", "ptr")
        place = f.choose(loop.is_back, f.sub(loop.last_step, k), k)
        in_tape = f.add(f.mul(f.get(tape, TapeWords.record_bytes), place), even)
        on_tape = f.add(f.get(tape, TapeWords.address), in_tape)
    with f.otherwise():
        is_odd = f.is_set(f.binary("and", k, 1))
        middle = f.add(f.choose(is_odd, odd, even), f.mul(stride, k))
        takes_last = f.both(f.is_set(last), f.test("eq", k, loop.last_step))
        later = f.choose(takes_last, last, middle)
        plain = f.choose(f.is_zero(k), first, later)
    return f.merge("i64", on_tape, plain)


def _goes_on(f: NativeFunction, loop: _Loop, k: str) -> str:
    """Whether step ``k`` is run: by the bool that the table points to first, or by the number of steps."""
    with f.when(loop.is_open):
        wanted = f.is_set(f.load("i8", f.load("ptr", loop.table)), "i8")
    with f.otherwise():
        there = f.test("slt", k, loop.n)
    return f.merge("i1", wanted, there)


def _copy_last_values(f: NativeFunction, loop: _Loop) -> None:
    with f.loop(0, loop.n_last, stem="last") as i:
        value = f.item(LastValue, loop.last_values, i)
        source = f.load("ptr", f.element(loop.table, "ptr", f.get(value, LastValue.source)))
        target, mover = f.get(value, LastValue.target), f.get(value, LastValue.mover)
        with f.when(f.test("ne", source, target, "ptr")):
            with f.when(f.is_zero(mover, "ptr")):
                f.move_bytes(target, source, f.get(value, LastValue.bytes))
            with f.otherwise():
                places = [f.convert("ptrtoint", place, "ptr") for place in (target, source)]
                f.call(BODY, f.get(mover, MoverWords.context), *places, by=f.get(mover, MoverWords.body))
