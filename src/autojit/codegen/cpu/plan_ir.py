"""The plan runner and the bodies every plan can call, as LLVM IR text: compiled once per machine.

A *plan* is data, not code: a compiled step is a list of entries (body, context, chunks, parallel) that ``aj_step``
walks, so a new step costs no compilation beyond its own new kernels. It is a record of 64-bit words, ``PLAN``; those
that it leads to are in ``_RECORDS``, and the text loads their words by name (``codegen.words``).

``table[-1]`` holds the plan's address. A body is ``void(ptr context, i64 chunk, i64 worker)``; a kernel's context is
its array of buffer pointers.

``aj_band`` runs the kernels of a band on one slice: its context is (count, then per kernel: body, number of arguments,
address of the argument rows, 1 if the body is told the slice). An argument row is (address, bytes per slice, bytes per
worker). ``aj_many`` runs independent kernels as one parallel loop: its context is (count, then per kernel: first
chunk, body, context). ``aj_copy`` copies bytes: context (target, source or
0 for zeros, bytes, bytes per chunk); the target may be the source. ``aj_matmul_<t>``: see
``MATMUL_WORDS``. ``aj_contract_<t>``, in a band: the product of slice ``chunk`` of both operands, ``k_block`` of the
``k`` steps or what is left of them; see ``CONTRACT_WORDS``.
"""

from __future__ import annotations

from autojit.codegen.cpu.size_ir import SIZE_IR
from autojit.codegen.words import with_words, word_load

PLAN = (
    "n_patches",
    "patches",  # address of the patches
    "n_entries",
    "entries",  # address of the entries
    "workers",  # that scratch was laid out for
    "error",  # address of a word that a failing entry makes not 0: those after it, and so their writes, are left out
    "sizes",  # address of the size program (see `size_ir`), 0 where all sizes are fixed
    "n_stoppable",  # entries that a signal may stop: those before the first that writes what outlives the call
    "clock",  # 1: look at the clock before each of them; 2: before every sixteenth
)

_RECORDS = {
    "plan": PLAN,
    "patch": ("address", "source", "bytes"),  # where to write the table's entry ``source`` and so many bytes more
    "entry": ("body", "context", "chunks", "is_parallel"),
    "polled": ("body", "context", "error"),
    "part": ("before", "first", "body", "context"),  # of ``aj_many``; the word before it is the previous one's
    "kernel": ("before", "body", "n_rows", "rows", "is_told"),  # of ``aj_band``; likewise
    "row": ("address", "per_chunk", "per_worker"),
    "copy": ("to", "source", "bytes", "block"),
    "product": ("a", "b", "c", "words", "scratch"),
    "sum": ("to", "slots", "words"),
    "slots": ("n", "count", "stride"),
}

MATMUL_WORDS = (
    "m", "n", "k", "rsa", "csa", "rsb", "csb", "rsc", "csc", "accumulate",
    "row_block", "row_blocks", "units_per_chunk", "units", "inner_batch",
    "a_outer", "a_inner", "b_outer", "b_inner", "c_outer", "c_inner", "scratch_bytes", "col_block", "col_blocks",
)  # fmt: skip

CONTRACT_WORDS = ("m", "n", "k", "rsa", "csa", "rsb", "csb", "rsc", "csc", "k_block", "scratch_bytes")

PLAN_IR = """
declare void @aj_parallel_for(ptr, ptr, i64, i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare i64 @llvm.smin.i64(i64, i64)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare i32 @clock_gettime(i32, ptr)

; What lets Python handle signals, called with the address of the error word; null until somebody sets it.
@aj_signals_at = global ptr null
@aj_poll_last = internal global i64 0
@aj_poll_ticks = internal global i64 0

; Let Python handle signals if it has not for a tenth of a second.
define void @aj_poll(ptr %error, i64 %mode) noinline nounwind {
entry:
  %time = alloca [2 x i64], align 8
  %signals = load atomic ptr, ptr @aj_signals_at monotonic, align 8
  %nobody = icmp eq ptr %signals, null
  br i1 %nobody, label %out, label %how
how:
  %always = icmp eq i64 %mode, 1
  br i1 %always, label %look, label %tick
tick:
  %ticks = load atomic i64, ptr @aj_poll_ticks monotonic, align 8
  %ticks.next = add i64 %ticks, 1
  store atomic i64 %ticks.next, ptr @aj_poll_ticks monotonic, align 8
  %phase = and i64 %ticks.next, 15
  %due = icmp eq i64 %phase, 0
  br i1 %due, label %look, label %out
look:
  ; 6 is Linux's coarse monotonic clock, which costs no system call, and macOS's monotonic one
  %failed = call i32 @clock_gettime(i32 6, ptr %time)
  %seconds = load i64, ptr %time, align 8
  %rest.at = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest.at, align 8
  %whole = mul i64 %seconds, 1000000000
  %now = add i64 %whole, %rest
  %last = load atomic i64, ptr @aj_poll_last monotonic, align 8
  %elapsed = sub i64 %now, %last
  %late = icmp ugt i64 %elapsed, 100000000
  br i1 %late, label %ask, label %out
ask:
  store atomic i64 %now, ptr @aj_poll_last monotonic, align 8
  call void %signals(ptr %error)
  br label %out
out:
  ret void
}

; One chunk of an entry that a signal may stop; context: (body, its context, address of the error word).
define internal void @aj_polled(ptr %context, i64 %chunk, i64 %worker) nounwind {
entry:
  %body = pointer polled.body of %context
  %inner = pointer polled.context of %context
  %error = pointer polled.error of %context
  %is.caller = icmp eq i64 %worker, 0
  br i1 %is.caller, label %poll, label %look
poll:
  call void @aj_poll(ptr %error, i64 1)
  br label %look
look:
  %word = load atomic i64, ptr %error monotonic, align 8
  %is.stopped = icmp eq i64 %word, -1
  br i1 %is.stopped, label %out, label %run
run:
  call void %body(ptr %inner, i64 %chunk, i64 %worker)
  br label %out
out:
  ret void
}

define void @aj_step(ptr %table) {
entry:
  %polled = alloca [3 x i64], align 8
  %plan.at = getelementptr ptr, ptr %table, i64 -1
  %plan = load ptr, ptr %plan.at
  %np = word plan.n_patches of %plan
  %patches = pointer plan.patches of %plan
  %ne = word plan.n_entries of %plan
  %entries = pointer plan.entries of %plan
  %workers = word plan.workers of %plan
  %error.at = pointer plan.error of %plan
  %sizes = pointer plan.sizes of %plan
  %stop = word plan.n_stoppable of %plan
  %is.fixed = icmp eq ptr %sizes, null
  br i1 %is.fixed, label %patch.head, label %size
size:
  call void @aj_sizes(ptr %sizes, i64 0, i64 0)
  %unsized = load i64, ptr %error.at
  %is.sized = icmp eq i64 %unsized, 0
  br i1 %is.sized, label %patch.head, label %done
patch.head:
  %p = phi i64 [ 0, %entry ], [ 0, %size ], [ %p.next, %patch.body ]
  %p.more = icmp slt i64 %p, %np
  br i1 %p.more, label %patch.body, label %run.head
patch.body:
  %p2 = mul i64 %p, 3
  %slot.at = getelementptr ptr, ptr %patches, i64 %p2
  %slot = pointer patch.address of %slot.at
  %which = word patch.source of %slot.at
  %from = getelementptr ptr, ptr %table, i64 %which
  %buffer = load ptr, ptr %from
  %bytes = word patch.bytes of %slot.at
  %pointer = getelementptr i8, ptr %buffer, i64 %bytes
  store ptr %pointer, ptr %slot
  %p.next = add i64 %p, 1
  br label %patch.head
run.head:
  %e = phi i64 [ 0, %patch.head ], [ %e.next, %run.next ]
  %e.more = icmp slt i64 %e, %ne
  br i1 %e.more, label %run.body, label %done
run.body:
  %e4 = shl i64 %e, 2
  %entry.at = getelementptr i64, ptr %entries, i64 %e4
  %body = pointer entry.body of %entry.at
  %context = pointer entry.context of %entry.at
  %chunks = word entry.chunks of %entry.at
  %parallel = word entry.is_parallel of %entry.at
  %is.parallel = icmp ne i64 %parallel, 0
  %may.stop = icmp slt i64 %e, %stop
  br i1 %may.stop, label %stoppable, label %run.plain
stoppable:
  %mode = word plan.clock of %plan
  call void @aj_poll(ptr %error.at, i64 %mode)
  %signalled = load i64, ptr %error.at
  %goes.on = icmp eq i64 %signalled, 0
  br i1 %goes.on, label %stoppable.run, label %done
stoppable.run:
  br i1 %is.parallel, label %stoppable.parallel, label %serial.head
stoppable.parallel:
  store ptr %body, ptr %polled
  %polled.context = getelementptr i64, ptr %polled, i64 1
  store ptr %context, ptr %polled.context
  %polled.error = getelementptr i64, ptr %polled, i64 2
  store ptr %error.at, ptr %polled.error
  call void @aj_parallel_for(ptr @aj_polled, ptr %polled, i64 %chunks, i64 %workers)
  br label %run.next
run.plain:
  br i1 %is.parallel, label %run.parallel, label %serial.head
run.parallel:
  call void @aj_parallel_for(ptr %body, ptr %context, i64 %chunks, i64 %workers)
  br label %run.next
serial.head:
  %c = phi i64 [ 0, %run.plain ], [ 0, %stoppable.run ], [ %c.next, %serial.body ]
  %c.more = icmp slt i64 %c, %chunks
  br i1 %c.more, label %serial.body, label %run.next
serial.body:
  call void %body(ptr %context, i64 %c, i64 0)
  %c.next = add i64 %c, 1
  br label %serial.head
run.next:
  %e.next = add i64 %e, 1
  %error = load i64, ptr %error.at
  %is.sound = icmp eq i64 %error, 0
  br i1 %is.sound, label %run.head, label %done
done:
  ret void
}

define void @aj_many(ptr %context, i64 %chunk, i64 %worker) {
entry:
  %count = load i64, ptr %context
  br label %head
head:
  %i = phi i64 [ 1, %entry ], [ %i.next, %next ]
  %last = icmp sge i64 %i, %count
  br i1 %last, label %found, label %test
test:
  %w = mul i64 %i, 3
  %first.at = getelementptr i64, ptr %context, i64 %w
  %first.at1 = getelementptr i64, ptr %first.at, i64 1
  %first = load i64, ptr %first.at1
  %beyond = icmp slt i64 %chunk, %first
  br i1 %beyond, label %found, label %next
next:
  %i.next = add i64 %i, 1
  br label %head
found:
  %k = add i64 %i, -1
  %kw = mul i64 %k, 3
  %at = getelementptr i64, ptr %context, i64 %kw
  %start = word part.first of %at
  %body = pointer part.body of %at
  %inner = pointer part.context of %at
  %local = sub i64 %chunk, %start
  call void %body(ptr %inner, i64 %local, i64 %worker)
  ret void
}

define void @aj_band(ptr %context, i64 %chunk, i64 %worker) {
entry:
  %pointers = alloca [256 x i64], align 64
  %count = load i64, ptr %context
  br label %head
head:
  %k = phi i64 [ 0, %entry ], [ %k.next, %call ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %kernel, label %done
kernel:
  %k4 = shl i64 %k, 2
  %base = getelementptr i64, ptr %context, i64 %k4
  %body = pointer kernel.body of %base
  %n = word kernel.n_rows of %base
  %rows = pointer kernel.rows of %base
  %pass = word kernel.is_told of %base
  br label %arg.head
arg.head:
  %i = phi i64 [ 0, %kernel ], [ %i.next, %arg ]
  %arg.more = icmp slt i64 %i, %n
  br i1 %arg.more, label %arg, label %call
arg:
  %i3 = mul i64 %i, 3
  %row = getelementptr i64, ptr %rows, i64 %i3
  %start = word row.address of %row
  %per.chunk = word row.per_chunk of %row
  %per.worker = word row.per_worker of %row
  %by.chunk = mul i64 %per.chunk, %chunk
  %by.worker = mul i64 %per.worker, %worker
  %sum = add i64 %start, %by.chunk
  %address = add i64 %sum, %by.worker
  %to = getelementptr i64, ptr %pointers, i64 %i
  store i64 %address, ptr %to
  %i.next = add i64 %i, 1
  br label %arg.head
call:
  %as = mul i64 %chunk, %pass
  call void %body(ptr %pointers, i64 %as, i64 %worker)
  %k.next = add i64 %k, 1
  br label %head
done:
  ret void
}

define void @aj_copy(ptr %context, i64 %chunk, i64 %worker) {
entry:
  %to0 = pointer copy.to of %context
  %from0 = pointer copy.source of %context
  %size = word copy.bytes of %context
  %block = word copy.block of %context
  %start = mul i64 %chunk, %block
  %left = sub i64 %size, %start
  %bytes = call i64 @llvm.smin.i64(i64 %left, i64 %block)
  %to = getelementptr i8, ptr %to0, i64 %start
  %nothing = icmp eq ptr %to0, %from0
  br i1 %nothing, label %done, label %look
look:
  %zero = icmp eq ptr %from0, null
  br i1 %zero, label %clear, label %copy
copy:
  %from = getelementptr i8, ptr %from0, i64 %start
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %bytes, i1 false)
  ret void
clear:
  call void @llvm.memset.p0.i64(ptr %to, i8 0, i64 %bytes, i1 false)
  ret void
done:
  ret void
}
"""

_MATMUL_TEMPLATE = """
declare void @aj_gemm_@T@(i64, i64, i64, ptr, i64, i64, ptr, i64, i64, ptr, i64, i64, i64, ptr)

define void @aj_matmul_@T@(ptr %context, i64 %chunk, i64 %worker) {
entry:
  %a0 = pointer product.a of %context
  %b0 = pointer product.b of %context
  %c0 = pointer product.c of %context
  %w = pointer product.words of %context
  %s0 = pointer product.scratch of %context
@LOADS@
  %skip = mul i64 %worker, %scratch_bytes
  %s = getelementptr i8, ptr %s0, i64 %skip
  %first = mul i64 %chunk, %units_per_chunk
  %stop0 = add i64 %first, %units_per_chunk
  %stop = call i64 @llvm.smin.i64(i64 %stop0, i64 %units)
  br label %head
head:
  %u = phi i64 [ %first, %entry ], [ %u.next, %body ]
  %more = icmp slt i64 %u, %stop
  br i1 %more, label %body, label %done
body:
  %tile = udiv i64 %u, %col_blocks
  %strip = urem i64 %u, %col_blocks
  %col = mul i64 %strip, %col_block
  %across = sub i64 %n, %col
  %cols = call i64 @llvm.smin.i64(i64 %across, i64 %col_block)
  %batch = udiv i64 %tile, %row_blocks
  %block = urem i64 %tile, %row_blocks
  %outer = udiv i64 %batch, %inner_batch
  %inner = urem i64 %batch, %inner_batch
  %row = mul i64 %block, %row_block
  %left = sub i64 %m, %row
  %rows = call i64 @llvm.smin.i64(i64 %left, i64 %row_block)
@OFFSETS@
  call void @aj_gemm_@T@(i64 %rows, i64 %cols, i64 %k, ptr %ap, i64 %rsa, i64 %csa, ptr %bp, i64 %rsb, i64 %csb, ptr %cp, i64 %rsc, i64 %csc, i64 %accumulate, ptr %s)
  %u.next = add i64 %u, 1
  br label %head
done:
  ret void
}
"""  # noqa: E501


_CONTRACT_TEMPLATE = """
define void @aj_contract_@T@(ptr %context, i64 %chunk, i64 %worker) {
entry:
  %a = pointer product.a of %context
  %b = pointer product.b of %context
  %c = pointer product.c of %context
  %w = pointer product.words of %context
  %s0 = pointer product.scratch of %context
@LOADS@
  %skip = mul i64 %worker, %scratch_bytes
  %s = getelementptr i8, ptr %s0, i64 %skip
  %done = mul i64 %chunk, %k_block
  %left = sub i64 %k, %done
  %steps = call i64 @llvm.smin.i64(i64 %left, i64 %k_block)
  call void @aj_gemm_@T@(i64 %m, i64 %n, i64 %steps, ptr %a, i64 %rsa, i64 %csa, ptr %b, i64 %rsb, i64 %csb, ptr %c, i64 %rsc, i64 %csc, i64 0, ptr %s)
  ret void
}
"""  # noqa: E501


def _offset(name: str, shifts: tuple[tuple[str, str], ...], kind: str) -> list[str]:
    """``name``'s pointer moved to the batch and by (counter, stride) shifts."""
    lines = [
        f"  %{name}o = mul i64 %outer, %{name}_outer",
        f"  %{name}i = mul i64 %inner, %{name}_inner",
        f"  %{name}s0 = add i64 %{name}o, %{name}i",
    ]
    for number, (counter, stride) in enumerate(shifts):
        lines.append(f"  %{name}m{number} = mul i64 %{counter}, %{stride}")
        lines.append(f"  %{name}s{number + 1} = add i64 %{name}s{number}, %{name}m{number}")
    return [*lines, f"  %{name}p = getelementptr {kind}, ptr %{name}0, i64 %{name}s{len(shifts)}"]


def matmul_ir(short: str) -> str:
    """The batched matrix product's body for ``f32`` or ``f64``; it calls the GEMM of that type."""
    kind = {"f32": "float", "f64": "double"}[short]
    loads = _loads(MATMUL_WORDS)
    rows, columns = ("row", "rsa"), ("col", "csb")
    offsets = [
        *_offset("a", (rows,), kind),
        *_offset("b", (columns,), kind),
        *_offset("c", (("row", "rsc"), ("col", "csc")), kind),
    ]
    text = _MATMUL_TEMPLATE.replace("@T@", short).replace("@LOADS@", "\n".join(loads))
    slices = _CONTRACT_TEMPLATE.replace("@T@", short).replace("@LOADS@", "\n".join(_loads(CONTRACT_WORDS)))
    return with_words(text.replace("@OFFSETS@", "\n".join(offsets)) + slices, _RECORDS)


def _loads(names: tuple[str, ...]) -> list[str]:
    """A body's words by name."""
    return [word_load(name, "%w", position) for position, name in enumerate(names)]


_SUM_TEMPLATE = """
define void @aj_sum_slots_@T@(ptr noalias %context, i64 %chunk, i64 %worker) {
entry:
  %to = pointer sum.to of %context
  %from = pointer sum.slots of %context
  %w = pointer sum.words of %context
  %n = word slots.n of %w
  %slots = word slots.count of %w
  %stride = word slots.stride of %w
  br label %clear.head
clear.head:
  %z = phi i64 [ 0, %entry ], [ %z.next, %clear ]
  %z.more = icmp slt i64 %z, %n
  br i1 %z.more, label %clear, label %slot.head
clear:
  %z.at = getelementptr @K@, ptr %to, i64 %z
  store @K@ 0.0, ptr %z.at
  %z.next = add i64 %z, 1
  br label %clear.head
slot.head:
  %s = phi i64 [ 0, %clear.head ], [ %s.next, %slot.next ]
  %s.more = icmp slt i64 %s, %slots
  br i1 %s.more, label %add.start, label %done
add.start:
  %skip = mul i64 %s, %stride
  %part = getelementptr i8, ptr %from, i64 %skip
  br label %add.head
add.head:
  %i = phi i64 [ 0, %add.start ], [ %i.next, %add ]
  %i.more = icmp slt i64 %i, %n
  br i1 %i.more, label %add, label %slot.next
add:
  %a.at = getelementptr @K@, ptr %to, i64 %i
  %a = load @K@, ptr %a.at, !llvm.access.group !0
  %b.at = getelementptr @K@, ptr %part, i64 %i
  %b = load @K@, ptr %b.at, !llvm.access.group !0
  %c = fadd @K@ %a, %b
  store @K@ %c, ptr %a.at, !llvm.access.group !0
  %i.next = add i64 %i, 1
  br label %add.head, !llvm.loop !1
slot.next:
  %s.next = add i64 %s, 1
  br label %slot.head
done:
  ret void
}
"""
_SUM_METADATA = """
!0 = distinct !{}
!1 = distinct !{!1, !2}
!2 = !{!"llvm.loop.parallel_accesses", !0}
"""


def plan_ir() -> str:
    """The whole module but the GEMMs."""
    sums = [_SUM_TEMPLATE.replace("@T@", t).replace("@K@", k) for t, k in (("f32", "float"), ("f64", "double"))]
    return with_words(PLAN_IR + "".join(sums), _RECORDS) + SIZE_IR + _SUM_METADATA
