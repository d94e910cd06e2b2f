"""The plan runner and the bodies every plan can call: native code that is compiled once per machine.

The records are in `records`. ``aj_step`` walks a plan; ``aj_poll`` lets Python handle signals during long ones;
``aj_many``, ``aj_band``, ``aj_copy`` and ``aj_sum_slots_<t>`` are bodies that run batches, bands and copies, and add up
partial results.
"""

from __future__ import annotations

from typing import NamedTuple

from autojit.codegen.cpu.plan.records import (
    EVERY,
    INTERRUPTED,
    Band,
    BandKernel,
    BandRow,
    Batch,
    BatchPart,
    CopyContext,
    Patch,
    Plan,
    PlanEntry,
    Polled,
    SlotSum,
    SumContext,
)
from autojit.codegen.cpu.plan.sizes import SIZES, write_sizes
from autojit.codegen.module_text import ModuleText, Signature
from autojit.codegen.native_function import BODY, NativeFunction, body
from autojit.core.once import once

STEP = Signature("aj_step", "ptr table")
POLL = Signature("aj_poll", "ptr error, i64 mode")
PARALLEL_FOR = Signature("aj_parallel_for", "ptr body, ptr context, i64 chunks, i64 max")
_CLOCK = Signature("clock_gettime", "i32 clock, ptr time", "i32")
_SIGNALS = Signature("", "ptr error")
_POLLED = body("aj_polled")

POLL_NS = 100_000_000
SIXTEENTH = 16  # a power of two
MONOTONIC_CLOCK = 6  # Linux's coarse one, which costs no system call, and macOS's own
MAX_BAND_ARGUMENTS = 256  # a loop nest has fewer: fusion stops at `most_buffers`

_GLOBALS = """
; What lets Python handle signals, called with the address of the error word; null until somebody sets it.
@aj_signals_at = global ptr null
@aj_poll_last = internal global i64 0
@aj_poll_ticks = internal global i64 0
"""


@once
def plan_ir() -> str:
    """The whole module but the products."""
    module = ModuleText()
    module.definitions["aj_signals_at"] = _GLOBALS
    NativeFunction.define(module, POLL, _write_poll, attributes="noinline nounwind")
    NativeFunction.define(module, _POLLED, _write_polled, linkage="internal")
    NativeFunction.define(module, STEP, _write_step, attributes="")
    NativeFunction.define(module, body("aj_many"), _write_many, attributes="")
    NativeFunction.define(module, body("aj_band"), _write_band, attributes="")
    NativeFunction.define(module, body("aj_copy"), _write_copy, attributes="")
    NativeFunction.define(module, SIZES, write_sizes, attributes="")
    _add_slot_sums(module)
    return module.text()


def _write_poll(f: NativeFunction) -> None:
    """``aj_poll``: let Python handle signals if it has not for a tenth of a second."""
    error, mode = f.parameters
    time = f.local("[2 x i64]", 8)
    signals = f.load("ptr", "@aj_signals_at", "monotonic")
    f.return_when(f.is_zero(signals, "ptr"))
    with f.when(f.test("ne", mode, EVERY)):
        ticks = f.add(f.load("i64", "@aj_poll_ticks", "monotonic"), 1)
        f.store("i64", ticks, "@aj_poll_ticks", "monotonic")
        f.return_when(f.is_set(f.binary("and", ticks, SIXTEENTH - 1)))
    f.call(_CLOCK, MONOTONIC_CLOCK, time)
    whole = f.mul(f.load("i64", time), 1_000_000_000)
    now = f.add(whole, f.load("i64", f.element(time, "i64", 1)))
    elapsed = f.sub(now, f.load("i64", "@aj_poll_last", "monotonic"))
    with f.when(f.test("ugt", elapsed, POLL_NS)):
        f.store("i64", now, "@aj_poll_last", "monotonic")
        f.call(_SIGNALS, error, by=signals)


def _write_polled(f: NativeFunction) -> None:
    """``aj_polled``: one chunk of an entry that a signal may stop; the calling thread looks for signals."""
    context, chunk, worker = f.parameters
    run, inner = f.get(context, Polled.body), f.get(context, Polled.context)
    error = f.get(context, Polled.error)
    with f.when(f.is_zero(worker)):
        f.call(POLL, error, EVERY)
    f.return_when(f.test("eq", f.load("i64", error, "monotonic"), INTERRUPTED))
    f.call(BODY, inner, chunk, worker, by=run)


def _write_step(f: NativeFunction) -> None:
    """``aj_step``: run the plan of a pointer table."""
    (table,) = f.parameters
    polled = f.local(f"[{len(Polled.fields)} x i64]", 8)
    plan = f.load("ptr", f.element(table, "ptr", -1))
    n_patches, patches = f.get(plan, Plan.n_patches), f.get(plan, Plan.patches)
    n_entries, entries = f.get(plan, Plan.n_entries), f.get(plan, Plan.entries)
    workers, error = f.get(plan, Plan.workers), f.get(plan, Plan.error)
    sizes, stoppable = f.get(plan, Plan.sizes), f.get(plan, Plan.n_stoppable)
    with f.when(f.is_set(sizes, "ptr")):
        f.call(SIZES, sizes, 0, 0)
        f.return_when(f.is_set(f.load("i64", error)))
    with f.loop(0, n_patches, stem="patch") as k:
        patch = f.item(Patch, patches, k)
        buffer = f.load("ptr", f.element(table, "ptr", f.get(patch, Patch.source)))
        f.store("ptr", f.at(buffer, f.get(patch, Patch.bytes)), f.get(patch, Patch.address))
    with f.loop(0, n_entries, stem="entry") as k:
        may_stop = f.test("slt", k, stoppable)
        _run_entry(f, f.item(PlanEntry, entries, k), workers, _Signals(plan, error, may_stop, polled))
        f.return_when(f.is_set(f.load("i64", error)))


class _Signals(NamedTuple):
    """Whether a signal may stop an entry, and where it is looked for."""

    plan: str
    error: str
    may_stop: str
    polled: str


def _run_entry(f: NativeFunction, entry: str, workers: str, signals: _Signals) -> None:
    """All chunks of an entry, by the pool or one after the other; a signal may end the step before and between them."""
    run, context, chunks = (f.get(entry, x) for x in (PlanEntry.body, PlanEntry.context, PlanEntry.chunks))
    is_parallel = f.is_set(f.get(entry, PlanEntry.is_parallel))
    one_by_one, done = f.junction(stem="one_by_one"), f.junction(stem="done")
    with f.when(signals.may_stop):
        f.call(POLL, signals.error, f.get(signals.plan, Plan.clock))
        f.return_when(f.is_set(f.load("i64", signals.error)))
        f.go_unless(is_parallel, one_by_one)
        f.put(signals.polled, Polled.body, run)
        f.put(signals.polled, Polled.context, context)
        f.put(signals.polled, Polled.error, signals.error)
        f.call(PARALLEL_FOR, f"@{_POLLED.symbol}", signals.polled, chunks, workers)
        f.go(done)
    f.go_unless(is_parallel, one_by_one)
    f.call(PARALLEL_FOR, run, context, chunks, workers)
    f.go(done)
    f.begin(one_by_one)
    with f.loop(0, chunks) as chunk:
        f.call(BODY, context, chunk, 0, by=run)
    f.go(done)
    f.begin(done)


def _write_many(f: NativeFunction) -> None:
    """``aj_many``: one chunk of a batch, which belongs to the last part that does not begin after it."""
    context, chunk, worker = f.parameters
    parts = f.after(Batch, context)
    n_parts, found = f.get(context, Batch.n_parts), f.junction("i64", stem="found")
    with f.loop(1, n_parts) as k:
        f.go_when(f.test("slt", chunk, f.get(f.item(BatchPart, parts, k), BatchPart.first)), found, k)
    f.go(found, n_parts)
    (following,) = f.begin(found)
    part = f.item(BatchPart, parts, f.add(following, -1))
    local = f.sub(chunk, f.get(part, BatchPart.first))
    f.call(BODY, f.get(part, BatchPart.context), local, worker, by=f.get(part, BatchPart.body))


def _write_band(f: NativeFunction) -> None:
    """``aj_band``: one slice of a band: its kernels in turn, each with the addresses of its arguments in the slice."""
    context, chunk, worker = f.parameters
    pointers = f.local(f"[{MAX_BAND_ARGUMENTS} x i64]", 64)
    kernels = f.after(Band, context)
    with f.loop(0, f.get(context, Band.n_kernels)) as k:
        kernel = f.item(BandKernel, kernels, k)
        rows = f.get(kernel, BandKernel.rows)
        with f.loop(0, f.get(kernel, BandKernel.n_rows)) as i:
            row = f.item(BandRow, rows, i)
            by_slice = f.mul(f.get(row, BandRow.per_slice), chunk)
            by_worker = f.mul(f.get(row, BandRow.per_worker), worker)
            address = f.add(f.add(f.get(row, BandRow.address), by_slice), by_worker)
            f.store("i64", address, f.element(pointers, "i64", i))
        told = f.mul(chunk, f.get(kernel, BandKernel.is_told))
        f.call(BODY, pointers, told, worker, by=f.get(kernel, BandKernel.body))


def _write_copy(f: NativeFunction) -> None:
    """``aj_copy``: copy or clear one block of bytes."""
    context, chunk, _ = f.parameters
    to, source = f.get(context, CopyContext.to), f.get(context, CopyContext.source)
    f.return_when(f.test("eq", to, source, "ptr"))
    block = f.get(context, CopyContext.block)
    start = f.mul(chunk, block)
    size = f.least(f.sub(f.get(context, CopyContext.bytes), start), block)
    with f.when(f.is_zero(source, "ptr")):
        f.fill_bytes(f.at(to, start), 0, size)
        f.ret()
    f.copy_bytes(f.at(to, start), f.at(source, start), size)


_INDEPENDENT = ("!0 = distinct !{}", "!1 = distinct !{!1, !2}", '!2 = !{!"llvm.loop.parallel_accesses", !0}')
_ACCESS, _LOOP = ", !llvm.access.group !0", ", !llvm.loop !1"
"""Of a loop whose turns do not depend on each other, and of its accesses."""


def _add_slot_sums(module: ModuleText) -> None:
    """``aj_sum_slots_<t>``: add up partial products, in the order of the slots whatever the number of threads."""
    module.nodes += _INDEPENDENT
    for short, kind in {"f32": "float", "f64": "double"}.items():
        f = NativeFunction(module, body(f"aj_sum_slots_{short}", "ptr noalias context"), attributes="")
        context = f.parameters[0]
        to, slots, words = (f.get(context, word) for word in SumContext.fields.values())
        n = f.get(words, SlotSum.n)
        with f.loop(0, n) as i:
            f.store(kind, "0.0", f.element(to, kind, i))
        with f.loop(0, f.get(words, SlotSum.n_slots)) as slot:
            part = f.at(slots, f.mul(slot, f.get(words, SlotSum.stride)))
            with f.loop(0, n, attachment=lambda _: _LOOP) as i:
                total = f.element(to, kind, i)
                a = f.load(kind, total, attributes=_ACCESS)
                b = f.load(kind, f.element(part, kind, i), attributes=_ACCESS)
                f.store(kind, f.binary("fadd", a, b, kind), total, attributes=_ACCESS)
        f.finish()
