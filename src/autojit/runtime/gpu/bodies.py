"""The shape of a run: its launches in order, and the bodies that it does only if, or as long as, a condition is set.

A body is a node of a graph with nodes of its own. Kernels share launches within a stretch without bodies. Where a run
is launched one by one, each of its bodies is a small graph: only graphs have conditions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from autojit.codegen.cuda.joined_plan import JoinedGrid
from autojit.core.records import record
from autojit.ir.graph import Node
from autojit.runtime.gpu.bound_launch import BoundLaunch
from autojit.runtime.gpu.driver import ConditionalNode, GraphNode
from autojit.runtime.gpu.order import Access, Edges, Order
from autojit.runtime.gpu.works import Body, Item

_CONDITIONS = 1 << 61
"""Above all addresses: a place for each condition, written in front of the body that asks for it."""


@record
class GridBody:
    """How the kernels of a body share launches; see `works.Body`."""

    first: JoinedGrid
    items: tuple[JoinedGrid | GridBody, ...]
    repeats: bool


Grids = tuple[JoinedGrid | GridBody, ...]


def plan_items(items: Sequence[Item], stretch: Callable[[int, int], Sequence[JoinedGrid]]) -> Grids:
    """How a run's kernels share launches.

    Args:
        items: of the run.
        stretch: gives the launches of the kernels from one number on up to another; their parts count from 0.
    """
    return _plan(items, 0, stretch)[0]


def _plan(items: Sequence[Item], first: int, stretch: Callable[[int, int], Sequence[JoinedGrid]]) -> tuple[Grids, int]:
    """The launches of some items, whose kernels have numbers from ``first`` on, and the number behind them."""
    found: list[JoinedGrid | GridBody] = []
    begin = number = first

    def launches(begin: int, end: int) -> Iterator[JoinedGrid]:
        for grid in stretch(begin, end) if end > begin else ():
            yield replace(grid, parts=tuple([replace(part, number=part.number + begin) for part in grid.parts]))

    for item in items:
        if not isinstance(item, Body):
            number += 1
            continue
        found += launches(begin, number)
        (decision,) = launches(number, number + 1)
        inner, begin = _plan(item.items, number + 1, stretch)
        found.append(GridBody(decision, inner, item.repeats))
        number = begin
    return (*found, *launches(begin, number)), number


def repeated(items: Sequence[Item], first: int = 0) -> Iterator[tuple[int, int]]:
    """Of each body that repeats, the numbers of its first and last kernel."""
    number = first
    for item in items:
        number += 1
        if isinstance(item, Body):
            yield from repeated(item.items, number)
            begin, number = number, number + _count(item.items)
            if item.repeats:
                yield begin, number - 1


def _count(items: Iterable[Item]) -> int:
    return sum(1 + _count(item.items) if isinstance(item, Body) else 1 for item in items)


class BoundBody:
    """A body bound to memory.

    Args:
        first: the launch that sets the condition.
        items: of the body.
        repeats: as long as the condition is set.
    """

    def __init__(self, first: BoundLaunch, items: Sequence[BoundLaunch | BoundBody], repeats: bool) -> None:
        self.first, self.items, self.repeats = first, items, repeats

    @property
    def label(self) -> str:
        """Its name for users."""
        return "while_loop" if self.repeats else "cond"

    @property
    def nodes(self) -> tuple[Node, ...]:
        """What it computes."""
        return tuple(chain.from_iterable(item.nodes for item in self.items))

    def lines(self) -> list[str]:
        """What it is, for users."""
        head = "as long as the device says so" if self.repeats else "if the device says so"
        return [head, *(f"  {line}" for item in self.items for line in item.lines())]

    def accesses(self) -> list[Access]:
        """The memory that it touches."""
        return [access for launch in flat_launches(self.items) for access in launch.touched().accesses]

    def node(self, after: tuple[int, ...]) -> ConditionalNode:
        """It in a graph, behind the launch that sets the condition."""
        setters = [self.first, *(item for item in self.items if isinstance(item, BoundLaunch))]
        handles = tuple(word for launch in setters for word in launch.handles())
        return ConditionalNode(nodes_of(self.items), self.repeats, handles, after)


def bound(grids: Grids, bind: Callable[[JoinedGrid], BoundLaunch]) -> list[BoundLaunch | BoundBody]:
    """The launches and bodies of a run."""
    return [
        BoundBody(bind(grid.first), bound(grid.items, bind), grid.repeats) if isinstance(grid, GridBody) else bind(grid)
        for grid in grids
    ]


def flat_launches(items: Iterable[BoundLaunch | BoundBody]) -> Iterator[BoundLaunch]:
    """All launches, each once."""
    for item in items:
        if isinstance(item, BoundBody):
            yield item.first
            yield from flat_launches(item.items)
        else:
            yield item


def nodes_of(
    items: Iterable[BoundLaunch | BoundBody], before: Sequence[Sequence[Access]] = (), after: Edges | None = None
) -> tuple[GraphNode, ...]:
    """The nodes of a graph or of a body, for the sizes of the present call: what has no blocks then is left out.

    Args:
        before: what the nodes touch that the graph has in front of these.
        after: what the nodes of the graph wait for, where that is known.
    """
    present = [item for item in items if isinstance(item, BoundBody) or all(item.blocks)]
    if after is None:
        after = Order([*before, *_accesses(present)]).after
    made: list[BoundLaunch | BoundBody] = []
    for item in present:
        made += [item.first, item] if isinstance(item, BoundBody) else [item]
    return tuple([item.node(mine) for item, mine in zip(made, after[len(before) :], strict=True)])


def _accesses(items: Iterable[BoundLaunch | BoundBody]) -> Iterator[Sequence[Access]]:
    """What each node touches; a body is two, and waits for the one that sets its condition."""
    for number, item in enumerate(items):
        if isinstance(item, BoundLaunch):
            yield item.touched().accesses
            continue
        place = _CONDITIONS + 8 * number
        yield [*item.first.touched().accesses, Access("own", "writes", place, place + 1)]
        yield [*item.accesses(), Access("own", "reads", place, place + 1)]
