"""A launch of a run: one kernel, or several that share it, with what the driver is passed."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from math import prod

import numpy as np

from autojit.codegen.cuda.early_start import Start
from autojit.codegen.cuda.entry_point import entry_text
from autojit.codegen.cuda.host_records import ALONE, TOGETHER, LaunchWords
from autojit.codegen.cuda.joined_entry import joined_text, shared_bytes
from autojit.codegen.cuda.joined_plan import JoinedGrid, PartFacts, alone, plan_launches
from autojit.core.sizes import is_symbolic, typical
from autojit.ir.concrete import concrete
from autojit.ir.graph import Node
from autojit.runtime.gpu.bound_kernel import BoundKernel
from autojit.runtime.gpu.devices import Joins
from autojit.runtime.gpu.driver import KernelNode
from autojit.runtime.gpu.moving import WORD_BYTES
from autojit.runtime.gpu.order import Access, Order, Touched
from autojit.runtime.gpu.run_memory import RunMemory
from autojit.runtime.gpu.works import Work

_GRID = LaunchWords.blocks_x, LaunchWords.blocks_y, LaunchWords.blocks_z


def plan_grids(
    works: Sequence[Work],
    footprints: Sequence[Sequence[Access]],
    parameters: Sequence[tuple[Hashable, ...]],
    processors: int,
    *,
    joins: Joins,
) -> list[JoinedGrid]:
    """The launches of a run.

    Args:
        works: its kernels.
        footprints: the memory that each touches.
        parameters: the keys of each one's parameters (`bound_kernel.parameter_keys`).
        processors: of the device.
        joins: which kernels share launches.
    """
    facts = [_facts(work, keys) for work, keys in zip(works, parameters, strict=True)]
    if joins == "apart":
        return alone(facts)
    return plan_launches(facts, Order(footprints).after, processors, meets=joins == "together")


def _facts(work: Work, parameters: tuple[Hashable, ...]) -> PartFacts:
    kernel = work.widest
    shared = shared_bytes(kernel) or int("@meet(" in kernel.text)
    blocks = prod(kernel.blocks)
    return PartFacts(kernel.threads, typical(blocks), shared, parameters, is_symbolic(blocks), kernel.tells)


class BoundLaunch:
    """See the module.

    Args:
        memory: that of the run.
        kernels: of the run, all of them.
        grid: which of them it launches, and how.
    """

    def __init__(self, memory: RunMemory, kernels: Sequence[BoundKernel], grid: JoinedGrid) -> None:
        self.grid = grid
        self.kernels = [kernels[part.number] for part in grid.parts]
        self.function = 0
        self._meeting = memory.meeting_word() if grid.meets else None
        self._memory = memory
        self._word = np.array([0 if self._meeting is None else self._meeting.address], np.uint64)
        pointers = list(self._parameters())
        if self._meeting is not None:
            pointers.append(int(self._word.__array_interface__["data"][0]))
        self._pointers = np.array([*pointers, 0], np.uint64)
        self.parameters = int(self._pointers.__array_interface__["data"][0])
        self._blocks = self.kernels[0].kernel.blocks if grid.is_alone else (grid.blocks, 1, 1)

    def _parameters(self) -> Iterator[int]:
        """Where the words of the parameters are: as `joined_entry` lists them, each once if parts have an order."""
        known: set[Hashable] = set()
        for kernel in self.kernels:
            for word, key in zip(kernel.parameters, kernel.keys, strict=True):
                if self.grid.has_order and key is not None and key in known:
                    continue
                known.add(key)
                yield word

    @property
    def label(self) -> str:
        """Its name for users."""
        return "; ".join(kernel.work.label for kernel in self.kernels)

    def lines(self) -> list[str]:
        """What it is, for users: a line for each kernel, and one for a launch that several share."""
        rows = [f"{kernel.work.label}: {_extent(kernel)}" for kernel in self.kernels]
        if self.grid.is_alone:
            return rows
        grid = self.grid
        meeting = f", {grid.phases} phases" if grid.phases > 1 else ""
        head = f"one launch, {grid.blocks} x {grid.threads}{meeting}"
        return [head, *(f"  {part.phase}  {row}" for part, row in zip(grid.parts, rows, strict=True))]

    @property
    def nodes(self) -> tuple[Node, ...]:
        """What it computes."""
        return tuple(chain.from_iterable(kernel.work.nodes for kernel in self.kernels))

    def text(self, start: Start) -> str:
        """The module of the launch for the present addresses."""
        return "\n".join(filter(None, [start.line(), self._text()]))

    def _text(self) -> str:
        parts = [kernel.part() for kernel in self.kernels]
        if self.grid.is_alone:
            (part,) = parts
            self._blocks = part.kernel.blocks
            return entry_text(part.kernel, part.alignments, part.moving, guarded=part.is_guarded)
        placed = tuple(replace(part, number=k) for k, part in enumerate(self.grid.parts))
        return joined_text(replace(self.grid, parts=placed), parts)

    def settle(self, row: int) -> None:
        """Say at which address the launch will be: numbers of blocks that follow open sizes are written there."""
        for field, blocks in zip(_GRID, self._blocks, strict=True):
            self._memory.binding.number(blocks, row + field.offset_bytes)

    @property
    def blocks(self) -> tuple[int, int, int]:
        """Of the grid, for the sizes of the present call; bodies of decisions, of fixed sizes, ask before one."""
        if not any(map(is_symbolic, self._blocks)):
            return self._blocks
        x, y, z = concrete(self._blocks, self._memory.binding.sizes_now())
        return x, y, z

    def row(self, before: Sequence[int]) -> LaunchWords:
        """The launch as native code reads it; numbers of blocks that follow open sizes stay what they were."""
        pairs = zip(_GRID, self._blocks, strict=True)
        x, y, z = (int(before[field.place]) if is_symbolic(blocks) else blocks for field, blocks in pairs)
        return LaunchWords(
            function=self.function,
            blocks_x=x,
            blocks_y=y,
            blocks_z=z,
            threads=self.grid.threads,
            parameters=self.parameters,
            kind=TOGETHER if self.grid.meets else ALONE,
            shared_bytes=self._asked_bytes,
        )

    @property
    def _asked_bytes(self) -> int:
        """Of shared memory: what shares a launch has no more than every block."""
        return self.kernels[0].kernel.asked_bytes if self.grid.is_alone else 0

    def node(self, after: tuple[int, ...]) -> KernelNode:
        """The launch in a graph, for the sizes of the present call."""
        return KernelNode(
            self.function,
            self.blocks,
            self.grid.threads,
            self.parameters,
            after,
            self.grid.meets,
            shared_bytes=self._asked_bytes,
        )

    def handles(self) -> list[int]:
        """Where the handles of conditions are that its kernels set."""
        return [kernel.parameters[-1] for kernel in self.kernels if kernel.kernel.decides]

    def touched(self) -> Touched:
        """The memory it touches; what kernels that share it read early is not known."""
        each = [kernel.touched() for kernel in self.kernels]
        if self.grid.is_alone:
            return each[0]
        found = [access for one in each for access in one.accesses]
        if self._meeting is not None:
            found.append(Access("own", "writes", self._meeting.address, self._meeting.address + WORD_BYTES))
        return Touched(tuple(found))

    def begin_anew(self) -> None:
        """A launch did not come to its end: its blocks have counted how many of them met, not all."""
        if self._meeting is not None:
            self._memory.device.driver.fill(self._meeting.address, 0, WORD_BYTES, self._memory.device.stream)


def _extent(kernel: BoundKernel) -> str:
    blocks = "x".join(str(n) for n in kernel.kernel.blocks if n != 1) or "1"
    return f"{blocks} blocks of {kernel.kernel.threads} threads"
