"""The memory of one run: what moves, scratch, partial results, error words; and how addresses that move are aligned."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np

from autojit.codegen.cuda.copies import access_bytes
from autojit.codegen.cuda.host_records import MovingAddress
from autojit.codegen.cuda.report import TOLD_BYTES
from autojit.codegen.lowered import Scratch
from autojit.core.device import Device
from autojit.core.errors import DeviceError
from autojit.ir.graph import Value
from autojit.runtime.gpu.devices import CudaDevice
from autojit.runtime.gpu.memory import Held, PinnedMemory
from autojit.runtime.gpu.moving import WORD_BYTES, Binding, MovingBlock, Region
from autojit.runtime.gpu.scratch import RunScratch
from autojit.runtime.gpu.works import BufferArgument, Work, base_of, offset_of


class RunMemory:
    """See the module.

    Args:
        binding: where the step's values are.
        device: which does the run.
        works: the kernels.
        place: the device, as the plan calls it.
        repeated: the first and last kernel of each part that is done again and again.
    """

    def __init__(
        self,
        binding: Binding,
        device: CudaDevice,
        works: Sequence[Work],
        place: Device,
        repeated: Iterable[tuple[int, int]] = (),
    ) -> None:
        self.binding = binding
        self.device = device
        self.uses_table = False
        self.moving = MovingBlock(binding, device)
        self.scratch = RunScratch(
            works, self.hold, lambda size: binding.region(size, place), binding.most, list(repeated)
        )
        self._arguments = list(chain.from_iterable(work.buffers for work in works))
        self._ignored = np.zeros(1, np.uint64)
        self.errors = self.hold(TOLD_BYTES) if any(work.widest.reports for work in works) else None
        self.told = None if self.errors is None else self._cleared(self.errors)
        self._moving_addresses: list[tuple[int, int, int]] = []  # (word, what it is surely, and at best, a multiple of)
        self._by_word: dict[int, int] = {}

    def lay_out(self, *, uses_table: bool) -> None:
        """Decide where what moves is: in the table, from which kernels load addresses, or in parameters of launches."""
        self.uses_table = uses_table
        for argument in self._arguments:
            base = base_of(argument)
            if isinstance(base, Value) and (self.is_number(argument) or (uses_table and self.moves(argument))):
                self.moving.want(base)
        self.moving.lay_out()

    def hold(self, size_bytes: int) -> Held:
        """Memory of the device for as long as the run."""
        return self.device.memory.hold(size_bytes, self.device.stream)

    def _cleared(self, errors: Held) -> PinnedMemory:
        self.device.use()
        self.device.driver.fill(errors.address, 0, TOLD_BYTES, self.device.stream)
        told = PinnedMemory(self.device.driver, self.device.number, TOLD_BYTES)
        ctypes.memset(told.address, 0, TOLD_BYTES)
        return told

    # -- buffers

    def is_number(self, argument: BufferArgument) -> bool:
        """Whether kernels get it by value."""
        return isinstance(argument, Value) and self.moving.is_number(argument)

    def moves(self, argument: BufferArgument) -> bool:
        """Whether its address is another in every call."""
        base = base_of(argument)
        return isinstance(base, Value) and not self.is_number(argument) and self.moving.moves(base)

    def slot(self, argument: BufferArgument) -> int | None:
        """The table's slot that holds the address of what it is part of; None where a launch passes its own."""
        base = base_of(argument)
        return self.moving.slot(base) if isinstance(base, Value) and self.uses_table and self.moves(argument) else None

    def address(self, argument: BufferArgument, word: int) -> int:
        """Where a buffer is, for the parameter at ``word``; it is written there when it changes."""
        base = base_of(argument)
        if isinstance(base, Scratch):
            return self.placed(self.scratch.place(base), word, offset_of(argument))
        if isinstance(argument, Value) and self.moving.is_number(argument):
            return self.moving.number_address(argument)
        assert not isinstance(argument, Scratch)
        return self.binding.word(argument, word)

    def present_address(self, argument: BufferArgument) -> int:
        """Where a buffer that stays in place is now: nobody is told when it changes."""
        return self.address(argument, int(self._ignored.__array_interface__["data"][0]))

    def placed(self, place: Held | Region, word: int, offset_bytes: int = 0) -> int:
        """Where memory of the run is, for the parameter at ``word``."""
        if isinstance(place, Held):
            return self.binding.number(place.address + offset_bytes, word)
        return self.binding.region_word(place, word, offset_bytes)

    def region(self, argument: BufferArgument) -> Region | None:
        """The memory of open size that a buffer is in, if it is in some."""
        base = base_of(argument)
        if isinstance(base, Scratch):
            place = self.scratch.place(base)
            return None if isinstance(place, Held) else place
        return self.binding.region_of(base)

    def meeting_word(self) -> Held:
        """A word by which the blocks of a launch meet."""
        held = self.hold(WORD_BYTES)
        self.device.use()
        self.device.driver.fill(held.address, 0, WORD_BYTES, self.device.stream)
        return held

    # -- alignment of what moves

    def expect(self, word: int, argument: BufferArgument, offset_bytes: int) -> int:
        """An address that moves will be in a word, so far behind the beginning; the number of its alignment."""
        found = self._by_word.get(word)
        if found is None:
            base = base_of(argument)
            assert isinstance(base, Value)
            element_bytes = base.type.dtype.numpy.itemsize
            found = self._by_word[word] = len(self._moving_addresses)
            self._moving_addresses.append((word, element_bytes, max(element_bytes, access_bytes(offset_bytes))))
        return found

    def finish(self) -> None:
        """All that moves is known."""
        rows = [MovingAddress(word=word, mask=best - 1) for word, _, best in self._moving_addresses]
        self._rows = np.array(rows or [MovingAddress(word=0, mask=0)], np.uint64)

    @property
    def moving_addresses(self) -> tuple[int, int]:
        """How many there are, and where native code finds them."""
        return len(self._moving_addresses), int(self._rows.__array_interface__["data"][0])

    def moving_alignment(self, number: int) -> int:
        """What an address that moves was a multiple of in all calls so far."""
        return int(self._rows[number, MovingAddress.mask.place]) + 1

    def widen(self, words: Sequence[int]) -> None:
        """Expect less of the addresses that are less aligned than any before.

        Args:
            words: what is in the words of `expect` now.
        """
        for row, word, (_, least, _) in zip(self._rows, words, self._moving_addresses, strict=True):
            if word & int(row[MovingAddress.mask.place]):
                if word % least:
                    raise DeviceError("a buffer is not aligned to its elements", fix="copy it: x.clone()")
                row[MovingAddress.mask.place] = least - 1

    @property
    def moving_words(self) -> list[int]:
        """Where the addresses that move are."""
        return [word for word, _, _ in self._moving_addresses]
