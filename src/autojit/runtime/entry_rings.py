"""The tensors that an entry point hands out: rings of them, for the values of open sizes that came last.

A ring whose shape depends on open sizes has a row of tensors for each of a few values, so that batches of two sizes
that take turns find theirs without Python. Native code finds the row by the values, which Python has accepted before.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.device_array import layout_in_memory
from autojit.runtime.entry_records import AcceptedSets, Ring, RingEntry
from autojit.runtime.entry_spec import OutputRing, Slots
from autojit.runtime.entry_words import address_of
from autojit.runtime.executable import data_address
from autojit.runtime.object_layout import array_flags, attributes_offset, slot_offset, word_at

if TYPE_CHECKING:
    import numpy.typing as npt

    Words = npt.NDArray[np.int64]

MOST_SETS = 4  # values of open sizes for which rings keep tensors
MOST_TENSORS = 64  # of a ring whose results the caller keeps
MOST_GROWN_BYTES = 1 << 16  # by its tensors
MOST_KEPT_BYTES = 1 << 24  # by the tensors of rings with open sizes; more than that only for the present values


class EntryRings:
    """The rings of one entry, whose gate the caller has.

    Args:
        rings: what they are made of.
        n_sizes: open sizes whose values have to be accepted.
    """

    def __init__(self, rings: Sequence[OutputRing], n_sizes: int) -> None:
        self.rings = rings
        self.accepted = np.full((MOST_SETS, n_sizes), -1, np.int64)
        self.sets = np.array(AcceptedSets(n_rows=0, present=0), np.int64)
        self.records = np.zeros((len(rings), len(Ring.fields)), np.int64)
        self._held: list[list[list[Any]]] = [[[] for _ in range(_rows_of(ring))] for ring in rings]
        self._entries = [np.zeros((_rows_of(ring), ring.capacity, len(RingEntry.fields)), np.int64) for ring in rings]

    def describe(self, ring: int, store: int, slot_pairs: Callable[[type, Slots], int]) -> None:
        """Write a ring's record; ``store``: where its data pointers are put."""
        spec = self.rings[ring]
        cls: type = type(spec.make())
        self.records[ring] = Ring(
            entries=data_address(self._entries[ring]),
            stride=self._entries[ring][0].nbytes if spec.is_open else 0,
            store=store,
            offset=slot_offset(cls, spec.array_slot),
            n_slots=len(spec.slot_equals),
            slots=slot_pairs(cls, spec.slot_equals),
            attributes_offset=attributes_offset(cls),
        )

    def fill(self) -> None:
        """Fill all rings."""
        for ring in range(len(self.rings)):
            self.refill(ring)

    def refill(self, ring: int) -> None:
        """Replace the tensors of a ring that are in use by fresh ones, for the present sizes."""
        spec = self.rings[ring]
        tensors = self._tensors(ring)
        all_in_use = len(tensors) == self._capacity(ring) and all(_is_in_use(tensors, k) for k in range(len(tensors)))
        kept = [tensors[rank] for rank in range(len(tensors)) if self._is_free(ring, rank)]
        tensors.clear()
        tensors.extend(kept)
        if all_in_use:
            self._grow(ring)
        del kept
        while len(tensors) < self._capacity(ring):
            tensors.append(spec.make())
        for rank in range(len(tensors)):
            self._describe_entry(ring, rank)
        self.records[ring, Ring.n_entries.place] = len(tensors)

    def _capacity(self, ring: int) -> int:
        return self._entries[ring].shape[1]

    def _grow(self, ring: int) -> None:
        """Make room for more tensors, where the caller keeps what it gets: a list of losses."""
        spec, before = self.rings[ring], self._entries[ring]
        size_bytes = _size_bytes(spec.make(), spec)
        if spec.is_open or 2 * before.shape[1] > MOST_TENSORS or 2 * before.shape[1] * size_bytes > MOST_GROWN_BYTES:
            return
        self._entries[ring] = np.zeros((before.shape[0], 2 * before.shape[1], before.shape[2]), np.int64)
        self.records[ring, Ring.n_entries.place] = 0
        self.records[ring, Ring.entries.place] = data_address(self._entries[ring])

    def accept(self, values: tuple[int, ...]) -> None:
        """From now on these values of the open sizes are welcome, too: rings get tensors for them."""
        row = self._new_row()
        self.accepted[row] = -1
        self.sets[AcceptedSets.present.place] = row
        for ring, spec in enumerate(self.rings):
            if spec.is_open:
                self._tensors(ring).clear()
                self.refill(ring)
        self.accepted[row] = values
        self.sets[AcceptedSets.n_rows.place] = max(int(self.sets[AcceptedSets.n_rows.place]), row + 1)

    def _new_row(self) -> int:
        """Where tensors for other sizes go: the next row, in turn, while those that are there do not take too much."""
        count, present = (int(self.sets[word.place]) for word in (AcceptedSets.n_rows, AcceptedSets.present))
        is_open = [(spec, rows) for spec, rows in zip(self.rings, self._held, strict=True) if spec.is_open]
        held = sum(_size_bytes(t, spec) for spec, rows in is_open for tensors in rows for t in tensors)
        if count and held <= MOST_KEPT_BYTES:
            return (present + 1) % MOST_SETS if count == MOST_SETS else count
        self.sets[AcceptedSets.n_rows.place] = 0
        for _, rows in is_open:
            for tensors in rows:
                tensors.clear()
        return 0

    def _row(self, ring: int) -> int:
        """The row of a ring's tensors for the present sizes."""
        return int(self.sets[AcceptedSets.present.place]) if self.rings[ring].is_open else 0

    def _tensors(self, ring: int) -> list[Any]:
        return self._held[ring][self._row(ring)]

    def _is_free(self, ring: int, rank: int) -> bool:
        """Whether only the ring holds the tensor and only the tensor its array, as the native code sees it."""
        spec = self.rings[ring]
        held = self._tensors(ring)
        if _is_in_use(held, rank):  # most are where a ring is filled up
            return False
        cls = type(held[rank])
        tensor, content, array = (int(word) for word in self._entries[ring][self._row(ring), rank][:3])
        if _references(tensor) != 1 or word_at(tensor + slot_offset(cls, spec.array_slot)) != content:
            return False
        is_alone = _references(content) == 1 and _references(array) == 1
        untouched = (word_at(tensor + slot_offset(cls, name)) == address_of(value) for name, value in spec.slot_equals)
        return is_alone and all(untouched) and not getattr(held[rank], "__dict__", None)

    def _describe_entry(self, ring: int, rank: int) -> None:
        tensor = self._tensors(ring)[rank]
        content = getattr(tensor, self.rings[ring].array_slot)
        array = layout_in_memory(content)
        cls: type = type(tensor)
        attributes = id(tensor.__dict__) if attributes_offset(cls) else 0
        self._entries[ring][self._row(ring), rank] = RingEntry(
            tensor=id(tensor),
            content=id(content),
            array=id(array),
            data=data_address(array),
            flags=array_flags(array),
            attributes=attributes,
        )


def _rows_of(ring: OutputRing) -> int:
    return MOST_SETS if ring.is_open else 1


def _is_in_use(tensors: list[Any], rank: int) -> bool:
    """Whether the caller has it. One that it let go can still be spent: a view or another library shares its memory."""
    return sys.getrefcount(tensors[rank]) > 2  # the list and the argument


def _size_bytes(tensor: Any, spec: OutputRing) -> int:
    return int(layout_in_memory(getattr(tensor, spec.array_slot)).nbytes)


def _references(address: int) -> int:
    return ctypes.c_uint32.from_address(address).value
