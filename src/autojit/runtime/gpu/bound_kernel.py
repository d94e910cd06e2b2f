"""A kernel of a run with its launch: parameters, entry point, and the memory it touches."""

from __future__ import annotations

import numpy as np

from autojit.codegen.cuda.entry_point import alignment_of, entry_text
from autojit.codegen.cuda.host_records import LaunchWords
from autojit.codegen.cuda.report import ERROR_BYTES, TOLD_BYTES
from autojit.codegen.lowered import Offset, Scratch
from autojit.runtime.gpu.driver import KernelNode
from autojit.runtime.gpu.moving import WORD_BYTES
from autojit.runtime.gpu.order import Access, Effect
from autojit.runtime.gpu.run_memory import RunMemory
from autojit.runtime.gpu.works import BufferArgument, Work


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
        self.kernel = work.widest
        self.function = 0
        self._slots = {k: slot for k, b in enumerate(work.buffers) if (slot := memory.slot(b)) is not None}
        self._moving: dict[int, int] = {}  # buffer -> the number of its alignment
        self._places: dict[int, int] = {}  # buffer -> its place among the parameters
        self._write_parameters()

    def _write_parameters(self) -> None:
        memory, buffers = self._memory, self.work.buffers
        self._words = np.zeros(len(buffers) + 4, np.uint64)
        base = int(self._words.__array_interface__["data"][0])
        words: list[int] = []
        if self._slots:
            words.append(memory.moving.table_address)
        for k, argument in enumerate(buffers):
            here = base + WORD_BYTES * len(words)
            if k in self._slots:
                self._moving[k] = memory.expect(memory.moving.slot_word(self._slots[k]), argument)
                continue
            if memory.moves(argument):
                self._moving[k] = memory.expect(here, argument)
            self._places[k] = len(words)
            words.append(memory.address(argument, here))
        words += self._further_parameters()
        self._words[: len(words)] = words
        self._pointers = np.array([base + WORD_BYTES * k for k in range(len(self._words))], np.uint64)
        self.parameters = int(self._pointers.__array_interface__["data"][0])

    def _further_parameters(self) -> list[int]:
        memory = self._memory
        words = [] if self._partials is None else [self._partials]
        errors = memory.errors
        if errors is not None and (self.kernel.reports or self.kernel.tells or self.is_guarded):
            words.append(errors.address)
        if self.kernel.tells and memory.told is not None:
            words.append(memory.told.address)
        if self.kernel.reports:
            words.append(self.work.code)
        return words

    def _address(self, buffer: int) -> int:
        return int(self._words[self._places[buffer]])

    # -- its code

    def _alignments(self) -> list[int]:
        """What the address of each buffer is a multiple of, as far as accesses can use it (`alignment_of`)."""
        found = []
        for k, (argument, buffer) in enumerate(zip(self.work.buffers, self.work.widest.buffers, strict=True)):
            address = self._memory.moving_alignment(self._moving[k]) if k in self._moving else self._address(k)
            found.append(alignment_of(buffer, _size_bytes(argument), address))
        return found

    def text(self) -> str:
        """The module of the kernel for the present addresses."""
        alignments = self._alignments()
        self.kernel = self.work.kernel(alignments)
        enough = [max(pair) for pair in zip(alignments, (b.element_bytes for b in self.kernel.buffers), strict=True)]
        return entry_text(self.kernel, enough, self._slots, guarded=self.is_guarded)

    def row(self) -> LaunchWords:
        """The launch as native code reads it."""
        x, y, z = self.kernel.blocks
        return LaunchWords(
            function=self.function,
            blocks_x=x,
            blocks_y=y,
            blocks_z=z,
            threads=self.kernel.threads,
            parameters=self.parameters,
        )

    def node(self, after: tuple[int, ...]) -> KernelNode:
        """The launch in a graph."""
        return KernelNode(self.function, self.kernel.blocks, self.kernel.threads, self.parameters, after)

    # -- memory

    def accesses(self) -> list[Access]:
        """The memory it touches."""
        found = [self._memory.moving.slot_access(slot) for slot in self._slots.values()]
        for k, buffer in enumerate(self.kernel.buffers):
            found.append(self._access(k, "reads" if buffer.role == "reads" else "writes"))
        if self._partials is not None:
            found.append(_own("writes", self._partials, self.kernel.partial_bytes))
        errors = self._memory.errors
        if errors is not None and (self.is_guarded or self.kernel.reports):
            found.append(_own("writes" if self.kernel.reports else "reads", errors.address, ERROR_BYTES))
        if errors is not None and self.kernel.tells:
            found.append(_own("reads", errors.address, ERROR_BYTES))
            found.append(_own("writes", errors.address + ERROR_BYTES, TOLD_BYTES - ERROR_BYTES))
        return found

    def _access(self, k: int, effect: Effect) -> Access:
        argument, memory = self.work.buffers[k], self._memory
        size_bytes = _size_bytes(argument)
        if isinstance(argument, Scratch) or memory.is_number(argument):
            return _own(effect, self._address(k), size_bytes)
        value = argument.value if isinstance(argument, Offset) else argument
        place = memory.binding.place(value)
        if k in self._moving:
            return Access(place, effect, name=memory.binding.home(value))
        return Access(place, effect, self._address(k), self._address(k) + size_bytes)


def _size_bytes(argument: BufferArgument) -> int:
    """Of a buffer, from its address on."""
    if isinstance(argument, Scratch):
        return argument.size_bytes
    if isinstance(argument, Offset):
        return argument.value.type.size_bytes - argument.offset_bytes
    return argument.type.size_bytes


def _own(effect: Effect, start: int, size_bytes: int) -> Access:
    return Access("own", effect, start, start + size_bytes)
