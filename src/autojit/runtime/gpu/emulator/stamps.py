"""Who touches a byte, and when, in one number: launch, block, interval between barriers, thread.

Two lanes of a block are ordered if a barrier of the block is between them, two of a warp also if one of the warp is;
lanes of different blocks only by what `synchronisation` sees. A stamp may also stand for several readers: "several
lanes of a warp", "several of a block", "several blocks". Stamps of earlier launches are smaller than those of this one.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from autojit.ir.op import Ndarray

_THREAD_BITS, _WARP_BITS, _INTERVAL_BITS, _BLOCK_BITS = 11, 6, 18, 15
_WARP_SHIFT = _THREAD_BITS
_INTERVAL_SHIFT = _WARP_SHIFT + _WARP_BITS
_BLOCK_SHIFT = _INTERVAL_SHIFT + _INTERVAL_BITS
_ATOMIC_SHIFT = _BLOCK_SHIFT + _BLOCK_BITS
_LAUNCH_SHIFT = _ATOMIC_SHIFT + 1

ATOMIC = np.int64(1 << _ATOMIC_SHIFT)
"""Set where the access was atomic: two of these are never a race."""

MOST_LAUNCHES = (1 << (63 - _LAUNCH_SHIFT)) - 1
"""After this many, the tables are cleared and the numbers begin again."""

_THREADS = (1 << _THREAD_BITS) - 1
_INTERVALS = (1 << _INTERVAL_BITS) - 1
_TURNS = (1 << _WARP_BITS) - 1
SEVERAL_BLOCKS = (1 << _BLOCK_BITS) - 1
_READ_ONLY = SEVERAL_BLOCKS - 1
MOST_BLOCKS = _READ_ONLY
"""Blocks are told apart modulo this number."""
_SEVERAL_OF_BLOCK = _THREADS
_SEVERAL_OF_WARP = 1 << (_THREAD_BITS - 1)
"""Plus the warp's number; single threads are below."""

_LANE_BITS = 5  # of a lane within its warp


def launch_stamp(launch: int) -> int:
    """The least stamp of a launch."""
    return launch << _LAUNCH_SHIFT


def stamps_of(least: int, blocks: Ndarray, threads: Ndarray) -> Ndarray:
    """Of lanes that begin."""
    result: Ndarray = (least | ((blocks % _READ_ONLY) << _BLOCK_SHIFT) | threads).astype("i8")
    return result


def read_only(stamps: Ndarray) -> Ndarray:
    """Of reads through the read-only path: whoever writes there in the same launch, it is wrong."""
    return (stamps & ~np.int64((SEVERAL_BLOCKS << _BLOCK_SHIFT) | _THREADS)) | np.int64(_READ_ONLY << _BLOCK_SHIFT)


def next_interval(stamps: Ndarray, blocks: Ndarray) -> Ndarray:
    """Behind a barrier of the block: later than all that its threads, those with its number, did before."""
    mask = np.int64(_INTERVALS)
    latest = np.zeros(int(blocks.max()) + 1, "i8")
    np.maximum.at(latest, blocks, (stamps >> _INTERVAL_SHIFT) & mask)
    field = ((latest[blocks] + 1) & mask) << _INTERVAL_SHIFT
    result: Ndarray = (stamps & ~(mask << _INTERVAL_SHIFT)) | field
    return result


def next_warp_interval(stamps: Ndarray) -> Ndarray:
    """Behind a barrier of the warp."""
    return _counted(stamps, _WARP_SHIFT, _TURNS)


def _counted(stamps: Ndarray, shift: int, most: int) -> Ndarray:
    field = np.int64(most << shift)
    result: Ndarray = (stamps & ~field) | ((stamps + np.int64(1 << shift)) & field)
    return result


_Stamps = TypeVar("_Stamps", int, Ndarray)


def parts_of(stamp: _Stamps) -> tuple[_Stamps, _Stamps, _Stamps]:
    """Block, interval and thread."""
    return (stamp >> _BLOCK_SHIFT) & SEVERAL_BLOCKS, (stamp >> _INTERVAL_SHIFT) & _INTERVALS, stamp & _THREADS


def is_read_only(stamp: int) -> bool:
    """Whether it is of a read through the read-only path."""
    return parts_of(stamp)[0] == _READ_ONLY


def in_words(stamp: int) -> str:
    """Who."""
    block, _, thread = parts_of(stamp)
    if block == SEVERAL_BLOCKS:
        return "threads of several blocks"
    if block == _READ_ONLY:
        return "a thread that promises that it is only read"
    if thread >= _SEVERAL_OF_WARP:
        return f"several threads of block {block}"
    return f"thread {thread} of block {block}"


_LANES = np.arange(_SEVERAL_OF_WARP)
_WARPS = np.concatenate([_LANES >> _LANE_BITS, _LANES[:-1], [-1]])
"""A warp's number, of a lane and of "several of a warp"; -1 for "several of a block"."""


def _warp(stamps: Ndarray) -> Ndarray:
    return _WARPS.take(stamps & _THREADS)


def _are_of_other_blocks(before: Ndarray, now: Ndarray) -> Ndarray:
    """Which pairs are of two blocks."""
    result: Ndarray = (before ^ now) & (SEVERAL_BLOCKS << _BLOCK_SHIFT) != 0
    return result


def unordered(before: Ndarray, now: Ndarray) -> Ndarray:
    """Which pairs of one launch no barrier orders; ``now`` are single lanes."""
    differ = before ^ now
    is_open = (differ & (_INTERVALS << _INTERVAL_SHIFT) == 0) & (differ & _THREADS != 0)
    is_other_turn = differ & (_TURNS << _WARP_SHIFT) != 0
    if (is_open & is_other_turn).any():  # rarely: most lanes meet behind a barrier of their block
        is_open &= ~(is_other_turn & (_warp(before) == _warp(now)))
    result: Ndarray = is_open | _are_of_other_blocks(before, now)
    return result


def joined(before: Ndarray, now: Ndarray) -> Ndarray:
    """The stamp for the readers of both, ``now`` being the later one; of several such, the largest says most."""
    are_atomic = before & now & ATOMIC
    now = now & ~ATOMIC
    threads, others = now & _THREADS, before & _THREADS
    is_same_warp = _warp(before) == _warp(now)
    together = np.where(is_same_warp, _SEVERAL_OF_WARP + (threads >> _LANE_BITS), _SEVERAL_OF_BLOCK)
    several = (now & ~np.int64(_THREADS)) | together
    differ = before ^ now
    is_other_turn = is_same_warp & (differ & (_TURNS << _WARP_SHIFT) != 0)
    is_later = (differ & (_INTERVALS << _INTERVAL_SHIFT) != 0) | is_other_turn
    inside = np.where(is_later | (others == threads), now, several)
    all_blocks = now | np.int64((SEVERAL_BLOCKS << _BLOCK_SHIFT) | _SEVERAL_OF_BLOCK)
    result: Ndarray = np.where(_are_of_other_blocks(before, now), all_blocks, inside) | are_atomic
    return result
