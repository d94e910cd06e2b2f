"""Who touched each byte of a memory last: the races of a launch.

Most accesses of a launch meet no other: inputs are read, results written once. So an access is first only written down,
with the range of its addresses; where a later one overlaps it and one of the two writes, both go into a table of the
last writer and the last reader of each byte, and are compared there. While all accesses of a launch are of words of 4
bytes or more, the table has one entry for each of those: a quarter of what is compared.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from autojit.ir.op import Ndarray
from autojit.runtime.gpu.emulator.distinct import all_differ
from autojit.runtime.gpu.emulator.stamps import ATOMIC, in_words, is_read_only, joined, parts_of, unordered
from autojit.runtime.gpu.emulator.synchronisation import Synchronisation

RaceKind = Literal["race within a block", "race between blocks", "read-only memory written"]

_MOST_HELD = 1 << 20
"""Lanes of accesses that are only written down, 16 bytes each; more go into the table at once."""


_GRAIN = 4
"""Bytes to an entry when a launch begins: of float32, and of what copies and vectors are made of."""

_ENTRY_BYTES = 8


class Conflict(Exception):
    """Two lanes that nothing orders touch a byte, and one of them writes."""

    def __init__(self, position: int, before: int, now: int, is_write: bool, was_write: bool) -> None:
        self.position = position
        are_apart = parts_of(before)[0] != parts_of(now)[0]
        self.kind: RaceKind = "race between blocks" if are_apart else "race within a block"
        if is_read_only(before) or is_read_only(now):
            self.kind = "read-only memory written"
        what = f"{'writes' if is_write else 'reads'} what {in_words(before)} {'wrote' if was_write else 'read'}"
        super().__init__(f"{in_words(now)} {what}, and nothing orders the two")


class _Access:
    """Lanes that touch aligned pieces of ``size`` bytes, one row of the table each.

    ``step``: all pieces are apart by multiples of this power of two. Four stores of every fourth element each have one
    range of addresses, but meet nowhere.
    """

    __slots__ = ("begin", "end", "is_write", "rows", "size", "stamps", "step")

    def __init__(self, rows: Ndarray, size: int, stamps: Ndarray, is_write: bool) -> None:
        self.rows, self.size, self.stamps, self.is_write = rows, size, stamps, is_write
        self.begin = int(rows.min()) * size
        self.end = (int(rows.max()) + 1) * size
        varying = int(np.bitwise_or.reduce(rows ^ rows[0]))
        self.step = (varying & -varying) * size or 1 << 62

    def may_meet(self, other: _Access) -> bool:
        """Whether the two touch a common byte, as far as ranges and steps tell."""
        if self.begin >= other.end or other.begin >= self.end:
            return False
        step = min(self.step, other.step)
        distance = (other.begin - self.begin) % step
        return distance < self.size or step - distance < other.size


class AccessTable:
    """What was touched in one launch.

    Args:
        writers: a table of zeros, an entry of 64 bits for each byte.
        readers: another.
    """

    def __init__(self, writers: Ndarray, readers: Ndarray) -> None:
        self._entries = {True: writers, False: readers}
        self._set_grain(_GRAIN)
        self.begin(0, None)

    def begin(self, least_stamp: int, order: Synchronisation | None) -> None:
        """A launch begins whose stamps are not below this; ``order`` knows which blocks wait for each other."""
        self._least, self._order = least_stamp, order
        self._held: list[_Access] = []
        self._held_lanes = 0
        self._settled: dict[bool, list[tuple[int, int]]] = {False: [], True: []}
        if self._grain != _GRAIN:  # what is in the table is older than the launch, and says nothing wherever it is
            self._set_grain(_GRAIN)

    def _set_grain(self, grain: int) -> None:
        """Have an entry for so many bytes; pieces of memory are rows of entries, for each size of a piece."""
        count = len(self._entries[True])
        sizes = [size for size in (1, 2, 4, 8, 16, 32) if size >= grain and count % size == 0]
        self._grain = grain
        self._writers, self._readers = (
            {size: self._entries[k][: count // grain].reshape(-1, size // grain) for size in sizes}
            for k in (True, False)
        )

    def _refine(self, grain: int) -> None:
        """A smaller piece is touched than an entry is for: those of the launch are written for each of its parts."""
        for is_write, ranges in self._settled.items():
            entries = self._entries[is_write]
            parts = [entries[begin // self._grain : end // self._grain] for begin, end in ranges]
            known = [np.repeat(part, self._grain // grain) for part in parts]
            for part in parts:
                part[:] = 0
            for (begin, end), found in zip(ranges, known, strict=True):
                entries[begin // grain : end // grain] = found
        self._set_grain(grain)

    def begin_again(self, least_stamp: int) -> None:
        """All that was done is ordered before what follows; numbers may have begun again, so old ones are forgotten."""
        if least_stamp < self._least:
            for entries in self._entries.values():
                entries[:] = 0
        self.begin(least_stamp, None)

    def note(self, rows: Ndarray, size: int, stamps: Ndarray, *, is_write: bool, is_atomic: bool) -> None:
        """Lanes touch pieces of the memory.

        Raises:
            Conflict: another lane touched one of the bytes, or does so in the same instruction.
        """
        if size < self._grain:
            self._refine(size)
        access = _Access(rows, size, stamps | ATOMIC if is_atomic else stamps, is_write)
        meets = self._settle_rivals(access)
        if meets or (is_write and not is_atomic and not all_differ(rows)):
            self._settle(access)
            return
        self._held.append(access)
        self._held_lanes += len(rows)
        if self._held_lanes > _MOST_HELD:
            for held in self._held:
                self._settle(held)
            self._held, self._held_lanes = [], 0

    def _settle_rivals(self, access: _Access) -> bool:
        """Let those that overlap an access, one of the two writing, into the table; whether there were any ever."""
        begin, end = access.begin, access.end
        meets = False
        for is_write in (True, False) if access.is_write else (True,):
            meets |= any(begin < last and first < end for first, last in self._settled[is_write])
        rivals = [held for held in self._held if (access.is_write or held.is_write) and access.may_meet(held)]
        if rivals:
            self._held = [held for held in self._held if not any(held is rival for rival in rivals)]
            for held in rivals:
                self._held_lanes -= len(held.rows)
                self._settle(held)
        return meets or bool(rivals)

    def _settle(self, access: _Access) -> None:
        """Compare an access with the table, and put it in."""
        if access.is_write:
            self._write(access)
        else:
            self._read(access)
        begin, end = access.begin, access.end
        ranges = self._settled[access.is_write]
        apart = [(first, last) for first, last in ranges if last < begin or end < first]
        if len(apart) < len(ranges):
            together = [each for each in ranges if each not in apart]
            begin, end = min(begin, *(first for first, _ in together)), max(end, *(last for _, last in together))
        self._settled[access.is_write] = [*apart, (begin, end)]

    def _read(self, access: _Access) -> None:
        rows, size, stamps = access.rows, access.size, access.stamps
        written = self._writers[size][rows]
        if written.max() >= self._least:
            self._compare(written, access, was_write=True)
        table = self._readers[size]
        before = table[rows]
        now = stamps[:, None]
        if before.max() >= self._least:
            is_mixed = (before >= self._least) & (before != now)
            if is_mixed.any():
                now = np.where(is_mixed, joined(before, now), now)
        table[rows] = now
        behind = np.flatnonzero(table[rows, 0] != now[:, 0])
        if len(behind):  # several lanes read one place at once
            both = joined(table[rows[behind], 0], stamps[behind])
            order = np.argsort(both)
            table[rows[behind[order]]] = both[order, None]

    def _write(self, access: _Access) -> None:
        rows, size, stamps = access.rows, access.size, access.stamps
        table = self._writers[size]
        for before, was_write in ((table[rows], True), (self._readers[size][rows], False)):
            if before.max() >= self._least:
                self._compare(before, access, was_write=was_write)
        table[rows] = stamps[:, None]
        found = table[rows, 0]
        differing = np.flatnonzero(found != stamps)
        if len(differing) and not int(stamps[0]) & int(ATOMIC):
            position = int(differing[0])
            raise Conflict(position, int(found[position]), int(stamps[position]), True, True)

    def _compare(self, before: Ndarray, access: _Access, *, was_write: bool) -> None:
        now = access.stamps[:, None]
        found = (before >= self._least) & (before != now) & (before & now & ATOMIC == 0)
        if not found.any():
            return
        found &= unordered(before, now)
        positions, bytes_ = np.nonzero(found)
        if not len(positions):
            return
        earlier, later = before[positions, bytes_], access.stamps[positions]
        blamed = np.arange(len(positions))
        if self._order is not None:
            blamed = np.flatnonzero(~self._order.have_ordered(earlier, later))
        if len(blamed):
            k = int(blamed[0])
            raise Conflict(int(positions[k]), int(earlier[k]), int(later[k]), access.is_write, was_write)


def places_of_entries(begin: int, size_bytes: int) -> list[tuple[int, int]]:
    """Where in a table, in bytes, entries of some memory may be: what begins there, and how long that is."""
    return [(_ENTRY_BYTES * begin // grain, _ENTRY_BYTES * size_bytes // grain) for grain in (1, 2, _GRAIN)]
