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
from autojit.runtime.executable import data_address
from autojit.runtime.object_layout import attributes_offset, data_and_flags, slot_offset, word_at

if TYPE_CHECKING:
    import numpy.typing as npt

    Words = npt.NDArray[np.int64]

MOST_SETS = 16  # values of open sizes for which rings keep tensors: a cache that grows in every call, and begins anew
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
        self._refilled_at = [0] * len(rings)  # calls
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

    def refill(self, ring: int, calls: int = 0) -> None:
        """Replace the tensors of a ring that are in use or spent by fresh ones, for the present sizes.

        A program that keeps what it gets, or a part of it (a list of losses, ``step(x).detach()``), has every tensor
        that it gets made here, so the ring grows. ``calls``: how many have run the step until now.
        """
        self._fill(ring, calls, most=MOST_TENSORS)

    def _fill(self, ring: int, calls: int, most: int) -> None:
        """``refill``, with that many tensors at most, each of which stands in several places then."""
        spec = self.rings[ring]
        tensors = self._tensors(ring)
        free = self._free(ring, tensors)
        words: list[int] = self._entries[ring][self._row(ring), free].ravel().tolist()
        kept = [tensors[rank] for rank in free]
        is_full, quickly = len(tensors) == self._capacity(ring), calls - self._refilled_at[ring] <= 2 * len(tensors)
        if is_full and not free and quickly:
            self._grow(ring)
        self._refilled_at[ring] = calls
        tensors.clear()
        tensors.extend(kept)
        del kept
        for _ in range(min(self._capacity(ring), most) - len(tensors)):
            made = spec.make()
            tensors.append(made)
            words += _described(made, getattr(made, spec.array_slot))
        places = self._entries[ring][self._row(ring)]
        described = np.array(words).reshape(len(tensors), -1)
        places[:] = described if len(described) == len(places) else described[0]
        self.records[ring, Ring.n_entries.place] = len(places)

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
        """From now on these values of the open sizes are welcome, too: rings get one tensor for them.

        Others are made when it is in use: the values may not come again.
        """
        row = self._new_row()
        self.accepted[row] = -1
        self.sets[AcceptedSets.present.place] = row
        for ring, spec in enumerate(self.rings):
            if spec.is_open:
                self._tensors(ring).clear()
                self._fill(ring, 0, most=1)
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

    def _free(self, ring: int, tensors: list[Any]) -> list[int]:
        """Ranks of tensors that only the ring holds, of which only the tensor holds its array, as native code sees it.

        One that the caller has let go can still be spent: a view or another library shares its memory.
        """
        spec, words = self.rings[ring], self._entries[ring][self._row(ring)]
        free = []
        for rank in range(len(tensors)):
            if sys.getrefcount(tensors[rank]) > 2:  # the list and the argument
                continue
            held = tensors[rank]
            if any(getattr(held, name) is not value for name, value in spec.slot_equals):
                continue
            tensor, content, array = words[rank, :3].tolist()
            at = tensor + slot_offset(type(held), spec.array_slot)
            is_alone = _references(tensor) == 2 and _references(content) == 1 and _references(array) == 1
            if is_alone and word_at(at) == content and not getattr(held, "__dict__", None):
                free.append(rank)
        return free


def _described(tensor: Any, content: Any) -> RingEntry:
    array = layout_in_memory(content)
    cls: type = type(tensor)
    attributes = id(tensor.__dict__) if attributes_offset(cls) else 0
    return RingEntry.in_order(id(tensor), id(content), id(array), *data_and_flags(array), attributes)


def _rows_of(ring: OutputRing) -> int:
    return MOST_SETS if ring.is_open else 1


def _size_bytes(tensor: Any, spec: OutputRing) -> int:
    return int(layout_in_memory(getattr(tensor, spec.array_slot)).nbytes)


def _references(address: int) -> int:
    return ctypes.c_uint32.from_address(address).value
