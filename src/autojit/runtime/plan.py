"""Binding a LoweredStep to memory: arguments laid out, the plan written, while its kernels are compiled (`bodies`)."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Literal

from autojit.codegen.cpu.plan.records import (
    EVERY,
    EVERY_SIXTEENTH,
    Band,
    BandKernel,
    BandRow,
    Batch,
    BatchPart,
    MoverWords,
    Patch,
    Plan,
    PlanEntry,
)
from autojit.codegen.lowered import (
    Argument,
    BandEntry,
    BatchEntry,
    Callback,
    Count,
    DeviceRun,
    Entry,
    ErrorWords,
    ForeignAddress,
    GroupAddress,
    Immediate,
    LoweredStep,
    Mover,
    Nested,
    Offset,
    ProductAddress,
    Recount,
    Scratch,
    Sliced,
    Tape,
    Transfer,
    Word,
    Words,
    is_device_run,
    scratch_of,
)  # fmt: skip
from autojit.core.device import CPU, Device
from autojit.core.size_expressions import Expression
from autojit.core.sizes import is_symbolic
from autojit.ir.concrete import is_open
from autojit.ir.graph import Value
from autojit.runtime.bodies import Loading
from autojit.runtime.failures import Failures
from autojit.runtime.faults import planted
from autojit.runtime.memory import arena_at
from autojit.runtime.plan_memory import PlanMemory
from autojit.runtime.size_program import SizeProgram
from autojit.schedule.counts import count_bounds, upper_bound
from autojit.schedule.memory import is_late

if TYPE_CHECKING:
    from autojit.runtime.device_plans import DevicePlans

POLLED_FROM_NS = 1e6  # estimated time of a plan that a signal may stop
WORD = 0xFFFFFFFFFFFFFFFF
"""Numbers modulo this one more are what words hold."""


class PlanBuilder:
    """Writes one plan. Keeps everything the native side points to.

    ``parent`` writes the plan around it. ``lasting`` are values in memory that outlives the call: once an entry writes
    one, a signal must wait for the end. ``native`` is where the plan is written; by default, in this process.
    """

    def __init__(
        self,
        lowered: LoweredStep,
        fixed: dict[Value, int],
        parent: PlanBuilder | None = None,
        lasting: AbstractSet[Value] = frozenset(),
        native: PlanMemory | None = None,
    ) -> None:
        self.loading: Loading = Loading(lowered) if parent is None else parent.loading
        self.lowered = lowered
        self.graph = lowered.schedule.graph
        self.memory = lowered.schedule.memory
        self.parent = parent
        self.native: PlanMemory = parent.native if parent is not None else native or PlanMemory(lowered.reporters)
        self.keep = self.native.keep
        self.failures: Failures = self.native.failures
        self.patches: list[Patch] = []
        self.workers = self.native.workers
        self.bounds: dict[str, Expression] = count_bounds(self.graph, {} if parent is None else parent.bounds)
        self.table = self._table_indices()
        self.fixed = fixed
        self.fixed_words: dict[Value, list[tuple[int, int]]] = {}  # (where an address is written, bytes added to it)
        self.sizes: SizeProgram | None = None if parent is None else parent.sizes
        types = [v.type for v in self.graph.inputs]
        counted = lowered.counted_sizes() if parent is None else ()
        if parent is None and (counted or any(is_open(t.shape) for t in types)):
            self.sizes = self.native.size_program(types, counted, self.failures.caught, self._grown)
        self.regions: list[int] = []  # slots of the addresses of memory of symbolic size
        self.arena, self.scratch_offset = self._make_arena()
        self.arenas: dict[Device, Any] = {p: arena_at(p, size) for p, size in self.memory.arenas.items() if p != CPU}
        self.arenas[CPU] = self.arena
        run = [k for k, entry in enumerate(lowered.entries) if entry.chunks != 0]
        self.run = [lowered.entries[k] for k in run]
        self.may_fail = [lowered.may_fail[k] for k in run]
        self.writes = [lowered.writes[k] for k in run]
        self.devices: DevicePlans | None = None  # what devices do for it
        self.stoppable, self.poll_mode = self._stoppable(lasting)
        self.may_stop = False  # whether a signal may stop the entry that is being written

    def _table_indices(self) -> dict[Value, int]:
        table = {v: k for k, v in enumerate(self.graph.inputs)}
        count = len(self.graph.inputs)
        for k, value in enumerate(self.lowered.schedule.outputs):
            if self.parent is not None or not is_late(value, self.bounds):
                table.setdefault(value, count + k)
        return table

    def late_slot(self, value: Value) -> int | None:
        """The slot of the address of a value in memory of symbolic size, where its size is late."""
        return self.regions[self.memory.region_of[self.memory.home(value)]] if is_late(value, self.bounds) else None

    def _make_arena(self) -> tuple[Any, int]:
        """The host's: temporaries, then scratch: entries take turns, so they share it; partial results of a band
        outlive it.
        """
        start = self.memory.machine.aligned(self.memory.arenas.get(CPU, 0))
        self.scratch: dict[Scratch, int] = {}
        self.device_scratch: dict[Scratch, Any] = {}  # of devices: its memory
        self.device_regions: dict[Scratch, int] = {}  # likewise, of symbolic size: the slot of its address
        self.open_scratch: dict[Scratch, int] = {}  # of symbolic size: the region
        self.open_bands: dict[BandEntry, int] = {}  # with local memory of symbolic size: the region
        self.before_local: dict[BandEntry, int] = {}  # bytes of scratch that workers have before a band's local memory
        kept = peak = 0
        regions: list[int] = list(self.memory.regions)
        # Kernels of a band or batch run side by side, so workers' scratch is shared only where it is of one size.
        by_size: dict[int, int] = {}
        for entry in self.lowered.entries:
            parts = (entry,) if isinstance(entry, Entry) else entry.entries
            moving = entry.local_bytes * self.workers if isinstance(entry, BandEntry) else 0
            if isinstance(entry, BandEntry) and is_symbolic(moving):
                self.open_bands[entry] = len(regions)
                regions.append(self.memory.machine.aligned(upper_bound(moving, self.bounds)))
                moving = 0
            for part in parts:
                for scratch in scratch_of(part):
                    if scratch in self.scratch or scratch in self.open_scratch or scratch.device != CPU:
                        continue
                    if is_symbolic(scratch.size_bytes):
                        known = by_size.get(scratch.size_bytes) if scratch.per_worker else None
                        if known is None:
                            known = len(regions)
                            regions.append(self._scratch_bytes(scratch))
                        if scratch.per_worker:
                            by_size[scratch.size_bytes] = known
                        self.open_scratch[scratch] = known
                    elif not scratch.per_worker:
                        self.scratch[scratch] = kept
                        kept += self._scratch_bytes(scratch)
            own = [s for p in parts for s in scratch_of(p) if s.per_worker and s not in self.open_scratch]
            workers = max(map(self._scratch_bytes, own), default=0)
            if isinstance(entry, BandEntry):
                self.before_local[entry] = workers
            peak = max(peak, moving + workers)
        if regions:
            assert self.sizes is not None
            places = {region: value.type.device for value, region in self.memory.region_of.items()}
            self.regions = [
                self.sizes.region(self.memory.machine.aligned(size), places.get(region, CPU))
                for region, size in enumerate(regions)
            ]
        self.worker_offset = start + kept
        return self.native.arena(start + kept + peak + 64), start

    def _grown(self, device: Device, size_bytes: int) -> Any:
        """Memory for temporaries of symbolic size, in place of what was too small."""
        if self.devices is not None and self.devices.reaches(device):
            return self.devices.arena(device, size_bytes)
        return arena_at(device, size_bytes)

    def _scratch_bytes(self, scratch: Scratch) -> int:
        size = upper_bound(scratch.size_bytes, self.bounds)
        return self.memory.machine.aligned(size * (self.workers if scratch.per_worker else 1))

    def words(self, values: Sequence[int]) -> int:
        """Address of words, constant except for symbolic sizes."""
        block, base = self.native.zeros(len(values))
        block[:] = [self._word(v, base + 8 * k) & WORD for k, v in enumerate(values)]
        return base

    def _word(self, value: int, address: int) -> int:
        """A word to be written at an address, where the size program writes it if it is symbolic."""
        if not is_symbolic(value):
            return value
        assert self.sizes is not None
        return self.sizes.word(value, address)

    def entries(self) -> tuple[int, int]:
        """(number of entries, address of the entry table)."""
        contexts: dict[Entry, int] = {}
        for place, entry in enumerate(self.run):
            self.may_stop = place < self.stoppable
            for part in (entry,) if isinstance(entry, Entry) else entry.entries:
                contexts[part] = self._band_rows(part, entry) if isinstance(entry, BandEntry) else self._context(part)
        self.loading.wait()
        builtin = self.native.builtin
        rows: list[PlanEntry] = []
        faults = planted()
        for entry, may_fail in zip(self.run, self.may_fail, strict=True):
            if isinstance(entry, BandEntry):
                body, context, is_parallel = builtin("aj_band"), self._band(entry, contexts), 1
            elif isinstance(entry, BatchEntry):
                body, context, is_parallel = builtin("aj_many"), self._batch(entry, contexts), 1
            else:
                body, context, is_parallel = self._body(entry), contexts[entry], int(entry.chunks != 1)
            rows.append(PlanEntry(body=body, context=context, chunks=entry.chunks, is_parallel=is_parallel))
            if may_fail and faults is not None:
                site = faults.plant(entry.label, self.failures)
                # in front of what a device does: behind it, what may not change after a report has been written
                place = len(rows) - int(is_device_run(entry))
                rows.insert(place, PlanEntry(body=site, context=0, chunks=1, is_parallel=0))
        return len(rows), self.words([word for row in rows for word in row])

    def _stoppable(self, lasting: AbstractSet[Value]) -> tuple[int, int]:
        """How many entries a signal may stop, and how often they look (`Plan.n_stoppable`, `Plan.clock`)."""
        if self.parent is not None:
            return (len(self.run) if self.parent.may_stop else 0), EVERY_SIXTEENTH
        first = self._first_commit(lasting)
        is_long = sum(entry.estimate_ns for entry in self.run) > POLLED_FROM_NS
        if (not is_long and self.sizes is None) or not self.native.watch_signals():
            return 0, 0
        return first, EVERY if is_long else EVERY_SIXTEENTH

    def _first_commit(self, lasting: AbstractSet[Value]) -> int:
        """The number of entries before the first that writes what outlives the call: behind it, none may fail."""
        writers = (k for k, values in enumerate(self.writes) if any(self.memory.home(v) in lasting for v in values))
        first = next(writers, len(self.writes))
        # A device guards what it writes behind a report, in one entry.
        rest = first + int(first < len(self.run) and is_device_run(self.run[first]))
        assert not any(self.may_fail[rest:]), "a kernel may fail when state has been written"
        return first

    def _body(self, entry: Entry) -> int:
        if isinstance(entry.body, Callback):
            return self.native.builtin("aj_call")
        if entry.arguments and isinstance(entry.arguments[0], DeviceRun | Transfer):
            return self._device_plans().body(entry.body[1:])
        if entry.body.startswith("@"):
            return self.native.builtin(entry.body[1:])
        return self.native.kernel(entry.body, entry.symbol)

    def _context(self, entry: Entry) -> int:
        first = entry.arguments[0] if entry.arguments else None
        if isinstance(first, Recount):
            assert self.sizes is not None
            return self.sizes.stage(first.name)
        if isinstance(first, DeviceRun | Transfer):
            return self._device_plans().context(first)
        if isinstance(entry.body, Callback):
            context = self._argument_words(entry.arguments)
            return self.native.call(entry.body, context, self.sizes)
        return self._argument_words(entry.arguments)

    def _argument_words(self, arguments: Sequence[Argument]) -> int:
        block, base = self.native.zeros(max(len(arguments), 1))
        block[:] = [self._argument(a, base + 8 * k) & WORD for k, a in enumerate(arguments)] or 0
        return base

    def _device_plans(self) -> DevicePlans:
        if self.devices is None:
            from autojit.runtime.device_plans import DevicePlans  # a process without devices needs none of it

            self.devices = DevicePlans(self, None if self.parent is None else self.parent._device_plans())
        return self.devices

    # -- where values are, as device plans ask

    def word(self, argument: Value | Offset, slot: int) -> int:
        """The address of a value, or 0 where calls write it to ``slot``."""
        return self._argument(argument, slot)

    def place(self, value: Value) -> Literal["own", "state", "argument", "result"]:
        """Whose memory a value is in."""
        home = self.home(value)
        if home in self.fixed:
            return "state"
        if home not in self.table:
            return "own"
        return "argument" if self.table[home] < len(self.graph.inputs) else "result"

    def home(self, value: Value) -> Value:
        """The value whose memory it is in."""
        return self.memory.home(value)

    def region_of(self, value: Value) -> int | None:
        """The slot of the address of the memory of open size that it has, if it has some."""
        home = self.memory.home(value)
        if home in self.fixed or home in self.table or home not in self.memory.region_of:
            return None
        return self.regions[self.memory.region_of[home]]

    def region(self, size_bytes: int, device: Device) -> int:
        """The slot of the address of memory of open size on a device."""
        assert self.sizes is not None
        return self.sizes.region(self.memory.machine.aligned(self.most(size_bytes)), device)

    def region_word(self, region: int, slot: int, offset_bytes: int = 0) -> int:
        """What to write at ``slot`` now; the size program writes the address there."""
        sizes = self.sizes
        assert sizes is not None
        sizes.fix(slot, region if offset_bytes == 0 else sizes.sum(region, sizes.slot(offset_bytes)))
        return 0

    def number(self, size: int, slot: int) -> int:
        """What to write at ``slot`` now; the size program writes an open size there."""
        return self._word(size, slot)

    def most(self, size: int) -> int:
        """A size that another does not exceed, whatever the step counts."""
        return upper_bound(size, self.bounds)

    def sizes_now(self) -> Mapping[str, int]:
        """The open sizes of the call that runs, or of the last one."""
        return {} if self.sizes is None else self.sizes.values()

    def _batch(self, batch: BatchEntry, contexts: Mapping[Entry, int]) -> int:
        words = [*Batch(n_parts=len(batch.entries))]
        first = 0
        for entry in batch.entries:
            words += BatchPart(first=first, body=self._body(entry), context=contexts[entry])
            first += entry.chunks
        return self.words(words)

    def _band(self, band: BandEntry, contexts: Mapping[Entry, int]) -> int:
        words = [*Band(n_kernels=len(band.entries))]
        for entry, told in zip(band.entries, band.told, strict=True):
            rows = contexts[entry]
            words += BandKernel(body=self._body(entry), n_rows=len(entry.arguments), rows=rows, is_told=int(told))
        return self.words(words)

    def _band_rows(self, entry: Entry, band: BandEntry) -> int:
        block, base = self.native.zeros(len(BandRow.fields) * max(len(entry.arguments), 1))
        rows = [self._band_row(a, band, base + BandRow.size_bytes * k) for k, a in enumerate(entry.arguments)]
        block[: len(BandRow.fields) * len(rows)] = [word & WORD for row in rows for word in row]
        return base

    def _band_row(self, argument: Argument, band: BandEntry, slot: int) -> BandRow:
        if not isinstance(argument, Sliced):
            return BandRow(address=self._argument(argument, slot), per_slice=0, per_worker=0)
        step = self._word(argument.per_slice_bytes, slot + BandRow.per_slice.offset_bytes)
        if argument.is_local:
            local = self._local(argument, band, slot)
            size = self._word(band.local_bytes, slot + BandRow.per_worker.offset_bytes)
            return BandRow(address=local, per_slice=step, per_worker=size)
        base = argument.base
        whole = base if isinstance(base, Scratch) else Offset(base, argument.offset_bytes)
        return BandRow(address=self._argument(whole, slot), per_slice=step, per_worker=0)

    def _local(self, argument: Sliced, band: BandEntry, slot: int) -> int:
        """Address of a value that lives inside a band, for the first worker."""
        if band in self.open_bands:
            return self._in_region(self.open_bands[band], argument.offset_bytes, slot)
        local = self.arena.address + self.worker_offset + self.before_local[band]
        return self._placed(local, argument.offset_bytes, slot)

    def _argument(self, argument: Argument, slot: int) -> int:
        if isinstance(argument, Value):  # most are
            return self._address(argument, 0, slot)
        if isinstance(argument, Offset):
            assert isinstance(argument.value, Value)
            return self._address(argument.value, argument.offset_bytes, slot)
        if isinstance(argument, Immediate):
            return self._word(argument.word, slot)
        return self._other_argument(argument, slot)

    def _other_argument(self, argument: Argument, slot: int) -> int:
        if isinstance(argument, Scratch):
            if argument.device != CPU:
                return self._device_scratch(argument, slot)
            if argument in self.open_scratch:
                return self._in_region(self.open_scratch[argument], 0, slot)
            start: int = self.arena.address
            if argument.per_worker:
                return start + self.worker_offset
            return start + self.scratch_offset + self.scratch[argument]
        if isinstance(argument, Words):
            return self.words(argument.words)
        if isinstance(argument, ProductAddress):
            return self.native.builtin(f"aj_gemm_{argument.dtype.short}")
        if isinstance(argument, ForeignAddress):
            return self.native.foreign(argument.function)
        if isinstance(argument, GroupAddress):
            return self.native.group(argument.group)
        if isinstance(argument, ErrorWords):
            return self.native.error
        if isinstance(argument, Word):
            return self.native.word(argument)
        if isinstance(argument, Count):
            assert self.sizes is not None
            self.sizes.point(slot, argument.name)
            return 0
        if isinstance(argument, Tape):
            return self.native.tape(argument)
        if isinstance(argument, Mover):
            body, context = self._device_plans().mover(argument)
            return self.words(MoverWords(body=body, context=context))
        assert isinstance(argument, Nested)
        return self._table(argument)

    def _device_scratch(self, scratch: Scratch, slot: int) -> int:
        size_bytes = self.most(scratch.size_bytes)
        if is_symbolic(size_bytes):
            region = self.device_regions.get(scratch)
            if region is None:
                region = self.device_regions[scratch] = self.region(size_bytes, scratch.device)
            return self.region_word(region, slot)
        found = self.device_scratch.get(scratch)
        if found is None:
            found = self.device_scratch[scratch] = arena_at(scratch.device, size_bytes)
        return int(found.address)

    def _address(self, value: Value, offset: int, slot: int) -> int:
        """The address of an operand or result, or 0 where it is known at the call or at its sizes only."""
        value = self.memory.home(value)
        if value in self.fixed:
            self.fixed_words.setdefault(value, []).append((slot, offset))
            return self._placed(self.fixed[value], offset, slot)
        if value in self.table:
            if is_symbolic(offset) and self.sizes is not None:
                self.sizes.at_start(offset)
            self.patches.append(Patch(address=slot, source=self.table[value], bytes=offset))
            return 0
        if value in self.memory.region_of:
            return self._in_region(self.memory.region_of[value], offset, slot)
        return self._placed(self.arenas[value.type.device].address + self.memory.offsets[value], offset, slot)

    def _placed(self, address: int, offset: int, slot: int) -> int:
        """An address some bytes behind one that is known, where the size program writes it if the bytes are open."""
        if not is_symbolic(offset):
            return address + offset
        sizes = self.sizes
        assert sizes is not None
        sizes.fix(slot, sizes.sum(sizes.address_slot(address), sizes.slot(offset)))
        return 0

    def _table(self, nested: Nested) -> int:
        """Address of the pointer table of a plan inside this one; the word before it holds the plan's."""
        block, base = self.native.zeros(1 + len(nested.arguments))
        inner = PlanBuilder(nested.lowered, {}, self)
        self.keep.append(inner)
        block[0] = inner.plan()
        for position, argument in enumerate(nested.arguments, 1):
            block[position] = self._argument(argument, base + 8 * position)
        return base + 8

    def plan(self) -> int:
        """Write the plan; its address."""
        count, entries = self.entries()
        patches = self.words([w for patch in self.patches for w in patch])
        program = 0 if self.sizes is None or self.parent is not None else self.sizes.finish()
        words = Plan(
            n_patches=len(self.patches),
            patches=patches,
            n_entries=count,
            entries=entries,
            workers=self.workers,
            error=self.native.error,
            sizes=program,
            n_stoppable=self.stoppable,
            clock=self.poll_mode,
        )
        return self.words(words)

    def move(self, fixed: dict[Value, int]) -> bool:
        """Write other addresses of fixed inputs and outputs; False where the plan has to be written again."""
        moved = [value for value, address in fixed.items() if address != self.fixed[value]]
        words = [(slot, fixed[value] + offset) for value in moved for slot, offset in self.fixed_words.get(value, ())]
        if any(is_symbolic(address) for _, address in words):
            return False
        for slot, address in words:
            ctypes.c_uint64.from_address(slot).value = address
        self.fixed = fixed
        return self.devices is None or not words or self.devices.moved()

    def _in_region(self, region: int, offset: int, slot: int) -> int:
        """An address in memory of symbolic size, which the size program writes."""
        return self.region_word(self.regions[region], slot, offset)
