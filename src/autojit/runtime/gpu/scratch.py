"""Scratch and partial results of a run's kernels: large blocks are used again by kernels that come later.

A kernel that uses memory again waits for the one before. Small blocks are therefore not shared: their kernels are short
and may run side by side. A large one is that of a kernel that fills the device by itself. Memory of open size is not
shared either: how large it is, a call knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from autojit.codegen.grid_text import GridText
from autojit.codegen.lowered import Scratch
from autojit.core.records import record
from autojit.core.sizes import is_symbolic
from autojit.runtime.gpu.memory import Held
from autojit.runtime.gpu.moving import Region
from autojit.runtime.gpu.works import Work, base_of

SHARED_FROM_BYTES = 1 << 20


@record
class Need:
    """Memory from one kernel of the run to another.

    Args:
        size_bytes: of the memory.
        first: the number of the first kernel that uses it.
        last: that of the last.
    """

    size_bytes: int
    first: int
    last: int


def blocks_for(needs: Sequence[Need]) -> tuple[list[int], list[int]]:
    """Which block every need has, and the sizes of the blocks; who needs a block at a time has it alone."""
    chosen, sizes, last = [0] * len(needs), list[int](), list[int]()
    for number in sorted(range(len(needs)), key=lambda k: needs[k].first):
        need = needs[number]
        free = [k for k, end in enumerate(last) if end < need.first and sizes[k] >= SHARED_FROM_BYTES]
        if need.size_bytes < SHARED_FROM_BYTES or not free:
            chosen[number] = len(sizes)
            sizes.append(need.size_bytes)
            last.append(need.last)
            continue
        block = min(free, key=lambda k: abs(sizes[k] - need.size_bytes))
        chosen[number], last[block] = block, need.last
        sizes[block] = max(sizes[block], need.size_bytes)
    return chosen, sizes


class RunScratch:
    """See the module.

    Args:
        works: the kernels of the run.
        hold: gives memory of the device for as long as the run.
        region: gives memory of open size.
        most: the most that a size can be, whatever the step counts.
        repeated: the first and last kernel of each part that is done again and again.
    """

    def __init__(
        self,
        works: Sequence[Work],
        hold: Callable[[int], Held],
        region: Callable[[int], Region],
        most: Callable[[int], int],
        repeated: Iterable[tuple[int, int]] = (),
    ) -> None:
        owners = _owners_of_partials(works)
        found: dict[Scratch | int, Need] = {}
        for number, work in enumerate(works):
            for base in map(base_of, work.buffers):
                if isinstance(base, Scratch):
                    _extend(found, base, most(base.size_bytes), number)
            owner = owners[number]
            if owner is not None:
                _extend(found, owner, most(work.widest.partial_bytes), number)
        for first, last in repeated:  # memory from outside, or for what is outside, is needed in all turns
            for what, need in found.items():
                begins, ends = first <= need.first <= last, first <= need.last <= last
                if begins != ends:
                    found[what] = Need(need.size_bytes, min(need.first, first), max(need.last, last))
        fixed = {what: need for what, need in found.items() if not is_symbolic(need.size_bytes)}
        chosen, sizes = blocks_for(list(fixed.values()))
        held = [hold(size) for size in sizes]
        self._held = {what: held[block] for what, block in zip(fixed, chosen, strict=True)}
        self._regions = {what: region(need.size_bytes) for what, need in found.items() if what not in fixed}
        self._owners = owners

    def place(self, scratch: Scratch) -> Held | Region:
        """Where scratch is."""
        return self._place(scratch)

    def partials(self, number: int) -> Held | Region | None:
        """Where the partial results of a kernel are; None where it has none."""
        owner = self._owners[number]
        return None if owner is None else self._place(owner)

    def _place(self, what: Scratch | int) -> Held | Region:
        found = self._held.get(what)
        return self._regions[what] if found is None else found


def _extend(found: dict[Scratch | int, Need], what: Scratch | int, size_bytes: int, number: int) -> None:
    first = found[what].first if what in found else number
    found[what] = Need(size_bytes, first, number)


def _owners_of_partials(works: Sequence[Work]) -> list[Scratch | int | None]:
    """Of every kernel the one whose partial results it writes or reads, or where it is told to have them.

    A combining kernel reads those before it.
    """
    owners: list[Scratch | int | None] = []
    owner: Scratch | int | None = None
    combining: GridText | None = None
    for number, work in enumerate(works):
        kernel = work.widest
        if not kernel.partial_bytes:
            owner = None
        elif kernel is not combining or owner is None:
            owner = work.partials or number
        owners.append(owner)
        combining = kernel.combine
    return owners
