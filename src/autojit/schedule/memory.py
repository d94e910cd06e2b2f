"""The memory plan: a fixed offset in one arena for every temporary, known before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from autojit.ir.graph import Graph, Value


class Item(Protocol):
    """A kernel or a band."""

    def reads(self) -> list[Value]: ...
    def writes(self) -> list[Value]: ...


ALIGNMENT = 64  # bytes: a cache line and the widest vector


@dataclass(frozen=True)
class MemoryPlan:
    """``offsets`` of temporaries in the arena, in bytes; ``arena_bytes``, its size, is the peak of temporaries."""

    offsets: dict[Value, int]
    arena_bytes: int


@dataclass(frozen=True)
class _Block:
    value: Value
    first: int
    last: int
    size_bytes: int


def plan_memory(graph: Graph, kernels: Sequence[Item], outputs: Sequence[Value]) -> MemoryPlan:
    """First fit over live ranges, largest first. O(temporaries^2) in the worst case, on a few hundred."""
    outside = {*graph.inputs, *outputs}
    first: dict[Value, int] = {}
    last: dict[Value, int] = {}
    for time, kernel in enumerate(kernels):
        for value in kernel.writes():
            first.setdefault(value, time)
            last[value] = time
        for value in kernel.reads():
            last[value] = time
    blocks = [_Block(v, first[v], last[v], aligned(v.type.size_bytes)) for v in first if v not in outside]
    return _place(blocks)


def _place(blocks: list[_Block]) -> MemoryPlan:
    placed: list[tuple[int, _Block]] = []
    offsets: dict[Value, int] = {}
    total = 0
    for block in sorted(blocks, key=lambda b: (-b.size_bytes, b.first)):
        offset = 0
        for start, other in placed:
            if other.last < block.first or block.last < other.first:
                continue
            if offset + block.size_bytes <= start:
                break
            offset = max(offset, start + other.size_bytes)
        offsets[block.value] = offset
        placed.append((offset, block))
        placed.sort(key=lambda p: p[0])
        total = max(total, offset + block.size_bytes)
    return MemoryPlan(offsets, total)


def aligned(size_bytes: int) -> int:
    """Rounded up to whole cache lines; an empty buffer still has an address."""
    return max(ALIGNMENT, -(-size_bytes // ALIGNMENT) * ALIGNMENT)
