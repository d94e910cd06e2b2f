"""A kernel of a run bound to memory: its parameters, and the memory it touches."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator

import numpy as np

from autojit.codegen.cuda.entry_point import Part, alignment_of
from autojit.codegen.cuda.report import ERROR_BYTES, TOLD_BYTES
from autojit.codegen.lowered import Scratch
from autojit.core.sizes import evaluate
from autojit.ir.concrete import symbols_of
from autojit.runtime.gpu.memory import Held
from autojit.runtime.gpu.moving import WORD_BYTES, Region
from autojit.runtime.gpu.order import Access, Effect, Touched
from autojit.runtime.gpu.run_memory import RunMemory
from autojit.runtime.gpu.works import BufferArgument, Work, base_of, offset_of, size_of

_BEYOND = 1 << 62
"""Above all addresses."""


class BoundKernel:
    """See the module.

    Args:
        memory: that of the run.
        work: the kernel.
        number: of the kernel in the run.
        is_guarded: whether it does nothing once an error was reported.
    """

    def __init__(self, memory: RunMemory, work: Work, number: int, is_guarded: bool) -> None:
        self._memory = memory
        self.is_guarded = is_guarded
        self.work = work
        self._partials = memory.scratch.partials(number)
        self._number = number
        self.kernel = work.widest
        self._slots = {k: slot for k, b in enumerate(work.buffers) if (slot := memory.slot(b)) is not None}
        self._moving: dict[int, int] = {}  # buffer -> the number of its alignment
        self._places: dict[int, int] = {}  # buffer -> its place among the parameters
        self._write_parameters()

    def _write_parameters(self) -> None:
        memory, buffers = self._memory, self.work.buffers
        self._words = np.zeros(2 * len(buffers) + len(self.kernel.sizes) + 4, np.uint64)
        base = int(self._words.__array_interface__["data"][0])
        words: list[int] = []
        for k, argument in enumerate(buffers):
            here = base + WORD_BYTES * len(words)
            if k in self._slots:
                self._moving[k] = memory.expect(memory.moving.slot_word(self._slots[k]), argument, 0)
                words.append(memory.moving.slot_address(self._slots[k]))
                behind = offset_of(argument)
                words += [memory.binding.number(behind, here + WORD_BYTES)] if behind else []
                continue
            if memory.moves(argument):
                self._moving[k] = memory.expect(here, argument, offset_of(argument))
            self._places[k] = len(words)
            words.append(memory.address(argument, here))
        further = _further_parameters(memory, self.work, self._number, self.is_guarded, base + WORD_BYTES * len(words))
        words += [word for _, word in further]
        self._words[: len(words)] = words
        self.parameters = [base + WORD_BYTES * k for k in range(len(words))]
        self.keys: list[Hashable] = []
        for k, argument in enumerate(buffers):
            if k in self._slots:
                self.keys += [("slot", self._slots[k])]
                self.keys += [("bytes", offset_of(argument))] if offset_of(argument) else []
            else:
                self.keys.append(buffer_key(memory, argument))
        self.keys += [key for key, _ in further]

    def present_address(self, buffer: int) -> int | None:
        """Where a buffer is now; None: the moving block of a call says so."""
        return None if buffer in self._slots else self._address(buffer)

    def _address(self, buffer: int) -> int:
        return int(self._words[self._places[buffer]])

    # -- its code

    def _alignments(self) -> list[int]:
        """What the address of each buffer is a multiple of, as far as accesses can use it (`alignment_of`)."""
        found = []
        for k, (argument, buffer) in enumerate(zip(self.work.buffers, self.work.widest.buffers, strict=True)):
            address = self._alignment(k) if k not in self._moving else self._memory.moving_alignment(self._moving[k])
            behind = offset_of(argument) if k in self._slots else 0
            found.append(alignment_of(buffer, size_of(argument), address, behind))
        return found

    def _alignment(self, k: int) -> int:
        """A number that the address of a buffer that stays in place is a multiple of, or itself."""
        argument = self.work.buffers[k]
        # regions are aligned as blocks are
        return self._address(k) if self._memory.region(argument) is None else offset_of(argument)

    def part(self) -> Part:
        """The kernel for the present addresses."""
        alignments = self._alignments()
        self.kernel = self.work.kernel(alignments)
        enough = [max(pair) for pair in zip(alignments, (b.element_bytes for b in self.kernel.buffers), strict=True)]
        moving = {k: offset_of(self.work.buffers[k]) != 0 for k in self._slots}
        return Part(self.kernel, enough, moving, self.is_guarded, self.keys)

    # -- memory

    @property
    def traffic_bytes(self) -> int:
        """Of the buffers that it reads and writes, each once, and of partial results, in the last call."""
        now, moved = self._memory.binding.sizes_now(), 0
        for argument, buffer in zip(self.work.buffers, self.kernel.buffers, strict=True):
            if buffer.role != "takes":
                size_bytes = evaluate(size_of(argument), now)
                most = size_bytes if buffer.most_elements is None else buffer.most_elements * buffer.element_bytes
                moved += min(size_bytes, most)
        return moved + evaluate(self.kernel.partial_bytes, now)

    def depends_on(self) -> set[str]:
        """The open sizes that decide what it does."""
        kernel, offsets = self.kernel, map(offset_of, self.work.buffers)
        return symbols_of((*kernel.sizes, *kernel.blocks, kernel.partial_bytes, *offsets))

    def regions(self) -> set[Region]:
        """The memory of open size that it uses."""
        found = {self._memory.region(argument) for argument in self.work.buffers}
        if self._partials is not None and not isinstance(self._partials, Held):
            found.add(self._partials)
        return {region for region in found if region is not None}

    def touched(self) -> Touched:
        """The memory it touches, with what it loads from the table."""
        buffers = dict(self._of_buffers())
        further = _further_accesses(self._memory, self.work, self._number, is_guarded=self.is_guarded)
        slots = [self._memory.moving.slot_access(slot) for slot in self._slots.values()]
        numbers = [
            _own("reads", self._address(k), size_of(argument))
            for k, argument in enumerate(self.work.buffers)
            if self._memory.is_number(argument)
        ]
        early = [
            (self._places[k], access)
            for k, access in buffers.items()
            if access.effect == "reads" and k not in self._slots and k not in self._moving
        ]
        errors = self._memory.errors
        if errors is not None and self.is_guarded and not self.kernel.reports:
            early.append((self.keys.index("errors"), _own("reads", errors.address, ERROR_BYTES)))
        return Touched((*slots, *numbers, *buffers.values(), *further), tuple(early))

    def footprint(self) -> list[Access]:
        """The memory it touches, without what the host writes."""
        further = _further_accesses(self._memory, self.work, self._number, is_guarded=self.is_guarded)
        return [*(access for _, access in self._of_buffers()), *further]

    def _of_buffers(self) -> Iterator[tuple[int, Access]]:
        return _buffer_accesses(self._memory, self.work, self._address)


def buffer_key(memory: RunMemory, argument: BufferArgument) -> Hashable:
    """Of the parameter that is a buffer's address: kernels that have the same buffer take one parameter."""
    base = base_of(argument)
    place = base if isinstance(base, Scratch) else memory.binding.home(base)
    return place, offset_of(argument), size_of(argument), memory.is_number(argument)


def _further_parameters(
    memory: RunMemory, work: Work, number: int, is_guarded: bool, first: int = 0
) -> list[tuple[Hashable, int]]:
    """The parameters behind a kernel's buffers, with their keys.

    Args:
        first: the address of the word of the first of them; 0: the keys alone are asked for.
    """
    kernel, errors, partials = work.widest, memory.errors, memory.scratch.partials(number)
    found: list[tuple[Hashable, int]] = []
    for size in kernel.sizes:
        found.append((("size", size), memory.binding.number(size, first + WORD_BYTES * len(found)) if first else 0))
    if partials is not None:
        found.append((("partials", partials), memory.placed(partials, first + WORD_BYTES * len(found)) if first else 0))
    if errors is not None and (kernel.reports or kernel.tells or kernel.heeds or is_guarded):
        found.append(("errors", errors.address))
    if kernel.tells and memory.told is not None:
        found.append(("told", memory.told.address))
    if kernel.reports:
        found.append((None, work.code))
    if kernel.decides:
        found.append((("handle", number), 0))  # the graph's maker writes it
    return found


def parameter_keys(memory: RunMemory, work: Work, number: int, is_guarded: bool) -> tuple[Hashable, ...]:
    """Of all parameters that a kernel of a run may have."""
    further = [key for key, _ in _further_parameters(memory, work, number, is_guarded)]
    behind = [None for argument in work.buffers if offset_of(argument)]
    return (*(buffer_key(memory, argument) for argument in work.buffers), *behind, *further)


def footprint(memory: RunMemory, work: Work, number: int, *, is_guarded: bool) -> list[Access]:
    """The memory that a kernel of a run touches where its buffers are now, without what the host writes.

    Args:
        number: of the kernel.
    """
    buffers = _buffer_accesses(memory, work, lambda k: memory.present_address(work.buffers[k]))
    return [*(access for _, access in buffers), *_further_accesses(memory, work, number, is_guarded=is_guarded)]


def _buffer_accesses(memory: RunMemory, work: Work, address: Callable[[int], int]) -> Iterator[tuple[int, Access]]:
    """What a kernel does with its buffers in the device's memory, each with the buffer's number.

    Args:
        address: gives that of a buffer that stays in place.
    """
    for k, (argument, buffer) in enumerate(zip(work.buffers, work.widest.buffers, strict=True)):
        if not memory.is_number(argument) and buffer.role != "takes":
            effect: Effect = "reads" if buffer.role == "reads" else "writes"
            yield k, _access(memory, argument, effect, k, address)


def _further_accesses(memory: RunMemory, work: Work, number: int, *, is_guarded: bool) -> list[Access]:
    """Its partial results, and words about errors."""
    found: list[Access] = []
    partials, errors = memory.scratch.partials(number), memory.errors
    if partials is not None:
        if isinstance(partials, Held):
            found.append(_own("writes", partials.address, memory.binding.most(work.widest.partial_bytes)))
        else:
            found.append(_of_region("writes", partials))
    if errors is not None and (is_guarded or work.widest.reports or work.widest.heeds):
        found.append(_own("writes" if work.widest.reports else "reads", errors.address, ERROR_BYTES))
    if errors is not None and work.widest.tells:
        found.append(_own("reads", errors.address, ERROR_BYTES))
        found.append(_own("writes", errors.address + ERROR_BYTES, TOLD_BYTES - ERROR_BYTES))
    return found


def _access(
    memory: RunMemory, argument: BufferArgument, effect: Effect, number: int, address: Callable[[int], int]
) -> Access:
    region = memory.region(argument)
    if region is not None:
        return _of_region(effect, region)
    size_bytes = memory.binding.most(size_of(argument))
    value = base_of(argument)
    if isinstance(value, Scratch):
        return _own(effect, address(number), size_bytes)
    place = memory.binding.place(value)
    if memory.moves(argument):
        return Access(place, effect, name=memory.binding.home(value))
    start = address(number)
    return Access(place, effect, start, start + size_bytes)


def _of_region(effect: Effect, region: Region) -> Access:
    """Memory of open size is elsewhere from call to call, and apart from all other memory: a place of its own."""
    return _own(effect, _BEYOND + region, 1)


def _own(effect: Effect, start: int, size_bytes: int) -> Access:
    return Access("own", effect, start, start + size_bytes)
