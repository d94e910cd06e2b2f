"""What moves from call to call: addresses of arguments and results, and numbers of the host that kernels read.

All of it is in one block of words on the host, which native code fills before a run. The run begins with a launch or
two that take the block by value and write it to a table on the device (`codegen.cuda.prologue`). Kernels load addresses
from the table's slots; a number's own address is its slot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from autojit.codegen.cuda.host_records import HostNumber
from autojit.codegen.cuda.prologue import MOST_PROLOGUE_WORDS, prologue_words
from autojit.codegen.lowered import Offset
from autojit.core.device import CPU, Device
from autojit.core.records import record
from autojit.ir.graph import Value
from autojit.runtime.gpu.devices import CudaDevice
from autojit.runtime.gpu.order import Access, Place

WORD_BYTES = 8
WIDEST_ACCESS_BYTES = 16

Region = int
"""Memory whose place depends on open sizes, by a number of the plan."""


class Binding(Protocol):
    """Where the values of a step are, as the writer of its plan knows it."""

    def word(self, argument: Value | Offset, slot: int) -> int:
        """The address of a value, to be written to the word at ``slot``; it is written there whenever it changes.

        For what moves from call to call that happens before the entries of the plan run, and the word is 0 till then.
        """

    def place(self, value: Value) -> Place:
        """Whose memory it is in."""

    def home(self, value: Value) -> Value:
        """The value whose memory it is, the same for all that share it."""

    def region_of(self, value: Value) -> Region | None:
        """The memory of open size that it has; None: its memory is elsewhere."""

    # -- open sizes

    def region(self, size_bytes: int, device: Device) -> Region:
        """Memory of open size on a device, for the plan alone."""

    def region_word(self, region: Region, slot: int, offset_bytes: int = 0) -> int:
        """Its address, or one so far behind it, for the word at ``slot``; it is written there whenever it changes."""

    def number(self, size: int, slot: int) -> int:
        """A size, to be written to the word at ``slot``; one that is open is written there whenever it changes."""

    def most(self, size: int) -> int:
        """A size that another does not exceed, whatever the step counts: memory is planned for so much."""

    def sizes_now(self) -> Mapping[str, int]:
        """The open sizes of the call that runs, or of the last one."""


@record
class Prologue:
    """A launch that writes a part of the table.

    Args:
        words: of the part, with those that fill it up.
        parameters: address of the addresses of its arguments.
        part: what it writes.
    """

    words: int
    parameters: int
    part: Access


class MovingBlock:
    """The block and the table of one run. First `want` what is in it, then `lay_out`.

    Args:
        binding: where values are.
        device: which has the table.
    """

    def __init__(self, binding: Binding, device: CudaDevice) -> None:
        self._binding = binding
        self._device = device
        self._addresses: dict[Value, tuple[int, Value]] = {}  # with the slot
        self._numbers: dict[Value, int] = {}  # with the slot, from the first number's on
        self._number_words = 0
        self.prologues: tuple[Prologue, ...] = ()

    # -- what is in it

    @staticmethod
    def is_number(value: Value) -> bool:
        """Whether kernels get it by value."""
        return value.type.device == CPU

    def moves(self, value: Value) -> bool:
        """Whether its address is another in every call."""
        return self._binding.place(value) in ("argument", "result")

    def want(self, value: Value) -> None:
        """It, or a part of it, will be asked for."""
        home = self._binding.home(value)
        if not self.is_number(value):
            self._addresses.setdefault(home, (len(self._addresses), value))
        elif home not in self._numbers:
            self._numbers[home] = self._number_words
            self._number_words += -(-value.type.size_bytes // WIDEST_ACCESS_BYTES) * 2

    def lay_out(self) -> None:
        """Make the block and the table."""
        self.n_addresses = len(self._addresses)
        self._first_number = self.n_addresses + self.n_addresses % 2
        count = self._first_number + self._number_words
        parts = [min(MOST_PROLOGUE_WORDS, count - k) for k in range(0, count, MOST_PROLOGUE_WORDS)]
        sizes = [prologue_words(part) for part in parts]
        self._block = np.zeros(max(sum(sizes), 1), np.uint64)
        self.block_address = _address(self._block)
        for slot, value in self._addresses.values():
            self._block[slot] = self._binding.word(value, self.block_address + WORD_BYTES * slot)
        self._write_numbers()
        if not count:
            return
        self._table = self._device.memory.hold(WORD_BYTES * sum(sizes), self._device.stream)
        self.table_address = self._table.address
        self._write_prologues(sizes)

    def _write_numbers(self) -> None:
        fields = len(HostNumber.fields)
        self._rows = np.zeros(max(fields * len(self._numbers), 1), np.uint64)
        self.n_numbers, self.numbers_address = len(self._numbers), _address(self._rows)
        for k, (value, place) in enumerate(self._numbers.items()):
            start = self.numbers_address + HostNumber.size_bytes * k
            self._rows[fields * k : fields * (k + 1)] = HostNumber(
                source=self._binding.word(value, start + HostNumber.source.offset_bytes),
                target=self.block_address + WORD_BYTES * (self._first_number + place),
                bytes=value.type.size_bytes,
            )

    def _write_prologues(self, sizes: Sequence[int]) -> None:
        self._parameters = np.zeros(3 * len(sizes), np.uint64)  # of each: the part's address, and two that lead to it
        base, found, first = _address(self._parameters), list[Prologue](), 0
        for k, size in enumerate(sizes):
            part = self.table_address + WORD_BYTES * first
            here = base + 3 * WORD_BYTES * k
            self._parameters[3 * k : 3 * k + 3] = part, here, self.block_address + WORD_BYTES * first
            written = Access("own", "writes", part, part + WORD_BYTES * size)
            found.append(Prologue(size, here + WORD_BYTES, written))
            first += size
        self.prologues = tuple(found)

    # -- what it says of a buffer

    def slot(self, value: Value) -> int:
        """The slot of an address that moves."""
        return self._addresses[self._binding.home(value)][0]

    def number_address(self, value: Value) -> int:
        """Where the device finds a number of the host."""
        place = self._first_number + self._numbers[self._binding.home(value)]
        return self.table_address + WORD_BYTES * place

    def slot_access(self, slot: int) -> Access:
        """That an address is loaded."""
        start = self.slot_address(slot)
        return Access("own", "reads", start, start + WORD_BYTES)

    def slot_address(self, slot: int) -> int:
        """Where the device finds an address."""
        return self.table_address + WORD_BYTES * slot

    def slot_word(self, slot: int) -> int:
        """The address of the host's word for a slot."""
        return self.block_address + WORD_BYTES * slot


def _address(words: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> int:
    return int(words.__array_interface__["data"][0])
