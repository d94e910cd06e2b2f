"""Lives of temporaries: when each is written and read, and how many bytes are live at once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from autojit.core.sizes import typical
from autojit.ir.graph import Node, Value
from autojit.schedule.bands import Band
from autojit.schedule.batches import Batch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from autojit.schedule.kernels import Kernel
    from autojit.schedule.schedule import Schedule


class Lives:
    """When the kernels, bands and batches of a schedule write and read what is in its arenas.

    Times are places in ``planned.kernels``; open sizes count as typical ones.

    Attributes:
        made: value -> when its node runs; absent where readers compute it themselves.
        stored: what is in memory, temporary or not.
        first: temporary -> when it is written.
        reads: temporary -> when it is read, in order.
    """

    def __init__(self, planned: Schedule) -> None:
        self.planned = planned
        self.made: dict[Value, int] = {}
        self.stored: set[Value] = set()
        self.first: dict[Value, int] = {}
        self.reads: dict[Value, list[int]] = {}
        placed = planned.memory.offsets.keys() | planned.memory.region_of.keys() | planned.memory.aliases.keys()
        for time, item in enumerate(planned.kernels):
            for node in _nodes_of(item):
                self.made.update(dict.fromkeys(node.outputs, time))
            written = item.writes()
            self.stored.update(written)
            for value in written:
                if value in placed:
                    self.first.setdefault(value, time)
            for value in dict.fromkeys(item.reads()):
                if value in placed:
                    self.reads.setdefault(value, []).append(time)

    @cached_property
    def live_bytes(self) -> NDArray[np.int64]:
        """At every time, the bytes of what is live."""
        return self.total([(first, self.last(value), self.size(value)) for value, first in self.first.items()])

    @property
    def peak(self) -> int:
        """When most is live."""
        return int(self.live_bytes.argmax()) if len(self.live_bytes) else 0

    def total(self, ranges: Sequence[tuple[int, int, int]]) -> NDArray[np.int64]:
        """At every time, the sum of the sizes of (first time, last time, size)."""
        steps = np.zeros(len(self.planned.kernels) + 1, np.int64)
        for first, last, size_bytes in ranges:
            steps[first] += size_bytes
            steps[last + 1] -= size_bytes
        return np.cumsum(steps)[:-1]

    def size(self, value: Value) -> int:
        """Its bytes."""
        return int(typical(value.type.size_bytes))

    def last(self, value: Value) -> int:
        """When it is used for the last time."""
        reads = self.reads.get(value)
        return max(self.first[value], reads[-1]) if reads else self.first[value]

    def last_until(self, value: Value, time: int) -> int:
        """When it is used for the last time up to then."""
        reads = self.reads.get(value, [])
        place = bisect_right(reads, time)
        return max(self.first[value], reads[place - 1]) if place else self.first[value]

    def next_read(self, value: Value, time: int) -> int | None:
        """When it is read for the first time after that."""
        reads = self.reads.get(value, [])
        place = bisect_right(reads, time)
        return reads[place] if place < len(reads) else None


def _nodes_of(item: Kernel | Band | Batch) -> list[Node]:
    if isinstance(item, Band | Batch):
        return [node for kernel in item.kernels for node in kernel.nodes]
    return list(item.nodes)
