"""The thread pool's code, as LLVM IR text.

How to read this file: `POOL_IR` defines one global record and four functions. `aj_parallel_for` publishes a job and
works on it; `worker` is the endless loop of a pool thread; `work` claims chunks until none is left; `aj_pool_reset`
forgets the threads (in a forked child they are gone).

A job is one 64-bit word: 16 bits of generation, and where the unclaimed chunks end and begin, 24 bits each. A thread
claims a chunk by compare-exchange, so a claim proves that the job it read about is still the current one; only then
does it read the job's body. Nobody waits for a thread that has claimed nothing: a sleeping or descheduled worker costs
no time. Even threads, the caller among them, claim from the front and odd ones from the back: with two threads each
finds in its own caches what it wrote there in the job before, or in the same job of the last call.

Sleeping and waking follow Dekker's pattern with sequentially consistent operations: the sleeper counts itself in and
then looks at the word once more, the publisher writes the word and then looks at the count. The wake-up word is read
before that last look, so a wake-up between look and sleep is not lost.
"""

from __future__ import annotations

PAUSE_BY_MACHINE = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}
FUTEX_BY_MACHINE = {"x86_64": 202, "aarch64": 98}

FIELDS = (
    "job",  # i64 generation << 48 | end of the unclaimed chunks << 24 | the first of them
    "body",  # ptr
    "context",  # ptr
    "chunks",  # i64 of the current job
    "members",  # i64 threads that may work on the current job, the caller included
    "done",  # i32 chunks finished (futex: the caller sleeps here)
    "waiting",  # i32 1 while the caller sleeps
    "wake",  # i32 futex the idle workers sleep on
    "sleepers",  # i32
    "busy",  # i32 1 while a job is current
    "threads",  # i32 threads a job may use, the caller included
    "started",  # i32 pool threads that run
    "spins",  # i32 pauses before a worker sleeps
)


def field_offsets() -> dict[str, int]:
    """Byte offset of every field of the pool record. Each has a cache line of its own pair of 64 bytes."""
    return {name: 128 * rank for rank, name in enumerate(FIELDS)}


def pool_ir(machine: str) -> str:
    """The module text for ``x86_64`` or ``aarch64`` Linux."""
    declare_pause, pause = PAUSE_BY_MACHINE[machine]
    pointers = [
        f"@{name} = internal alias i8, getelementptr (i8, ptr @aj_pool, i64 {offset})"
        for name, offset in field_offsets().items()
    ]
    text = _TEMPLATE
    for key, value in {
        "SIZE": str(128 * len(FIELDS)),
        "FUTEX": str(FUTEX_BY_MACHINE[machine]),
        "DECLARE_PAUSE": declare_pause,
        "PAUSE": pause,
        "FIELDS": "\n".join(pointers),
    }.items():
        text = text.replace(f"<{key}>", value)
    return text


_TEMPLATE = """
@aj_pool = global [<SIZE> x i8] zeroinitializer, align 128
<FIELDS>
<DECLARE_PAUSE>
declare i64 @syscall(i64, ...)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_sigmask(i32, ptr, ptr)

; futex operations 128 and 129: wait and wake, private to the process
define internal void @sleep_on(ptr %word, i32 %seen) nounwind {
  %r = call i64 (i64, ...) @syscall(i64 <FUTEX>, ptr %word, i32 128, i32 %seen, ptr null, ptr null, i32 0)
  ret void
}

define internal void @wake_on(ptr %word, i32 %count) nounwind {
  %r = call i64 (i64, ...) @syscall(i64 <FUTEX>, ptr %word, i32 129, i32 %count, ptr null, ptr null, i32 0)
  ret void
}

; The unclaimed chunks of a job's word, from the first to before the end.
define internal i64 @first_of(i64 %job) alwaysinline nounwind {
  %first = and i64 %job, 16777215
  ret i64 %first
}
define internal i64 @end_of(i64 %job) alwaysinline nounwind {
  %shifted = lshr i64 %job, 24
  %end = and i64 %shifted, 16777215
  ret i64 %end
}
define internal i1 @has_chunks(i64 %job) alwaysinline nounwind {
  %first = call i64 @first_of(i64 %job)
  %end = call i64 @end_of(i64 %job)
  %some = icmp ult i64 %first, %end
  ret i1 %some
}

; Claim and run chunks of the current job until none is left.
define internal void @work(i64 %worker) nounwind {
entry:
  %odd = and i64 %worker, 1
  %at.back = icmp ne i64 %odd, 0
  %step = select i1 %at.back, i64 -16777216, i64 1
  br label %look
look:
  %job = load atomic i64, ptr @job acquire, align 8
  br label %claim
claim:
  %seen = phi i64 [ %job, %look ], [ %now, %lost ]
  %some = call i1 @has_chunks(i64 %seen)
  br i1 %some, label %member, label %out
member:
  %members = load atomic i64, ptr @members monotonic, align 8
  %outside = icmp uge i64 %worker, %members
  br i1 %outside, label %out, label %try
try:
  %less = add i64 %seen, %step
  %pair = cmpxchg ptr @job, i64 %seen, i64 %less acq_rel acquire
  %now = extractvalue { i64, i1 } %pair, 0
  %won = extractvalue { i64, i1 } %pair, 1
  br i1 %won, label %run, label %lost
lost:
  <PAUSE>
  br label %claim
run:
  ; the claimed chunk keeps the job current, so these belong to it
  %body = load atomic ptr, ptr @body monotonic, align 8
  %context = load atomic ptr, ptr @context monotonic, align 8
  %chunks = load atomic i64, ptr @chunks monotonic, align 8
  %first = call i64 @first_of(i64 %seen)
  %end = call i64 @end_of(i64 %less)
  %chunk = select i1 %at.back, i64 %end, i64 %first
  call void %body(ptr %context, i64 %chunk, i64 %worker)
  %before = atomicrmw add ptr @done, i32 1 seq_cst
  %after = add i32 %before, 1
  %total = trunc i64 %chunks to i32
  %last = icmp eq i32 %after, %total
  br i1 %last, label %finish, label %look
finish:
  %waiting = load atomic i32, ptr @waiting seq_cst, align 4
  %wanted = icmp ne i32 %waiting, 0
  br i1 %wanted, label %notify, label %out
notify:
  call void @wake_on(ptr @done, i32 1)
  br label %out
out:
  ret void
}

define internal ptr @worker(ptr %argument) nounwind {
entry:
  %worker = ptrtoint ptr %argument to i64
  br label %serve
serve:
  call void @work(i64 %worker)
  %spins = load atomic i32, ptr @spins monotonic, align 4
  br label %spin
spin:
  %count = phi i32 [ 0, %serve ], [ %count.next, %idle ]
  %job = load atomic i64, ptr @job monotonic, align 8
  %some = call i1 @has_chunks(i64 %job)
  br i1 %some, label %check, label %idle
check:
  %members = load atomic i64, ptr @members monotonic, align 8
  %mine = icmp ult i64 %worker, %members
  br i1 %mine, label %serve, label %idle
idle:
  <PAUSE>
  %count.next = add i32 %count, 1
  %tired = icmp uge i32 %count.next, %spins
  br i1 %tired, label %doze, label %spin
doze:
  %ticket = load atomic i32, ptr @wake seq_cst, align 4
  %s0 = atomicrmw add ptr @sleepers, i32 1 seq_cst
  %job2 = load atomic i64, ptr @job seq_cst, align 8
  %some2 = call i1 @has_chunks(i64 %job2)
  br i1 %some2, label %check2, label %sleep
check2:
  %members2 = load atomic i64, ptr @members seq_cst, align 8
  %mine2 = icmp ult i64 %worker, %members2
  br i1 %mine2, label %awake, label %sleep
sleep:
  call void @sleep_on(ptr @wake, i32 %ticket)
  br label %awake
awake:
  %s1 = atomicrmw sub ptr @sleepers, i32 1 seq_cst
  br label %serve
}

; Start the threads that are missing, with all signals blocked: signals are Python's business.
define internal void @recruit(i32 %wanted) nounwind {
entry:
  %thread = alloca i64, align 8
  %all = alloca [128 x i8], align 16
  %old = alloca [128 x i8], align 16
  %have = load i32, ptr @started, align 4
  %enough = icmp sge i32 %have, %wanted
  br i1 %enough, label %out, label %block
block:
  call void @llvm.memset.p0.i64(ptr %all, i8 -1, i64 128, i1 false)
  %r0 = call i32 @pthread_sigmask(i32 2, ptr %all, ptr %old)
  br label %start
start:
  %count = phi i32 [ %have, %block ], [ %index, %started.one ]
  %index = add i32 %count, 1
  %index64 = sext i32 %index to i64
  %argument = inttoptr i64 %index64 to ptr
  %failed = call i32 @pthread_create(ptr %thread, ptr null, ptr @worker, ptr %argument)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %started.one, label %unblock
started.one:
  %handle = load i64, ptr %thread, align 8
  %r1 = call i32 @pthread_detach(i64 %handle)
  store i32 %index, ptr @started, align 4
  %more = icmp slt i32 %index, %wanted
  br i1 %more, label %start, label %unblock
unblock:
  %r2 = call i32 @pthread_sigmask(i32 2, ptr %old, ptr null)
  br label %out
out:
  ret void
}
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define void @aj_parallel_for(ptr %body, ptr %context, i64 %chunks, i64 %max) nounwind {
entry:
  %threads32 = load atomic i32, ptr @threads monotonic, align 4
  %threads = sext i32 %threads32 to i64
  %few = icmp slt i64 %max, %threads
  %allowed = select i1 %few, i64 %max, i64 %threads
  %fewer = icmp slt i64 %chunks, %allowed
  %members = select i1 %fewer, i64 %chunks, i64 %allowed
  %alone = icmp slt i64 %members, 2
  %huge = icmp ugt i64 %chunks, 16777215
  %plain = or i1 %alone, %huge
  br i1 %plain, label %serial, label %enter
enter:
  %pair = cmpxchg ptr @busy, i32 0, i32 1 seq_cst seq_cst
  %won = extractvalue { i32, i1 } %pair, 1
  br i1 %won, label %publish, label %serial
publish:
  %helpers64 = sub i64 %members, 1
  %helpers = trunc i64 %helpers64 to i32
  call void @recruit(i32 %helpers)
  store atomic ptr %body, ptr @body monotonic, align 8
  store atomic ptr %context, ptr @context monotonic, align 8
  store atomic i64 %chunks, ptr @chunks monotonic, align 8
  store atomic i64 %members, ptr @members monotonic, align 8
  store atomic i32 0, ptr @done monotonic, align 4
  %old = load atomic i64, ptr @job monotonic, align 8
  %generation = lshr i64 %old, 48
  %next = add i64 %generation, 1
  %upper = shl i64 %next, 48
  %range = shl i64 %chunks, 24
  %word = or i64 %upper, %range
  store atomic i64 %word, ptr @job seq_cst, align 8
  %sleepers = load atomic i32, ptr @sleepers seq_cst, align 4
  %asleep = icmp sgt i32 %sleepers, 0
  br i1 %asleep, label %rouse, label %help
rouse:
  %w = atomicrmw add ptr @wake, i32 1 seq_cst
  ; futex gives no choice of whom it wakes, so when some threads are not members all are woken
  %started = load i32, ptr @started, align 4
  %everybody = icmp sge i32 %helpers, %started
  %count = select i1 %everybody, i32 %helpers, i32 2147483647
  call void @wake_on(ptr @wake, i32 %count)
  br label %help
help:
  call void @work(i64 0)
  %total = trunc i64 %chunks to i32
  br label %wait
wait:
  %spun = phi i32 [ 0, %help ], [ %spun.next, %pausing ]
  %done = load atomic i32, ptr @done acquire, align 4
  %finished = icmp eq i32 %done, %total
  br i1 %finished, label %leave, label %pausing
pausing:
  <PAUSE>
  %spun.next = add i32 %spun, 1
  %spins = load atomic i32, ptr @spins monotonic, align 4
  %tired = icmp uge i32 %spun.next, %spins
  br i1 %tired, label %block, label %wait
block:
  store atomic i32 1, ptr @waiting seq_cst, align 4
  br label %recheck
recheck:
  %done2 = load atomic i32, ptr @done seq_cst, align 4
  %finished2 = icmp eq i32 %done2, %total
  br i1 %finished2, label %unblock, label %sleep
sleep:
  call void @sleep_on(ptr @done, i32 %done2)
  br label %recheck
unblock:
  store atomic i32 0, ptr @waiting seq_cst, align 4
  br label %leave
leave:
  store atomic i32 0, ptr @busy seq_cst, align 4
  ret void
serial:
  br label %each
each:
  %chunk = phi i64 [ 0, %serial ], [ %chunk.next, %one ]
  %more = icmp slt i64 %chunk, %chunks
  br i1 %more, label %one, label %over
one:
  call void %body(ptr %context, i64 %chunk, i64 0)
  %chunk.next = add i64 %chunk, 1
  br label %each
over:
  ret void
}

; In a forked child: no pool thread exists, and a job of another thread of the parent never ends.
define void @aj_pool_reset() nounwind {
  store atomic i64 0, ptr @job seq_cst, align 8
  store atomic i32 0, ptr @busy seq_cst, align 4
  store atomic i32 0, ptr @waiting seq_cst, align 4
  store atomic i32 0, ptr @sleepers seq_cst, align 4
  store atomic i32 0, ptr @started seq_cst, align 4
  ret void
}

; For calibration: how long is a pause here?
define void @aj_pool_pause(i64 %count) nounwind {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  <PAUSE>
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %out
out:
  ret void
}

; Run `rounds` empty jobs: the fork-join cost without Python in between.
define internal void @nothing(ptr %context, i64 %chunk, i64 %worker) nounwind {
  ret void
}
define void @aj_pool_rounds(i64 %rounds, i64 %chunks) nounwind {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  call void @aj_parallel_for(ptr @nothing, ptr null, i64 %chunks, i64 2147483647)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %rounds
  br i1 %more, label %loop, label %out
out:
  ret void
}
"""


def serial_pool_ir() -> str:
    """The same entry for systems without a futex: the caller runs every chunk."""
    return _SERIAL


_SERIAL = """
define void @aj_parallel_for(ptr %body, ptr %context, i64 %chunks, i64 %max) nounwind {
entry:
  br label %each
each:
  %chunk = phi i64 [ 0, %entry ], [ %next, %one ]
  %more = icmp slt i64 %chunk, %chunks
  br i1 %more, label %one, label %over
one:
  call void %body(ptr %context, i64 %chunk, i64 0)
  %next = add i64 %chunk, 1
  br label %each
over:
  ret void
}
"""
