"""What launches of a graph may do before those in front of them have ended: see `codegen.cuda.early_start`."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from autojit.codegen.cuda.early_start import Start
from autojit.runtime.gpu.bound_launch import BoundLaunch
from autojit.runtime.gpu.order import Access, Edges, Order

FITTING_THREADS = 1024
"""Of a block of which a processor has room for another one: half of those that every GPU of today runs."""


def starts(
    before: Sequence[Sequence[Access]], launches: Sequence[BoundLaunch], processors: int
) -> tuple[list[Start], Edges]:
    """How each launch of a graph begins, and what its nodes wait for.

    Args:
        before: what the nodes touch that the graph has in front of these, and that wait for nothing.
        launches: of fixed sizes, in their order.
        processors: of the device.
    """
    present = [(launch, launch.touched()) for launch in launches if all(launch.blocks)]  # a graph leaves the others out
    order = Order([*before, *(touched.accesses for _, touched in present)])
    fits = [*(True for _ in before), *(_fits(launch, processors) for launch, _ in present)]
    has_large = [False] * len(fits)  # a launch behind it
    for number, earlier in enumerate(order.after):
        for k in earlier:
            has_large[k] |= not fits[number]
    found = {}
    for number, (launch, touched) in enumerate(present, len(before)):
        settled = order.settled(number, [access for _, access in touched.early])
        places = tuple([place for (place, _), is_settled in zip(touched.early, settled, strict=True) if is_settled])
        found[launch] = Start(places, fits[number] and not has_large[number])
    return [found.get(launch, Start()) for launch in launches], order.after


def _fits(launch: BoundLaunch, processors: int) -> bool:
    """Whether each processor has at most one of its blocks, beside which there is room for another."""
    return not launch.grid.meets and prod(launch.blocks) <= processors and launch.grid.threads <= FITTING_THREADS
