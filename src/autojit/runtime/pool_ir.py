"""The thread pool's native code.

How to read this file: `PoolWords` is one global record. ``aj_parallel_for`` publishes a job and works on it; ``worker``
is the endless loop of a pool thread; ``work`` claims chunks until none is left; ``aj_pool_reset`` forgets the threads
(in a forked child they are gone).

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

from autojit.codegen.cpu.plan.runner import PARALLEL_FOR
from autojit.codegen.module_text import ModuleText, Signature
from autojit.codegen.native_function import BODY, NativeFunction
from autojit.codegen.records import Field, HalfWord, Pointer, Record, Word
from autojit.core.once import once
from autojit.runtime.denormals_ir import FLUSH_BITS, SET_FLUSH_BITS, add_denormals, can_flush

CACHE_LINES_BYTES = 128  # two of 64 bytes, which are fetched together: no field shares them with another

PAUSE_BY_MACHINE = {"x86_64": "call void @llvm.x86.sse2.pause()", "aarch64": "call void @llvm.aarch64.hint(i32 1)"}
FUTEX_BY_MACHINE = {"x86_64": 202, "aarch64": 98}
FUTEX_WAIT, FUTEX_WAKE = 128, 129  # private to the process

CHUNK_BITS = 24
MOST_CHUNKS = 2**CHUNK_BITS - 1  # a job with more runs on the calling thread
GENERATION_BIT = 2 * CHUNK_BITS
INT32_MOST = 2**31 - 1
SIGNAL_SET_BYTES = 128
SET_SIGNAL_MASK = 2  # SIG_SETMASK


class PoolWords(Record[int], apart=CACHE_LINES_BYTES):
    """The state of the pool."""

    job: Word  # generation << 48 | end of the unclaimed chunks << 24 | the first of them
    body: Pointer
    context: Pointer
    chunks: Word  # of the current job
    members: Word  # threads that may work on the current job, the caller included
    done: HalfWord  # chunks finished (futex: the caller sleeps here)
    waiting: HalfWord  # 1 while the caller sleeps
    wake: HalfWord  # futex the idle workers sleep on
    sleepers: HalfWord
    busy: HalfWord  # 1 while a job is current
    threads: HalfWord  # threads a job may use, the caller included
    started: HalfWord  # pool threads that run
    spins: HalfWord  # pauses before a worker sleeps
    flushes: HalfWord  # what the thread that published the job does with denormals: see `denormals_ir`


_SLEEP = Signature("sleep_on", "ptr word, i32 seen")
_WAKE = Signature("wake_on", "ptr word, i32 count")
_WORK = Signature("work", "i64 worker")
_WORKER = Signature("worker", "ptr argument", "ptr")
_RECRUIT = Signature("recruit", "i32 wanted")
_CREATE = Signature("pthread_create", "ptr thread, ptr attributes, ptr start, ptr argument", "i32")
_DETACH = Signature("pthread_detach", "i64 thread", "i32")
_MASK = Signature("pthread_sigmask", "i32 how, ptr new, ptr old", "i32")


class PoolModule(ModuleText):
    """The pool for ``x86_64`` or ``aarch64`` Linux."""

    def __init__(self, machine: str) -> None:
        super().__init__()
        self.machine = machine
        self.definitions["aj_pool"] = f"@aj_pool = global [{PoolWords.size_bytes} x i8] zeroinitializer, align 128"
        self.definitions["syscall"] = "declare i64 @syscall(i64, ...)"


class PoolFunction(NativeFunction):
    """A function that works on the pool's record."""

    module: PoolModule

    def word(self, field: Field[int]) -> str:
        """The address of a word of the pool."""
        return f"getelementptr (i8, ptr @aj_pool, i64 {field.offset_bytes})" if field.offset_bytes else "@aj_pool"

    def read(self, field: Field[int], order: str) -> str:
        """A word of the pool."""
        return self.load(field.kind, self.word(field), order)

    def write(self, field: Field[int], value: str | int, order: str) -> None:
        """Write a word of the pool."""
        self.store(field.kind, value, self.word(field), order)

    def change(self, operation: str, field: Field[int], amount: int) -> str:
        """Add to or subtract from a word of the pool; what it was."""
        return self.update(operation, self.word(field), amount, "seq_cst", field.kind)

    def pause(self) -> None:
        """Let the core's other thread run."""
        self.line(PAUSE_BY_MACHINE[self.module.machine])

    def futex(self, operation: int, word: str, number: str) -> None:
        """Ask the kernel to let threads sleep on a word or wake them."""
        call = FUTEX_BY_MACHINE[self.module.machine]
        arguments = f"i64 {call}, ptr {word}, i32 {operation}, i32 {number}, ptr null, ptr null, i32 0"
        self.value(f"call i64 (i64, ...) @syscall({arguments})")

    def first_of(self, job: str) -> str:
        """The first unclaimed chunk of a job."""
        return self.binary("and", job, MOST_CHUNKS)

    def end_of(self, job: str) -> str:
        """Where the unclaimed chunks of a job end."""
        return self.binary("and", self.binary("lshr", job, CHUNK_BITS), MOST_CHUNKS)

    def has_chunks(self, job: str) -> str:
        """Whether a job has unclaimed chunks."""
        return self.test("ult", self.first_of(job), self.end_of(job))


@once
def pool_ir(machine: str) -> str:
    """The module text for ``x86_64`` or ``aarch64`` Linux."""
    module = PoolModule(machine)
    add_denormals(module, machine)
    for signature, operation in ((_SLEEP, FUTEX_WAIT), (_WAKE, FUTEX_WAKE)):
        f = PoolFunction(module, signature, linkage="internal")
        f.futex(operation, *f.parameters)
        f.finish()
    PoolFunction.define(module, _WORK, _write_work, linkage="internal")
    PoolFunction.define(module, _WORKER, _write_worker, linkage="internal")
    PoolFunction.define(module, _RECRUIT, _write_recruit, linkage="internal")
    PoolFunction.define(module, PARALLEL_FOR, _write_parallel_for)
    PoolFunction.define(module, Signature("aj_pool_reset"), _write_reset)
    PoolFunction.define(module, Signature("aj_pool_pause", "i64 count"), _write_pause)
    return module.text()


def _write_work(f: PoolFunction) -> None:
    """Claim and run chunks of the current job until none is left."""
    (worker,) = f.parameters
    is_at_back = f.is_set(f.binary("and", worker, 1))
    step = f.choose(is_at_back, -(1 << CHUNK_BITS), 1)
    look, claim = f.junction(stem="look"), f.junction("i64", stem="claim")
    f.go(look)
    f.begin(look)
    f.go(claim, f.read(PoolWords.job, "acquire"))
    (seen,) = f.begin(claim)
    f.return_unless(f.has_chunks(seen))
    f.return_when(f.test("uge", worker, f.read(PoolWords.members, "monotonic")))
    left = f.add(seen, step)
    now, is_won = f.exchange(f.word(PoolWords.job), seen, left, "acq_rel acquire")
    won = f.junction(stem="won")
    f.go_when(is_won, won)
    f.pause()
    f.go(claim, now)
    f.begin(won)
    # the claimed chunk keeps the job current, so these belong to it
    run, context = f.read(PoolWords.body, "monotonic"), f.read(PoolWords.context, "monotonic")
    chunks = f.read(PoolWords.chunks, "monotonic")
    chunk = f.choose(is_at_back, f.end_of(left), f.first_of(seen))
    flushes = f.read(PoolWords.flushes, "monotonic")
    with f.when(f.test("ne", flushes, f.call(FLUSH_BITS), "i32")):
        f.call(SET_FLUSH_BITS, flushes)
    f.call(BODY, context, chunk, worker, by=run)
    done = f.add(f.change("add", PoolWords.done, 1), 1, "i32")
    is_last = f.test("eq", done, f.convert("trunc", chunks, "i64", "i32"), "i32")
    last = f.junction(stem="last")
    f.go_when(is_last, last)
    f.go(look)
    f.begin(last)
    f.return_when(f.is_zero(f.read(PoolWords.waiting, "seq_cst"), "i32"))
    f.call(_WAKE, f.word(PoolWords.done), 1)


def _write_worker(f: PoolFunction) -> None:
    """A pool thread: work, look out for a job a while, sleep until one is published."""
    worker = f.convert("ptrtoint", f.parameters[0], "ptr")
    serve, spin, idle = f.junction(stem="serve"), f.junction("i32", stem="spin"), f.junction(stem="idle")
    f.go(serve)
    f.begin(serve)
    f.call(_WORK, worker)
    spins = f.read(PoolWords.spins, "monotonic")
    f.go(spin, 0)
    (count,) = f.begin(spin)
    f.go_unless(f.has_chunks(f.read(PoolWords.job, "monotonic")), idle)
    f.go_when(f.test("ult", worker, f.read(PoolWords.members, "monotonic")), serve)
    f.go(idle)
    f.begin(idle)
    f.pause()
    next_count = f.add(count, 1, "i32")
    tired = f.junction(stem="tired")
    f.go_when(f.test("uge", next_count, spins, "i32"), tired)
    f.go(spin, next_count)
    f.begin(tired)
    _sleep(f, worker)
    f.go(serve)


def _sleep(f: PoolFunction, worker: str) -> None:
    """Sleep until somebody publishes a job, unless there is one for this thread."""
    ticket = f.read(PoolWords.wake, "seq_cst")
    f.change("add", PoolWords.sleepers, 1)
    sleep, awake = f.junction(stem="sleep"), f.junction(stem="awake")
    f.go_unless(f.has_chunks(f.read(PoolWords.job, "seq_cst")), sleep)
    f.go_when(f.test("ult", worker, f.read(PoolWords.members, "seq_cst")), awake)
    f.go(sleep)
    f.begin(sleep)
    f.call(_SLEEP, f.word(PoolWords.wake), ticket)
    f.go(awake)
    f.begin(awake)
    f.change("sub", PoolWords.sleepers, 1)


def _write_recruit(f: PoolFunction) -> None:
    """Start the threads that are missing, with all signals blocked: signals are Python's business."""
    (wanted,) = f.parameters
    thread = f.local("i64", 8)
    every, old = f.local(f"[{SIGNAL_SET_BYTES} x i8]", 16), f.local(f"[{SIGNAL_SET_BYTES} x i8]", 16)
    have = f.load("i32", f.word(PoolWords.started))
    f.return_when(f.test("sge", have, wanted, "i32"))
    f.fill_bytes(every, -1, SIGNAL_SET_BYTES)
    f.call(_MASK, SET_SIGNAL_MASK, every, old)
    start, unblock = f.junction("i32", stem="start"), f.junction(stem="unblock")
    f.go(start, have)
    (count,) = f.begin(start)
    number = f.add(count, 1, "i32")
    argument = f.convert("inttoptr", f.convert("sext", number, "i32"), "i64", "ptr")
    failed = f.call(_CREATE, thread, "null", f"@{_WORKER.symbol}", argument)
    f.go_when(f.is_set(failed, "i32"), unblock)
    f.call(_DETACH, f.load("i64", thread))
    f.store("i32", number, f.word(PoolWords.started))
    f.go_unless(f.test("slt", number, wanted, "i32"), unblock)
    f.go(start, number)
    f.begin(unblock)
    f.call(_MASK, SET_SIGNAL_MASK, old, "null")


def _write_parallel_for(f: PoolFunction) -> None:
    """Run all chunks of a job with the pool's help; here, when there is but one thread or the pool has another job."""
    _, _, chunks, most = f.parameters
    threads = f.convert("sext", f.read(PoolWords.threads, "monotonic"), "i32")
    members = _smaller(f, chunks, _smaller(f, most, threads))
    serial = f.junction(stem="serial")
    f.go_when(f.either(f.test("slt", members, 2), f.test("ugt", chunks, MOST_CHUNKS)), serial)
    _, is_won = f.exchange(f.word(PoolWords.busy), 0, 1, "seq_cst seq_cst", "i32")
    f.go_unless(is_won, serial)
    _publish(f, members)
    f.call(_WORK, 0)
    _wait(f, f.convert("trunc", chunks, "i64", "i32"))
    f.write(PoolWords.busy, 0, "seq_cst")
    f.ret()
    f.begin(serial)
    _run_serially(f)


def _smaller(f: NativeFunction, a: str, b: str) -> str:
    return f.choose(f.test("slt", a, b), a, b)


def _publish(f: PoolFunction, members: str) -> None:
    """Make this call the current job, and wake the threads that sleep."""
    run, context, chunks, _ = f.parameters
    helpers = f.convert("trunc", f.sub(members, 1), "i64", "i32")
    f.call(_RECRUIT, helpers)
    f.write(PoolWords.body, run, "monotonic")
    f.write(PoolWords.context, context, "monotonic")
    f.write(PoolWords.chunks, chunks, "monotonic")
    f.write(PoolWords.members, members, "monotonic")
    f.write(PoolWords.flushes, f.call(FLUSH_BITS), "monotonic")
    f.write(PoolWords.done, 0, "monotonic")
    generation = f.add(f.binary("lshr", f.read(PoolWords.job, "monotonic"), GENERATION_BIT), 1)
    job = f.binary("or", f.binary("shl", generation, GENERATION_BIT), f.binary("shl", chunks, CHUNK_BITS))
    f.write(PoolWords.job, job, "seq_cst")
    is_anybody_asleep = f.test("sgt", f.read(PoolWords.sleepers, "seq_cst"), 0, "i32")
    with f.when(is_anybody_asleep):
        f.change("add", PoolWords.wake, 1)
        # futex gives no choice of whom it wakes, so when some threads are not members all are woken
        is_everybody = f.test("sge", helpers, f.load("i32", f.word(PoolWords.started)), "i32")
        f.call(_WAKE, f.word(PoolWords.wake), f.choose(is_everybody, helpers, INT32_MOST, "i32"))


def _wait(f: PoolFunction, total: str) -> None:
    """Wait until as many chunks are done: look a while, then sleep."""
    spin, block, recheck = f.junction("i32", stem="spin"), f.junction(stem="block"), f.junction(stem="recheck")
    finished = f.junction(stem="finished")
    f.go(spin, 0)
    (count,) = f.begin(spin)
    f.go_when(f.test("eq", f.read(PoolWords.done, "acquire"), total, "i32"), finished)
    f.pause()
    next_count = f.add(count, 1, "i32")
    f.go_when(f.test("uge", next_count, f.read(PoolWords.spins, "monotonic"), "i32"), block)
    f.go(spin, next_count)
    f.begin(block)
    f.write(PoolWords.waiting, 1, "seq_cst")
    f.go(recheck)
    f.begin(recheck)
    done = f.read(PoolWords.done, "seq_cst")
    awake = f.junction(stem="awake")
    f.go_when(f.test("eq", done, total, "i32"), awake)
    f.call(_SLEEP, f.word(PoolWords.done), done)
    f.go(recheck)
    f.begin(awake)
    f.write(PoolWords.waiting, 0, "seq_cst")
    f.go(finished)
    f.begin(finished)


def _write_reset(f: PoolFunction) -> None:
    """In a forked child: no pool thread exists, and a job of another thread of the parent never ends."""
    for word in (PoolWords.job, PoolWords.busy, PoolWords.waiting, PoolWords.sleepers, PoolWords.started):
        f.write(word, 0, "seq_cst")


def _write_pause(f: PoolFunction) -> None:
    """How long is a pause here, for calibration."""
    with f.loop(0, f.parameters[0]):
        f.pause()


@once
def serial_pool_ir(machine: str = "") -> str:
    """The same entry for systems without a futex: the caller runs every chunk."""
    module = ModuleText()
    if can_flush(machine):
        add_denormals(module, machine)
    NativeFunction.define(module, PARALLEL_FOR, _run_serially)
    return module.text()


def _run_serially(f: NativeFunction) -> None:
    run, context, chunks, _ = f.parameters
    with f.loop(0, chunks) as chunk:
        f.call(BODY, context, chunk, 0, by=run)
