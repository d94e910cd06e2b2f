"""Who touched each byte last: the races of a launch, by the intervals between barriers.

A stamp says which lane of which launch it was, and in which interval: that of its block, which a barrier ends, and that
of its warp. Two lanes of a block are ordered if their intervals differ, lanes of different blocks never are. A table
keeps the last writer and the last reader of each byte; a reader may also be "several lanes of a warp", "of a block",
or "several blocks". Stamps of earlier launches are smaller than those of this one, so nothing is cleared in between.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from autojit.ir.op import Ndarray

THREAD_BITS, WARP_BITS, INTERVAL_BITS, BLOCK_BITS = 11, 5, 10, 24
WARP_SHIFT = THREAD_BITS
INTERVAL_SHIFT = WARP_SHIFT + WARP_BITS
BLOCK_SHIFT = INTERVAL_SHIFT + INTERVAL_BITS
LAUNCH_SHIFT = BLOCK_SHIFT + BLOCK_BITS
MOST_LAUNCHES = (1 << (63 - LAUNCH_SHIFT)) - 1
"""After this many, the tables are cleared and the numbers begin again."""

_THREADS = (1 << THREAD_BITS) - 1
SEVERAL_BLOCKS = (1 << BLOCK_BITS) - 1
_SEVERAL_OF_BLOCK = _THREADS
_SEVERAL_OF_WARP = 1 << (THREAD_BITS - 1)  # plus the warp's number; threads are below
_LANES = 5  # bits of a lane within its warp

RaceKind = Literal["race within a block", "race between blocks"]


def launch_stamp(launch: int) -> int:
    """The least stamp of a launch."""
    return launch << LAUNCH_SHIFT


def next_interval(stamps: Ndarray) -> Ndarray:
    """Stamps behind a barrier of the block."""
    field = np.int64(((1 << INTERVAL_BITS) - 1) << INTERVAL_SHIFT)
    return (stamps & ~field) | ((stamps + np.int64(1 << INTERVAL_SHIFT)) & field)


def next_warp_interval(stamps: Ndarray) -> Ndarray:
    """Stamps behind a barrier of the warp."""
    field = np.int64(((1 << WARP_BITS) - 1) << WARP_SHIFT)
    return (stamps & ~field) | ((stamps + np.int64(1 << WARP_SHIFT)) & field)


def block_of(stamp: Ndarray) -> Ndarray:
    """Which block."""
    return (stamp >> BLOCK_SHIFT) & SEVERAL_BLOCKS


def thread_of(stamp: int) -> str:
    """Who, in words."""
    thread, block = stamp & _THREADS, (stamp >> BLOCK_SHIFT) & SEVERAL_BLOCKS
    if block == SEVERAL_BLOCKS:
        return "threads of several blocks"
    if thread >= _SEVERAL_OF_WARP:
        return f"several threads of block {block}"
    return f"thread {thread} of block {block}"


def _warp(thread: Ndarray) -> Ndarray:
    """A warp's number, from a lane or from "several of a warp"; -1 for "several of a block"."""
    found = np.where(thread >= _SEVERAL_OF_WARP, thread - _SEVERAL_OF_WARP, thread >> _LANES)
    return np.where(thread == _SEVERAL_OF_BLOCK, -1, found)


def _unordered(before: Ndarray, now: Ndarray) -> Ndarray:
    """Which pairs of stamps of one launch nothing orders; ``now`` are single lanes."""
    differ = before ^ now
    is_other_block = (differ >> BLOCK_SHIFT) & SEVERAL_BLOCKS != 0
    is_other_interval = (differ >> INTERVAL_SHIFT) & ((1 << INTERVAL_BITS) - 1) != 0
    is_other_turn = (differ >> WARP_SHIFT) & ((1 << WARP_BITS) - 1) != 0
    is_other_thread = differ & _THREADS != 0
    is_same_warp = _warp(before & _THREADS) == _warp(now & _THREADS)
    is_open_inside = ~is_other_interval & is_other_thread & ~(is_same_warp & is_other_turn)
    return np.where(is_other_block, True, is_open_inside)


def _joined(before: Ndarray, now: Ndarray) -> Ndarray:
    """The stamp for the readers of both, ``now`` being in the later interval; the larger stamp says more."""
    threads, others = now & _THREADS, before & _THREADS
    is_same_warp = _warp(others) == _warp(threads)
    together = np.where(is_same_warp, _SEVERAL_OF_WARP + (threads >> _LANES), _SEVERAL_OF_BLOCK)
    several = (now & ~np.int64(_THREADS)) | together
    intervals = ((1 << INTERVAL_BITS) - 1) << INTERVAL_SHIFT
    turns = ((1 << WARP_BITS) - 1) << WARP_SHIFT
    is_later = ((before ^ now) & intervals != 0) | (is_same_warp & ((before ^ now) & turns != 0))
    inside = np.where(is_later | (others == threads), now, several)
    is_other_block = block_of(before) != block_of(now)
    all_blocks = now | np.int64((SEVERAL_BLOCKS << BLOCK_SHIFT) | _SEVERAL_OF_BLOCK)
    return np.where(is_other_block, all_blocks, inside)


class Conflict(Exception):
    """Two lanes that nothing orders touch a byte, and one of them writes."""

    def __init__(self, position: int, before: int, now: int, is_read_now: bool, was_read: bool) -> None:
        self.position = position
        is_inside = (before ^ now) >> BLOCK_SHIFT & SEVERAL_BLOCKS == 0
        self.kind: RaceKind = "race within a block" if is_inside else "race between blocks"
        what = f"{'reads' if is_read_now else 'writes'} what {thread_of(before)} {'read' if was_read else 'wrote'}"
        super().__init__(f"{thread_of(now)} {what}, and nothing orders the two")


class AccessTable:
    """The last writer and reader of each byte of a memory.

    Args:
        writers: a table of zeros, a word of 64 bits for each byte.
        readers: another.
    """

    def __init__(self, writers: Ndarray, readers: Ndarray) -> None:
        self._writers = {size: writers.reshape(-1, size) for size in (1, 2, 4, 8, 16, 32) if len(writers) % size == 0}
        self._readers = {size: readers.reshape(-1, size) for size in (1, 2, 4, 8, 16, 32) if len(readers) % size == 0}

    def read(self, rows: Ndarray, size: int, stamps: Ndarray, least: int) -> None:
        """Lanes read aligned pieces of ``size`` bytes, one row of the table each.

        Raises:
            Conflict: another lane wrote one of the bytes.
        """
        written = self._writers[size][rows]
        if written.max() >= least:
            self._compare(written, stamps, least, is_read_now=True, was_read=False)
        table = self._readers[size]
        before = table[rows]
        now = stamps[:, None]
        if before.max() >= least:
            is_mixed = (before >= least) & (before != now)
            if is_mixed.any():
                now = np.where(is_mixed, _joined(before, now), now)
        table[rows] = now
        first = table[rows, 0]
        behind = np.flatnonzero(first != now[:, 0])
        if len(behind):  # several lanes read one place at once
            joined = _joined(first[behind], stamps[behind])
            order = np.argsort(joined)
            table[rows[behind[order]]] = joined[order, None]

    def write(self, rows: Ndarray, size: int, stamps: Ndarray, least: int) -> None:
        """Lanes write, likewise.

        Raises:
            Conflict: another lane wrote or read one of the bytes, or does so in the same instruction.
        """
        table = self._writers[size]
        for before, was_read in ((table[rows], False), (self._readers[size][rows], True)):
            if before.max() >= least:
                self._compare(before, stamps, least, is_read_now=False, was_read=was_read)
        table[rows] = stamps[:, None]
        first = table[rows, 0]
        if not np.array_equal(first, stamps):
            position = int(np.flatnonzero(first != stamps)[0])
            raise Conflict(position, int(first[position]), int(stamps[position]), False, False)

    def _compare(self, before: Ndarray, stamps: Ndarray, least: int, *, is_read_now: bool, was_read: bool) -> None:
        now = stamps[:, None]
        found = (before >= least) & (before != now)
        if not found.any():
            return
        found &= _unordered(before, now)
        if found.any():
            position, byte = (int(k) for k in np.argwhere(found)[0])
            raise Conflict(position, int(before[position, byte]), int(stamps[position]), is_read_now, was_read)
