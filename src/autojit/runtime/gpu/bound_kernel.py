"""A kernel of a run with its launch: parameters, entry point, and the memory it touches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from autojit.codegen.cuda.copies import access_bytes
from autojit.codegen.cuda.entry_point import entry_text
from autojit.codegen.cuda.host_records import LaunchWords
from autojit.codegen.cuda.report import ERROR_BYTES, TOLD_BYTES
from autojit.codegen.lowered import Offset, Scratch
from autojit.core.sizes import is_symbolic
from autojit.ir.concrete import concrete, symbols_of
from autojit.runtime.gpu.driver import KernelNode
from autojit.runtime.gpu.memory import Held
from autojit.runtime.gpu.moving import WORD_BYTES, Region
from autojit.runtime.gpu.order import Access, Effect
from autojit.runtime.gpu.run_memory import RunMemory
from autojit.runtime.gpu.works import BufferArgument, Work

_GRID = LaunchWords.blocks_x, LaunchWords.blocks_y, LaunchWords.blocks_z


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
        self._words = np.zeros(len(buffers) + len(self.kernel.sizes) + 4, np.uint64)
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
        for size in self.kernel.sizes:
            words.append(memory.binding.number(size, base + WORD_BYTES * len(words)))
        if self._partials is not None:
            self._partials_at = len(words)
            words.append(memory.placed(self._partials, base + WORD_BYTES * len(words)))
        words += self._report_parameters()
        self._words[: len(words)] = words
        self._pointers = np.array([base + WORD_BYTES * k for k in range(len(self._words))], np.uint64)
        self.parameters = int(self._pointers.__array_interface__["data"][0])

    def _report_parameters(self) -> list[int]:
        memory, words = self._memory, list[int]()
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
        """What the address of each buffer is a multiple of, as far as accesses can use it.

        LLVM reads whole aligned pieces of 16 bytes for some of their elements. So that none is read behind a buffer,
        no more is said of one than divides its size.
        """
        found = []
        for k, argument in enumerate(self.work.buffers):
            found.append(access_bytes(_size_bytes(argument), self._alignment(k)))
        return found

    def _alignment(self, k: int) -> int:
        """A number that the address of a buffer is a multiple of, or itself."""
        if k in self._moving:
            return self._memory.moving_alignment(self._moving[k])
        argument = self.work.buffers[k]
        if self._memory.region(argument) is None:
            return self._address(k)
        return argument.offset_bytes if isinstance(argument, Offset) else 0  # regions are aligned as blocks are

    def text(self) -> str:
        """The module of the kernel for the present addresses."""
        alignments = self._alignments()
        self.kernel = self.work.kernel(alignments)
        enough = [max(pair) for pair in zip(alignments, (b.element_bytes for b in self.kernel.buffers), strict=True)]
        return entry_text(self.kernel, enough, self._slots, guarded=self.is_guarded)

    def settle(self, row: int) -> None:
        """Say at which address the launch will be: numbers of blocks that follow open sizes are written there."""
        for field, blocks in zip(_GRID, self.kernel.blocks, strict=True):
            self._memory.binding.number(blocks, row + field.offset_bytes)

    def row(self, before: Sequence[int]) -> LaunchWords:
        """The launch as native code reads it; numbers of blocks that follow open sizes stay what they were."""
        pairs = zip(_GRID, self.kernel.blocks, strict=True)
        x, y, z = (int(before[field.place]) if is_symbolic(blocks) else blocks for field, blocks in pairs)
        return LaunchWords(
            function=self.function,
            blocks_x=x,
            blocks_y=y,
            blocks_z=z,
            threads=self.kernel.threads,
            parameters=self.parameters,
        )

    @property
    def blocks(self) -> tuple[int, int, int]:
        """Of the grid, for the sizes of the present call."""
        x, y, z = concrete(self.kernel.blocks, self._memory.binding.sizes_now())
        return x, y, z

    def node(self, after: tuple[int, ...]) -> KernelNode:
        """The launch in a graph, for the sizes of the present call."""
        return KernelNode(self.function, self.blocks, self.kernel.threads, self.parameters, after)

    def depends_on(self) -> set[str]:
        """The open sizes that decide what it does."""
        kernel = self.kernel
        return symbols_of((*kernel.sizes, *kernel.blocks, kernel.partial_bytes))

    def regions(self) -> set[Region]:
        """The memory of open size that it uses."""
        found = {self._memory.region(argument) for argument in self.work.buffers}
        if self._partials is not None and not isinstance(self._partials, Held):
            found.add(self._partials)
        return {region for region in found if region is not None}

    # -- memory

    def accesses(self) -> list[Access]:
        """The memory it touches, with the sizes of the present call."""
        sizes = self._memory.binding.sizes_now()
        found = [self._memory.moving.slot_access(slot) for slot in self._slots.values()]
        for k, buffer in enumerate(self.kernel.buffers):
            found.append(self._access(k, "reads" if buffer.role == "reads" else "writes", sizes))
        if self._partials is not None:
            start = int(self._words[self._partials_at])
            found.append(_own("writes", start, concrete(self.kernel.partial_bytes, sizes)))
        errors = self._memory.errors
        if errors is not None and (self.is_guarded or self.kernel.reports):
            found.append(_own("writes" if self.kernel.reports else "reads", errors.address, ERROR_BYTES))
        if errors is not None and self.kernel.tells:
            found.append(_own("reads", errors.address, ERROR_BYTES))
            found.append(_own("writes", errors.address + ERROR_BYTES, TOLD_BYTES - ERROR_BYTES))
        return found

    def _access(self, k: int, effect: Effect, sizes: Mapping[str, int]) -> Access:
        argument, memory = self.work.buffers[k], self._memory
        size_bytes = concrete(_size_bytes(argument), sizes)
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
