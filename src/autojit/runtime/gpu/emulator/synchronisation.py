"""Which blocks of a launch wait for each other: releases and acquires through words of memory.

A lane that releases publishes what its block did before its last barrier, and what it did itself; a lane that acquires
the word behind it knows of that, and from its next barrier on so does its block. An atomic operation behind a fence is
a release, one before a fence an acquire. Plain reads are neither: hardware may never show them the value. What a lane
does between its fence and the operation counts as published, though it need not be: intervals are all that is known.

What is known is a number for each block, up to which interval its accesses are seen, so that a barrier of all blocks,
behind which each knows of all others, is compared in one go.
"""

from __future__ import annotations

import numpy as np

from autojit.ir.op import Ndarray
from autojit.runtime.gpu.emulator.distinct import few
from autojit.runtime.gpu.emulator.stamps import MOST_BLOCKS, SEVERAL_BLOCKS, parts_of

_RELEASES = frozenset({"release", "acq_rel"})
_ACQUIRES = frozenset({"acquire", "acq_rel"})


class _Knowledge:
    """What is seen of each block: all before an interval, and in that interval what one thread did, or several.

    Who publishes in a later interval publishes all of the earlier ones, so there is no more to know of a block.
    """

    def __init__(self, blocks: int) -> None:
        self.until = np.full(blocks, -1, "i4")
        self.by = np.full(blocks, -1, "i4")
        self.others: set[tuple[int, int, int]] = set()  # block, interval, thread: further ones of an interval

    def publish(self, block: int, interval: int, thread: int) -> None:
        """A thread of a block makes known what was before an interval, and what it did itself."""
        known, by = int(self.until[block]), int(self.by[block])
        if interval > known:
            self.until[block], self.by[block] = interval, thread
        elif interval == known and thread != by:
            self.others.add((block, interval, thread))

    def add(self, other: _Knowledge) -> None:
        """Know what another one knows, too."""
        self.others |= other.others
        differing = np.flatnonzero((other.until == self.until) & (other.by != self.by))
        for block in differing.tolist():
            self.publish(block, int(other.until[block]), int(other.by[block]))
        newer = other.until > self.until
        self.until[newer], self.by[newer] = other.until[newer], other.by[newer]

    def copy(self) -> _Knowledge:
        """The same, whatever is added later."""
        made = _Knowledge(0)
        made.until, made.by, made.others = self.until.copy(), self.by.copy(), set(self.others)
        return made

    def has(self, block: int, interval: int, thread: int) -> bool:
        """Whether an access is seen; which blocks "several" are is not written down: no blame without proof."""
        if block == SEVERAL_BLOCKS or interval < self.until[block]:
            return True
        is_own = interval == self.until[block] and thread == self.by[block]
        return is_own or (block, interval, thread) in self.others


class Synchronisation:
    """What the blocks of one launch have published and learnt.

    Args:
        blocks: of the launch.
    """

    def __init__(self, blocks: int) -> None:
        self._blocks = min(blocks, MOST_BLOCKS)
        self._published: dict[int, _Knowledge] = {}  # by address
        self._settled: dict[int, _Knowledge] = {}  # what all threads of a block know
        self._learnt: dict[int, list[tuple[int, int, _Knowledge]]] = {}  # what one knows, since an interval
        self._fenced: dict[tuple[int, int], int] = {}
        self._seen: dict[tuple[int, int], list[_Knowledge]] = {}

    def fence(self, stamps: Ndarray) -> None:
        """Lanes order what they did before what they do behind."""
        for stamp in stamps.tolist():
            block, interval, thread = parts_of(stamp)
            self._fenced[block, thread] = interval
            for knowledge in self._seen.pop((block, thread), []):
                self._learn(block, interval, thread, knowledge)

    def touch(self, addresses: Ndarray, stamps: Ndarray, order: str, *, reads: bool, writes: bool) -> None:
        """Lanes read or write words atomically, one after another."""
        for address, stamp in zip(addresses.tolist(), stamps.tolist()):
            block, interval, thread = parts_of(stamp)
            found = self._published.get(address)
            if reads and found is not None:
                if order in _ACQUIRES:
                    self._learn(block, interval, thread, found.copy())
                else:
                    self._seen.setdefault((block, thread), []).append(found.copy())
            fenced = interval if order in _RELEASES else self._fenced.get((block, thread))
            if writes and fenced is not None:
                self._publish(address, block, fenced, thread)

    def _learn(self, block: int, interval: int, thread: int, knowledge: _Knowledge) -> None:
        """What a thread learns more than once before its next barrier is one piece."""
        pieces = self._learnt.setdefault(block, [])
        for at, by, known in pieces:
            if (at, by) == (interval, thread):
                known.add(knowledge)
                return
        pieces.append((interval, thread, knowledge))

    def _publish(self, address: int, block: int, interval: int, thread: int) -> None:
        word = self._published.setdefault(address, _Knowledge(self._blocks))
        for knowledge in self._visible(block, interval, thread):
            word.add(knowledge)
        word.publish(block, interval, thread)

    def _visible(self, block: int, interval: int, thread: int) -> list[_Knowledge]:
        """What a thread knows; what others of its block learnt before its last barrier is the block's from then on."""
        left: list[tuple[int, int, _Knowledge]] = []
        for piece in self._learnt.pop(block, []):
            if piece[0] < interval:
                self._settled.setdefault(block, _Knowledge(self._blocks)).add(piece[2])
            else:
                left.append(piece)
        if left:
            self._learnt[block] = left
        settled = self._settled.get(block)
        mine = [knowledge for at, by, knowledge in left if by == thread and at <= interval]
        return mine if settled is None else [settled, *mine]

    def know_all(self, stamps: Ndarray) -> bool:
        """Whether all blocks know of all that was done before the present intervals: a stamp for each block."""
        blocks, intervals, _ = parts_of(stamps)
        for block, interval in zip(blocks.tolist(), intervals.tolist()):
            self._visible(block, interval + 1, -1)
            settled = self._settled.get(block)
            if settled is None or (settled.until[blocks] + (blocks == block) < intervals).any():
                return False
        return True

    def have_ordered(self, before: Ndarray, now: Ndarray) -> Ndarray:
        """Of pairs of accesses by different blocks, which first ones are known to be done at the second."""
        blocks, intervals, _ = parts_of(before)
        mine, at, _ = parts_of(now)
        found = np.zeros(len(before), "?")
        for block in few(mine):
            chosen = np.flatnonzero(mine == block)
            self._visible(block, int(at[chosen].min()), -1)
            settled = self._settled.get(block)
            if settled is not None:
                are_several = blocks[chosen] == SEVERAL_BLOCKS
                until = settled.until[np.where(are_several, 0, blocks[chosen])]
                found[chosen] = are_several | (intervals[chosen] < until)
        for k in np.flatnonzero(~found).tolist():
            earlier, later = parts_of(int(before[k])), parts_of(int(now[k]))
            found[k] = any(knowledge.has(*earlier) for knowledge in self._visible(*later))
            if not found[k]:
                return found  # one is enough for a report
        return found
