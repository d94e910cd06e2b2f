"""Ranges of addresses: whether memory that a step writes may be memory that something else shows."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

import numpy as np

from autojit.core.device_array import Array, layout_in_memory

Range = tuple[int, int]
"""The first byte and the byte after the last."""


def range_of(array: Array) -> Range:
    """The addresses between which an array's elements are; (0, 0) without elements."""
    if not array.size:
        return 0, 0
    array = layout_in_memory(array)
    if array.flags.c_contiguous:
        low: int = array.__array_interface__["data"][0]
        return low, low + array.nbytes
    first, last = np.lib.array_utils.byte_bounds(array)
    return int(first), int(last)


class MemoryRanges:
    """The addresses of several arrays, as sorted ranges that do not meet."""

    def __init__(self, arrays: Iterable[Array]) -> None:
        self.ranges: list[Range] = []
        for low, high in sorted(range_of(array) for array in arrays):
            if self.ranges and low < self.ranges[-1][1]:
                before, end = self.ranges[-1]
                self.ranges[-1] = before, max(end, high)
            elif low < high:
                self.ranges.append((low, high))
        self._lows = [low for low, _ in self.ranges]

    def meet(self, other: Range) -> bool:
        """Whether a range has an address in common with them. Time O(log n)."""
        low, high = other
        place = bisect_left(self._lows, high) - 1  # the last that begins before the range ends
        return low < high and place >= 0 and self.ranges[place][1] > low
