"""``cp.async``: copies from global to shared memory that are there when their group was waited for, and not before.

A lane puts copies in groups and waits until all but the latest of its groups have landed. Until then the target counts
as not written; afterwards it counts as written by that lane, so that others need a barrier to read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from autojit.ir.op import Ndarray
from autojit.runtime.gpu.emulator.spaces import ALL_ALLOCATED, ALL_READABLE, SHIFTS

if TYPE_CHECKING:
    from autojit.runtime.gpu.emulator.lane_memory import LaneMemory, Lanes


class _Copy:
    """One instruction's copies that are on their way: ``taken`` bytes each from ``source``, then zeros."""

    __slots__ = ("addresses", "groups", "instruction", "lanes", "size", "source", "taken", "target")

    def __init__(self, size: int, instruction: int, *arrays: Ndarray) -> None:
        self.size, self.instruction = size, instruction
        self.lanes, self.groups, self.addresses, self.target, self.source, self.taken = arrays

    def part(self, chosen: Ndarray) -> _Copy:
        """Those of some lanes alone."""
        arrays = (self.lanes, self.groups, self.addresses, self.target, self.source, self.taken)
        return _Copy(self.size, self.instruction, *(array[chosen] for array in arrays))


class AsyncCopies:
    """The copies of one wave."""

    def __init__(self, memory: LaneMemory, lanes: int) -> None:
        self._memory = memory
        self._waiting: list[_Copy] = []
        self._groups = np.zeros(lanes, "i8")  # that each lane has ended

    def start(
        self, lanes: Lanes, target: Ndarray, source: Ndarray, size: int, filled: Ndarray | None, instruction: int
    ) -> None:
        """Begin to copy ``size`` bytes each; those from ``filled`` on become zero."""
        memory, who = self._memory, lanes.numbers
        target, source = lanes.chosen(target), lanes.chosen(source)
        taken = np.full(len(who), size) if filled is None else lanes.chosen(filled).astype("i8")
        shared, place = memory.positions("shared", target, who, size)
        rows = memory.check(shared, target, place, who, size, instruction, "store")
        memory.note(shared, target, rows, size, who, instruction, "", reads=False)
        shared.states(size)[rows] = ALL_ALLOCATED[min(size, 8)]
        reading = np.flatnonzero(taken > 0)
        world, begin = memory.positions("global", source, who, size)
        if len(reading):
            at, readers = source[reading], who[reading]
            there = memory.check(world, at, begin[reading], readers, size, instruction, "load")
            memory.note(world, at, there, size, readers, instruction, "", writes=False)
        self._waiting.append(_Copy(size, instruction, who, self._groups[who], target, place, begin, taken))

    def commit(self, ix: Ndarray | None) -> None:
        """End a group."""
        self._groups[slice(None) if ix is None else ix] += 1

    def wait(self, ix: Ndarray | None, left: int) -> None:
        """Let all groups land but this many of the latest."""
        if not self._waiting:
            return
        landed = np.full(len(self._groups), -1)
        who: slice | Ndarray = slice(None) if ix is None else ix
        landed[who] = self._groups[who] - left
        waiting: list[_Copy] = []
        for copy in self._waiting:
            is_due = copy.groups < landed[copy.lanes]
            if is_due.any():
                self._land(copy.part(is_due))
            if not is_due.all():
                waiting.append(copy.part(~is_due))
        self._waiting = waiting

    def _land(self, copy: _Copy) -> None:
        shared, world = self._memory.shared, self._memory.global_space
        offsets = np.arange(copy.size)
        is_taken = offsets < copy.taken[:, None]
        source = np.where(is_taken, copy.source[:, None] + offsets, 0)
        shared.content[copy.target[:, None] + offsets] = np.where(is_taken, world.content[source], np.uint8(0))
        rows = copy.target >> SHIFTS[copy.size]
        shared.states(copy.size)[rows] = ALL_READABLE[min(copy.size, 8)]
        self._memory.note(shared, copy.addresses, rows, copy.size, copy.lanes, copy.instruction, "", reads=False)
