"""The native code that works out the sizes of a call, as LLVM IR text: part of the plan runner's module.

A *size program* belongs to a plan with symbolic sizes. Its table starts with the sizes a call brings; instructions
compute what depends on them, and each word of the plan that does is written anew. Nothing happens while the sizes stay
those of the call before. All its records consist of 64-bit words: see ``_RECORDS``.

A size that the step counts itself has a program of its own, which runs as an entry of the plan behind the kernel that
counts it. ``reserve`` is an instruction that asks for memory: where ``table[left]`` exceeds ``table[right]``, what
there is, its target becomes the address of a new block.
"""

from __future__ import annotations

from autojit.codegen.words import with_words

OPERATIONS = ("add", "multiply", "quotient", "remainder", "minimum", "maximum", "reserve")

_RECORDS = {
    "program": (
        "n_symbols",  # -1: do not compare
        "table",  # its address; the symbols' values are its first words
        "before",  # address of the symbols' values in the call before
        "n_instructions",
        "instructions",
        "n_words",
        "words",  # address of the words to write
        "grow",  # ``i64 grow(i64 bytes)``: gives memory of at least so many bytes
    ),
    "instruction": ("operation", "target", "left", "right"),  # index into ``OPERATIONS``, then places in the table
    "written": ("address", "place"),  # where to write what is at a place in the table
}

_ARITHMETIC = """
do.add:
  %added = add i64 %a, %b
  br label %write
do.multiply:
  %multiplied = mul i64 %a, %b
  br label %write
do.quotient:
  %round.down = sub i64 %divided, %borrow
  br label %write
do.remainder:
  %carried = mul i64 %borrow, %divisor
  %rest.up = add i64 %rest, %carried
  br label %write
do.minimum:
  %small = call i64 @llvm.smin.i64(i64 %a, i64 %b)
  br label %write
do.maximum:
  %large = call i64 @llvm.smax.i64(i64 %a, i64 %b)
  br label %write
do.reserve:
  %is.short = icmp sgt i64 %a, %b
  br i1 %is.short, label %grow, label %step.next
grow:
  %grow.by = pointer program.grow of %program
  %block = call i64 %grow.by(i64 %a)
  br label %write
"""

_TEXT = (
    """
declare i64 @llvm.smax.i64(i64, i64)

define void @aj_sizes(ptr %program, i64 %chunk, i64 %worker) {
entry:
  %ns = word program.n_symbols of %program
  %table = pointer program.table of %program
  %last = pointer program.before of %program
  %is.stage = icmp slt i64 %ns, 0
  br i1 %is.stage, label %run, label %same.head
same.head:
  %s = phi i64 [ 0, %entry ], [ %s.next, %same.body ]
  %s.more = icmp slt i64 %s, %ns
  br i1 %s.more, label %same.body, label %done
same.body:
  %new.at = getelementptr i64, ptr %table, i64 %s
  %new = load i64, ptr %new.at
  %old.at = getelementptr i64, ptr %last, i64 %s
  %old = load i64, ptr %old.at
  %s.next = add i64 %s, 1
  %is.same = icmp eq i64 %new, %old
  br i1 %is.same, label %same.head, label %keep.head
keep.head:
  %k = phi i64 [ 0, %same.body ], [ %k.next, %keep.body ]
  %k.more = icmp slt i64 %k, %ns
  br i1 %k.more, label %keep.body, label %run
keep.body:
  %from.at = getelementptr i64, ptr %table, i64 %k
  %from = load i64, ptr %from.at
  %to.at = getelementptr i64, ptr %last, i64 %k
  store i64 %from, ptr %to.at
  %k.next = add i64 %k, 1
  br label %keep.head
run:
  %ni = word program.n_instructions of %program
  %steps = pointer program.instructions of %program
  br label %step.head
step.head:
  %i = phi i64 [ 0, %run ], [ %i.next, %step.next ]
  %i.more = icmp slt i64 %i, %ni
  br i1 %i.more, label %step, label %fix
step:
  %i4 = shl i64 %i, 2
  %op.at = getelementptr i64, ptr %steps, i64 %i4
  %op = word instruction.operation of %op.at
  %target = word instruction.target of %op.at
  %left = word instruction.left of %op.at
  %right = word instruction.right of %op.at
  %a.at = getelementptr i64, ptr %table, i64 %left
  %a = load i64, ptr %a.at
  %b.at = getelementptr i64, ptr %table, i64 %right
  %b = load i64, ptr %b.at
  %is.division = icmp ult i64 %op, 4
  %is.late = icmp ugt i64 %op, 1
  %divides = and i1 %is.division, %is.late
  br i1 %divides, label %divide, label %choose
divide:
  %is.zero = icmp eq i64 %b, 0
  %divisor = select i1 %is.zero, i64 1, i64 %b
  %divided = sdiv i64 %a, %divisor
  %rest = srem i64 %a, %divisor
  %signs = xor i64 %rest, %divisor
  %differ = icmp slt i64 %signs, 0
  %inexact = icmp ne i64 %rest, 0
  %borrows = and i1 %differ, %inexact
  %borrow = zext i1 %borrows to i64
  %is.quotient = icmp eq i64 %op, 2
  br i1 %is.quotient, label %do.quotient, label %do.remainder
choose:
  switch i64 %op, label %do.reserve [ i64 0, label %do.add i64 1, label %do.multiply
    i64 4, label %do.minimum i64 5, label %do.maximum ]
"""
    + _ARITHMETIC
    + """
write:
  %value = phi i64 [ %added, %do.add ], [ %multiplied, %do.multiply ], [ %round.down, %do.quotient ],
    [ %rest.up, %do.remainder ], [ %small, %do.minimum ], [ %large, %do.maximum ], [ %block, %grow ]
  %into.at = getelementptr i64, ptr %table, i64 %target
  store i64 %value, ptr %into.at
  br label %step.next
step.next:
  %i.next = add i64 %i, 1
  br label %step.head
fix:
  %nf = word program.n_words of %program
  %words = pointer program.words of %program
  br label %fix.head
fix.head:
  %f = phi i64 [ 0, %fix ], [ %f.next, %fix.body ]
  %f.more = icmp slt i64 %f, %nf
  br i1 %f.more, label %fix.body, label %done
fix.body:
  %f2 = shl i64 %f, 1
  %word.at.at = getelementptr i64, ptr %words, i64 %f2
  %word.at = pointer written.address of %word.at.at
  %slot.index = word written.place of %word.at.at
  %slot.at = getelementptr i64, ptr %table, i64 %slot.index
  %word = load i64, ptr %slot.at
  store i64 %word, ptr %word.at
  %f.next = add i64 %f, 1
  br label %fix.head
done:
  ret void
}
"""
)

SIZE_IR = with_words(_TEXT, _RECORDS)
