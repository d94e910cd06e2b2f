"""Which blocks of a launch wait for each other: releases and acquires through words of memory.

A lane that releases publishes what its block did before its last barrier, and what it did itself; a lane that acquires
the word behind it knows of that, and from its next barrier on so does its block. An atomic operation behind a fence is
a release, one before a fence an acquire. Plain reads are neither: hardware may never show them the value. What a lane
does between its fence and the operation counts as published, though it need not be: intervals are all that is known.
"""

from __future__ import annotations

from autojit.ir.op import Ndarray
from autojit.runtime.gpu.emulator.stamps import SEVERAL_BLOCKS, parts_of

_Knowledge = dict[int, set[tuple[int, int]]]
"""By block: up to which interval its accesses are seen, and which thread's also in that interval."""

_RELEASES = frozenset({"release", "acq_rel"})
_ACQUIRES = frozenset({"acquire", "acq_rel"})


class Synchronisation:
    """What the blocks of one launch have published and learnt."""

    def __init__(self) -> None:
        self._published: dict[int, _Knowledge] = {}
        self._known: dict[int, list[tuple[int, int, _Knowledge]]] = {}
        self._fenced: dict[tuple[int, int], int] = {}
        self._seen: dict[tuple[int, int], list[_Knowledge]] = {}

    def fence(self, stamps: Ndarray) -> None:
        """Lanes order what they did before what they do behind."""
        for stamp in stamps.tolist():
            block, interval, thread = parts_of(stamp)
            self._fenced[block, thread] = interval
            for knowledge in self._seen.pop((block, thread), []):
                self._known.setdefault(block, []).append((interval, thread, knowledge))

    def touch(self, addresses: Ndarray, stamps: Ndarray, order: str, *, reads: bool, writes: bool) -> None:
        """Lanes read or write words atomically, one after another."""
        for address, stamp in zip(addresses.tolist(), stamps.tolist()):
            block, interval, thread = parts_of(stamp)
            found = self._published.get(address)
            if reads and found is not None:
                snapshot = {key: set(value) for key, value in found.items()}
                if order in _ACQUIRES:
                    self._known.setdefault(block, []).append((interval, thread, snapshot))
                else:
                    self._seen.setdefault((block, thread), []).append(snapshot)
            fenced = interval if order in _RELEASES else self._fenced.get((block, thread))
            if writes and fenced is not None:
                self._publish(address, block, fenced, thread)

    def _publish(self, address: int, block: int, interval: int, thread: int) -> None:
        word = self._published.setdefault(address, {})
        word.setdefault(block, set()).add((interval, thread))
        for knowledge in self._visible(block, interval, thread):
            for key, value in knowledge.items():
                word.setdefault(key, set()).update(value)

    def _visible(self, block: int, interval: int, thread: int) -> list[_Knowledge]:
        learnt = self._known.get(block, [])
        return [k for at, by, k in learnt if at < interval or (by == thread and at <= interval)]

    def has_ordered(self, before: int, now: int) -> bool:
        """Whether the first access, of another block, is known to be done at the second."""
        block, interval, thread = parts_of(before)
        visible = self._visible(*parts_of(now))
        if block == SEVERAL_BLOCKS:
            return bool(visible)  # which ones is not written down: no blame without proof
        return any(
            interval < until or (thread == by and interval <= until)
            for knowledge in visible
            for until, by in knowledge.get(block, ())
        )
