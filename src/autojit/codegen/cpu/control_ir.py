"""Branches and loops of a plan: bodies that run nested plans, as LLVM IR text, compiled once per machine.

A nested plan is a plan of its own with a pointer table of its own; its body runs it by ``aj_step``. Words of contexts:

``aj_branch``: (predicate, table if true, table if false, counter of each).

``aj_loop``:

| word | meaning |
|---|---|
| 0 | address of the number of steps; a loop without a known number writes it |
| 1 | 1: the loop goes on while the bool at the table's first input is true |
| 2 | 1: tapes are walked backwards |
| 3, 4 | table of the nested plan; address of the step's error word |
| 5 | the loop's tape |
| 6 | counter of runs of the nested plan |
| 7, 8 | number of table rows, number of last values |
| 9... | rows (6 words each), one per table entry; then last values (3 words each): table entry, target, bytes |

A row is (0, first, even, odd, bytes per step, last): the entry's address is ``first`` in the first step, ``last`` in
the last one of a known number unless it is 0, else ``even`` or ``odd`` by the step's number, plus bytes per step. Or it
is (1, tape, offset in the record, 0, 0, 0). After the loop, last values are copied from where the entry points.

A tape is (address, capacity in steps, bytes per step, function, word): ``function(tape, steps, 0)`` makes room for so
many steps; it changes the word, unless a signal came on the way and something was raised in its place.
"""

from __future__ import annotations

ROW_WORDS = 6
FIRST_ROW = 9
POLL_STEPS = 256
"""A loop without a known number of steps lets Python handle signals after every so many."""

INTERRUPTED = -1
"""The error word of a loop that a signal ended."""


def _word(name: str, base: str, place: int, kind: str = "i64") -> str:
    return f"  %{name}.at = getelementptr i64, ptr {base}, i64 {place}\n  %{name} = load {kind}, ptr %{name}.at\n"


def _loop() -> str:
    words = (
        ("steps", "ptr"), ("is.open", "i64"), ("is.back", "i64"), ("table", "ptr"), ("error", "ptr"), ("tape", "ptr"),
        ("counter", "ptr"), ("rows", "i64"), ("finals", "i64"),
    )  # fmt: skip
    loads = "".join(_word(name, "%context", k, kind) for k, (name, kind) in enumerate(words))
    return f"""
define void @aj_loop(ptr %context, i64 %chunk, i64 %worker) {{
entry:
{loads}
  %first.row = getelementptr i64, ptr %context, i64 {FIRST_ROW}
  %row.words = mul i64 %rows, {ROW_WORDS}
  %first.final = getelementptr i64, ptr %first.row, i64 %row.words
  %known = load i64, ptr %steps
  %open = icmp ne i64 %is.open, 0
  %back = icmp ne i64 %is.back, 0
  %n = select i1 %open, i64 9223372036854775807, i64 %known
  %final.step = sub i64 %n, 1
{_word("capacity0", "%tape", 1)}
{_word("record", "%tape", 2)}
  %keeps = icmp ne i64 %record, 0
  %is.small = icmp slt i64 %capacity0, %known
  %not.open = xor i1 %open, true
  %reserves0 = and i1 %keeps, %not.open
  %reserves = and i1 %reserves0, %is.small
  br i1 %reserves, label %reserve, label %head
reserve:
  %is.reserved = call i1 @aj_make_room(ptr %tape, i64 %known, ptr %error)
  br i1 %is.reserved, label %head, label %failed
head:
  %k = phi i64 [ 0, %entry ], [ 0, %reserve ], [ %k.next, %next ]
  br i1 %open, label %watch, label %aim
watch:
  %capacity.at = getelementptr i64, ptr %tape, i64 1
  %capacity = load i64, ptr %capacity.at
  %is.full0 = icmp sge i64 %k, %capacity
  %is.full = and i1 %is.full0, %keeps
  %low = and i64 %k, {POLL_STEPS - 1}
  %is.due = icmp eq i64 %low, {POLL_STEPS - 1}
  br i1 %is.full, label %ask, label %unless.due
unless.due:
  br i1 %is.due, label %poll, label %aim
poll:
  call void @aj_poll(ptr %error, i64 1)
  %signalled = load i64, ptr %error
  %goes.on = icmp eq i64 %signalled, 0
  br i1 %goes.on, label %aim, label %failed
ask:
  %wanted = add i64 %k, 1
  %is.fine = call i1 @aj_make_room(ptr %tape, i64 %wanted, ptr %error)
  br i1 %is.fine, label %aim, label %failed
aim:
  %forward = sub i64 %final.step, %k
  %place = select i1 %back, i64 %forward, i64 %k
  %is.first = icmp eq i64 %k, 0
  %is.last = icmp eq i64 %k, %final.step
  %bit = and i64 %k, 1
  %is.odd = icmp ne i64 %bit, 0
  br label %row.head
row.head:
  %i = phi i64 [ 0, %aim ], [ %i.next, %row.done ]
  %row.more = icmp slt i64 %i, %rows
  br i1 %row.more, label %row, label %decide
row:
  %i6 = mul i64 %i, {ROW_WORDS}
  %row.at = getelementptr i64, ptr %first.row, i64 %i6
  %mode = load i64, ptr %row.at
{_word("a", "%row.at", 1)}
{_word("b", "%row.at", 2)}
{_word("c", "%row.at", 3)}
{_word("stride", "%row.at", 4)}
{_word("last", "%row.at", 5)}
  %is.tape = icmp ne i64 %mode, 0
  br i1 %is.tape, label %row.tape, label %row.plain
row.tape:
  %its.tape = inttoptr i64 %a to ptr
  %its.base = load i64, ptr %its.tape
{_word("its.record", "%its.tape", 2)}
  %by.step = mul i64 %its.record, %place
  %in.record = add i64 %by.step, %b
  %on.tape = add i64 %its.base, %in.record
  br label %row.done
row.plain:
  %by.parity = select i1 %is.odd, i64 %c, i64 %b
  %moved = mul i64 %stride, %k
  %middle = add i64 %by.parity, %moved
  %has.last = icmp ne i64 %last, 0
  %takes.last = and i1 %has.last, %is.last
  %late = select i1 %takes.last, i64 %last, i64 %middle
  %plain = select i1 %is.first, i64 %a, i64 %late
  br label %row.done
row.done:
  %address = phi i64 [ %on.tape, %row.tape ], [ %plain, %row.plain ]
  %to = getelementptr i64, ptr %table, i64 %i
  store i64 %address, ptr %to
  %i.next = add i64 %i, 1
  br label %row.head
decide:
  br i1 %open, label %ask.bool, label %ask.number
ask.bool:
  %go.at = load ptr, ptr %table
  %go = load i8, ptr %go.at
  %goes = icmp ne i8 %go, 0
  br i1 %goes, label %run, label %finish
ask.number:
  %more = icmp slt i64 %k, %n
  br i1 %more, label %run, label %finish
run:
  %ran = load i64, ptr %counter
  %ran.next = add i64 %ran, 1
  store i64 %ran.next, ptr %counter
  call void @aj_step(ptr %table)
  %wrong = load i64, ptr %error
  %is.sound = icmp eq i64 %wrong, 0
  br i1 %is.sound, label %next, label %failed
next:
  %k.next = add i64 %k, 1
  br label %head
finish:
  br i1 %open, label %count, label %final.head
count:
  store i64 %k, ptr %steps
  br label %final.head
final.head:
  %f = phi i64 [ 0, %finish ], [ 0, %count ], [ %f.next, %final.next ]
  %f.more = icmp slt i64 %f, %finals
  br i1 %f.more, label %final, label %done
final:
  %f3 = mul i64 %f, 3
  %final.at = getelementptr i64, ptr %first.final, i64 %f3
  %which = load i64, ptr %final.at
{_word("target", "%final.at", 1, "ptr")}
{_word("bytes", "%final.at", 2)}
  %from.at = getelementptr ptr, ptr %table, i64 %which
  %from = load ptr, ptr %from.at
  %is.there = icmp eq ptr %from, %target
  br i1 %is.there, label %final.next, label %copy
copy:
  call void @llvm.memmove.p0.p0.i64(ptr %target, ptr %from, i64 %bytes, i1 false)
  br label %final.next
final.next:
  %f.next = add i64 %f, 1
  br label %final.head
failed:
  ret void
done:
  ret void
}}
"""


def _branch() -> str:
    words = (("predicate", "ptr"), ("on.true", "ptr"), ("on.false", "ptr"), ("true.runs", "ptr"), ("false.runs", "ptr"))
    loads = "".join(_word(name, "%context", k, kind) for k, (name, kind) in enumerate(words))
    return f"""
define void @aj_branch(ptr %context, i64 %chunk, i64 %worker) {{
entry:
{loads}
  %bool = load i8, ptr %predicate
  %is.true = icmp ne i8 %bool, 0
  %table = select i1 %is.true, ptr %on.true, ptr %on.false
  %runs = select i1 %is.true, ptr %true.runs, ptr %false.runs
  %ran = load i64, ptr %runs
  %ran.next = add i64 %ran, 1
  store i64 %ran.next, ptr %runs
  call void @aj_step(ptr %table)
  ret void
}}
"""


def control_ir() -> str:
    """The whole module."""
    return f"""
declare void @aj_step(ptr)
declare void @aj_poll(ptr, i64)
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)

define internal i1 @aj_make_room(ptr %tape, i64 %steps, ptr %error) {{
entry:
{_word("function", "%tape", 3, "ptr")}
  %word.at = getelementptr i64, ptr %tape, i64 4
  %before = load i64, ptr %word.at
  call void %function(ptr %tape, i64 %steps, i64 0)
  %after = load i64, ptr %word.at
  %is.answered = icmp ne i64 %before, %after
  br i1 %is.answered, label %look, label %interrupted
interrupted:
  store i64 {INTERRUPTED}, ptr %error
  br label %look
look:
  %wrong = load i64, ptr %error
  %is.sound = icmp eq i64 %wrong, 0
  ret i1 %is.sound
}}
{_loop()}{_branch()}"""
