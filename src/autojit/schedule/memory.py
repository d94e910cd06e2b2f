"""The memory plan: a fixed offset in one arena for every temporary, known before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from autojit.ir.graph import Graph, Value

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Item(Protocol):
    """A kernel or a band."""

    def reads(self) -> list[Value]: ...
    def writes(self) -> list[Value]: ...


ALIGNMENT = 64  # bytes: a cache line and the widest vector


@dataclass(frozen=True)
class MemoryPlan:
    """``offsets`` of temporaries in the arena, in bytes; ``arena_bytes`` is its size: the step's peak of temporaries.

    ``aliases``: values that lie in the memory of another, because a kernel turns them into it in place.
    """

    offsets: dict[Value, int]
    arena_bytes: int
    aliases: dict[Value, Value]

    def home(self, value: Value) -> Value:
        """The value whose memory holds ``value``."""
        while value in self.aliases:
            value = self.aliases[value]
        return value


@dataclass(frozen=True)
class _Block:
    value: Value
    first: int
    last: int
    size_bytes: int


def plan_memory(
    graph: Graph, kernels: Sequence[Item], outputs: Sequence[Value], overwriting: AbstractSet[Value] = frozenset()
) -> MemoryPlan:
    """First fit over live ranges, largest first. O(temporaries^2), 20 ns each.

    ``overwriting`` are outputs that take an input's memory, which may still be read before they are written.
    """
    outside = {*graph.inputs, *outputs}
    first: dict[Value, int] = {}
    last: dict[Value, int] = {}
    for time, kernel in enumerate(kernels):
        for value in kernel.writes():
            first.setdefault(value, time)
            last[value] = time
        for value in kernel.reads():
            last[value] = time
    aliases = _in_place(kernels, first, last, outside, overwriting)
    blocks = [
        _Block(v, first[v], last[v], aligned(v.type.size_bytes)) for v in first if v not in outside and v not in aliases
    ]
    return _place(blocks, aliases)


def _in_place(
    kernels: Sequence[Item],
    first: dict[Value, int],
    last: dict[Value, int],
    outside: AbstractSet[Value],
    overwriting: AbstractSet[Value],
) -> dict[Value, Value]:
    """Results that take over the memory of a temporary read for the last time; their live ranges join."""
    aliases: dict[Value, Value] = {}
    for time in range(len(kernels) - 1, -1, -1):
        change = getattr(kernels[time], "in_place", lambda: None)()
        if change is None:
            continue
        before, after = change
        if before in outside or before not in first or last[before] != time or after in overwriting:
            continue
        if before.type != after.type or first[after] != time:
            continue
        aliases[before] = after
        home = after
        while home in aliases:
            home = aliases[home]
        first[home] = min(first[home], first[before])
    return aliases


def _place(blocks: list[_Block], aliases: dict[Value, Value]) -> MemoryPlan:
    """The lowest gap that is free over a block's life, largest blocks first.

    The placed blocks stand in the columns of ``placed`` by their offsets: offset, end, first and last time.
    """
    placed = np.zeros((4, len(blocks)), np.int64)
    offsets: dict[Value, int] = {}
    for count, block in enumerate(sorted(blocks, key=lambda b: (-b.size_bytes, b.first))):
        start, end, first, last = placed[:, :count]
        offset = _lowest_gap(start, end, (first <= block.last) & (last >= block.first), block.size_bytes)
        offsets[block.value] = offset
        place = int(np.searchsorted(start, offset, "right"))
        placed[:, place + 1 : count + 1] = placed[:, place:count]
        placed[:, place] = (offset, offset + block.size_bytes, block.first, block.last)
    return MemoryPlan(offsets, int(placed[1].max(initial=0)), aliases)


def _lowest_gap(start: NDArray[np.int64], end: NDArray[np.int64], taken: NDArray[np.bool_], size_bytes: int) -> int:
    """The lowest offset where ``size_bytes`` fit between the blocks that are ``taken``, which are sorted by start."""
    start, end = start[taken], end[taken]
    reached = np.zeros(len(start) + 1, np.int64)  # the end of all blocks before each
    np.maximum.accumulate(end, out=reached[1:])
    fits = reached[:-1] + size_bytes <= start
    return int(reached[fits.argmax()] if fits.any() else reached[-1])


def aligned(size_bytes: int) -> int:
    """Rounded up to whole cache lines; an empty buffer still has an address."""
    return max(ALIGNMENT, -(-size_bytes // ALIGNMENT) * ALIGNMENT)
