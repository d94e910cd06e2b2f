"""The memory plan: a fixed offset in one arena for every temporary, known before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from autojit.core.device import Device
from autojit.core.machine import Machine
from autojit.core.records import record
from autojit.core.sizes import is_symbolic, surely_less, typical
from autojit.ir.graph import Graph, Value
from autojit.schedule.counts import Bounds, count_bounds, late_sizes, upper_bound

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Item(Protocol):
    """A kernel or a band."""

    def reads(self) -> list[Value]: ...
    def writes(self) -> list[Value]: ...


@record
class MemoryPlan:
    """``offsets`` of temporaries in the arena of their device, in bytes; ``arenas``: the sizes of the arenas.

    ``aliases``: values that share the memory of another, because a kernel turns them into it in place. Temporaries of
    symbolic size are not in the arena but in one of the ``regions``, which follow each other and are as long as a call
    needs.
    """

    offsets: dict[Value, int]
    arenas: dict[Device, int]
    aliases: dict[Value, Value]
    machine: Machine
    regions: tuple[int, ...] = ()  # sizes in bytes
    region_of: dict[Value, int] = field(default_factory=dict)

    @property
    def arena_bytes(self) -> int:
        """The step's peak of temporaries of fixed size, on all devices."""
        return sum(self.arenas.values())

    @property
    def peak_bytes(self) -> int:
        """Memory of all temporaries, a symbolic size where their sizes are."""
        return self.arena_bytes + sum(map(self.machine.aligned, self.regions))

    def home(self, value: Value) -> Value:
        """The value whose memory holds ``value``."""
        while value in self.aliases:
            value = self.aliases[value]
        return value


@record
class _Block:
    value: Value
    first: int
    last: int
    size_bytes: int


def plan_memory(
    graph: Graph,
    kernels: Sequence[Item],
    outputs: Sequence[Value],
    overwriting: AbstractSet[Value],
    machine: Machine,
) -> MemoryPlan:
    """First fit over live ranges, largest first. O(temporaries^2), 20 ns each.

    ``overwriting`` are outputs that take an input's memory, which may still be read before they are written.
    """
    bounds = count_bounds(graph)
    late = {v for v in outputs if is_late(v, bounds)}
    outside = {*graph.inputs, *outputs} - late
    first: dict[Value, int] = {}
    last: dict[Value, int] = {}
    for time, kernel in enumerate(kernels):
        for value in kernel.writes():
            first.setdefault(value, time)
            last[value] = time
        for value in kernel.reads():
            last[value] = time
    last.update(dict.fromkeys(late, len(kernels)))  # the caller copies them when the step is done
    aliases = _in_place(kernels, first, last, outside, overwriting)
    blocks = [
        _Block(v, first[v], last[v], machine.aligned(upper_bound(v.type.size_bytes, bounds)))
        for v in first
        if v not in outside and v not in aliases
    ]
    fixed = [block for block in blocks if not is_symbolic(block.size_bytes)]
    offsets: dict[Value, int] = {}
    arenas: dict[Device, int] = {}
    for device in dict.fromkeys(block.value.type.device for block in fixed):
        placed, arenas[device] = _place([block for block in fixed if block.value.type.device == device])
        offsets.update(placed)
    regions, region_of = _share_regions([block for block in blocks if is_symbolic(block.size_bytes)], bounds)
    return MemoryPlan(offsets, arenas, aliases, machine, regions, region_of)


def is_late(value: Value, bounds: Bounds) -> bool:
    """Whether memory for a result can be had only when the step has counted its size: the caller then copies it."""
    return bool(late_sizes(upper_bound(value.type.size_bytes, bounds), bounds))


def _share_regions(blocks: list[_Block], bounds: Bounds) -> tuple[tuple[int, ...], dict[Value, int]]:
    """Blocks of symbolic size, large ones first, each in the first region long enough and free over its life.

    A region exists once its size is known, so its blocks depend on the same late sizes.
    """
    sizes: list[int] = []
    members: list[list[_Block]] = []
    region_of: dict[Value, int] = {}
    for block in sorted(blocks, key=lambda b: (-typical(b.size_bytes), b.first)):
        for place, others in enumerate(members):
            is_free = all(block.last < other.first or other.last < block.first for other in others)
            is_there = late_sizes(block.size_bytes, bounds) == late_sizes(sizes[place], bounds)
            is_there = is_there and others[0].value.type.device == block.value.type.device
            if is_free and is_there and surely_less(block.size_bytes - 1, sizes[place]):
                break
        else:
            place = len(sizes)
            sizes.append(block.size_bytes)
            members.append([])
        members[place].append(block)
        region_of[block.value] = place
    return tuple(sizes), region_of


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
        # Memory of the caller is not overwritten, nor what is read again; a result in an input's memory has its place.
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


def _place(blocks: list[_Block]) -> tuple[dict[Value, int], int]:
    """(offsets, size of the arena): the lowest gap that is free over a block's life, largest blocks first.

    The placed blocks are in the columns of ``placed`` by their offsets: offset, end, first and last time.
    """
    # Over the 29 steps of tools/schedule_bounds.py the arenas together are 0.1 % larger than what is live at once, the
    # least possible: 20 of them are exact, the worst is 7 % above. Placed in the order of first use: 1.3 % larger.
    placed = np.zeros((4, len(blocks)), np.int64)
    offsets: dict[Value, int] = {}
    for count, block in enumerate(sorted(blocks, key=lambda b: (-b.size_bytes, b.first))):
        start, end, first, last = placed[:, :count]
        offset = _lowest_gap(start, end, (first <= block.last) & (last >= block.first), block.size_bytes)
        offsets[block.value] = offset
        place = int(np.searchsorted(start, offset, "right"))
        placed[:, place + 1 : count + 1] = placed[:, place:count]
        placed[:, place] = (offset, offset + block.size_bytes, block.first, block.last)
    return offsets, int(placed[1].max(initial=0))


def _lowest_gap(start: NDArray[np.int64], end: NDArray[np.int64], taken: NDArray[np.bool_], size_bytes: int) -> int:
    """The lowest offset where ``size_bytes`` fit between the blocks that are ``taken``, which are sorted by start."""
    start, end = start[taken], end[taken]
    reached = np.zeros(len(start) + 1, np.int64)  # the end of all blocks before each
    np.maximum.accumulate(end, out=reached[1:])
    fits = reached[:-1] + size_bytes <= start
    return int(reached[fits.argmax()] if fits.any() else reached[-1])
