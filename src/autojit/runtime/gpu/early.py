"""What launches of a graph may do before those in front of them have ended: see `codegen.cuda.early_start`."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from autojit.codegen.cuda.early_start import Start
from autojit.runtime.gpu.bound_launch import BoundLaunch
from autojit.runtime.gpu.order import Access, predecessors, settled

FITTING_THREADS = 1024
"""Of a block of which a processor has room for another one: half of those that every GPU of today runs."""


def starts(before: Sequence[Sequence[Access]], launches: Sequence[BoundLaunch], processors: int) -> list[Start]:
    """How each launch of a graph begins.

    Args:
        before: what the nodes touch that the graph has in front of these, and that wait for nothing.
        launches: of fixed sizes, in their order.
        processors: of the device.
    """
    present = [launch for launch in launches if all(launch.blocks)]  # a graph leaves the others out
    accesses = [*before, *(launch.accesses() for launch in present)]
    after = predecessors(accesses)
    asked = [launch.early_reads() for launch in present]
    fits = [*(True for _ in before), *(_fits(launch, processors) for launch in present)]
    has_large = [False] * len(accesses)  # a launch behind it
    for number, earlier in enumerate(after):
        for k in earlier:
            has_large[k] |= not fits[number]
    quiet = settled(accesses, after, [*((),) * len(before), *([access for _, access in one] for one in asked)])
    found = {
        launch: Start(
            tuple([place for (place, _), is_quiet in zip(one, flags, strict=True) if is_quiet]),
            fits[number] and not has_large[number],
        )
        for number, (launch, one, flags) in enumerate(
            zip(present, asked, quiet[len(before) :], strict=True), start=len(before)
        )
    }
    return [found.get(launch, Start()) for launch in launches]


def _fits(launch: BoundLaunch, processors: int) -> bool:
    """Whether each processor has at most one of its blocks, beside which there is room for another."""
    return not launch.grid.meets and prod(launch.blocks) <= processors and launch.grid.threads <= FITTING_THREADS
