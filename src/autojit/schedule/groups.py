"""Groups: what shares a loop nest.

A *group* has a domain (a logical shape) whose axes are split into row axes and inner axes once a reduction asks for it.
Members live on a level:

- FULL: one element per point of the domain;
- ROW:  one element per row (results of reductions over the inner axes and what is computed from them);
- OUT:  reduced over the row axes (column sums, full sums); never read inside the group.
"""

from __future__ import annotations

from dataclasses import field
from math import prod

from autojit.core.device import CPU, Device
from autojit.core.records import record
from autojit.core.sizes import typical
from autojit.core.types import Shape
from autojit.ir.graph import Node, Value
from autojit.ir.index import Index, reshaped
from autojit.ops.requirements import InRange
from autojit.schedule.pull import Indices

FULL, ROW, OUT = "full", "row", "out"


@record(eq=False, frozen=False)
class Group:
    """A loop nest under construction."""

    id: int
    shape: Shape
    axes: Indices  # loop index per domain axis
    device: Device = CPU  # where all members compute
    row_axes: tuple[int, ...] | None = None  # None: no reduction has asked for a split yet
    prefix: int | None = None  # leading row axes kept by column reductions
    members: list[Node] = field(default_factory=list)
    level: dict[Value, str] = field(default_factory=dict)
    position: dict[Value, Indices] = field(default_factory=dict)
    buffers: set[Value] = field(default_factory=set)
    size: int = field(init=False)  # points of the domain
    weight: int = field(init=False)  # what they count where costs are weighed

    def __post_init__(self) -> None:
        self.size = prod(self.shape)
        self.weight = typical(self.size)

    @property
    def checks_only(self) -> bool:
        """Whether it checks indices: it must not wait for what other members would need (`commits`)."""
        return bool(self.members) and isinstance(self.members[0].op, InRange)

    @property
    def inner_axes(self) -> tuple[int, ...]:
        rows = self.row_axes if self.row_axes is not None else tuple(range(len(self.shape)))
        return tuple(a for a in range(len(self.shape)) if a not in rows)

    def row_shape(self) -> Shape:
        assert self.row_axes is not None
        return tuple(self.shape[a] for a in self.row_axes)

    def canonical(self, shape: Shape, level: str) -> Indices:
        """The position a member of ``shape`` has at the current point of the loop nest."""
        if level == FULL:
            return reindex(self.axes, self.shape, shape)
        assert self.row_axes is not None
        return reindex(tuple(self.axes[a] for a in self.row_axes), self.row_shape(), shape)


def reindex(index: Indices, shape: Shape, target: Shape) -> Indices:
    """The position in ``target`` of the element at ``index`` of ``shape``; both hold the same row-major sequence."""
    if shape == target:
        return index
    dense = [i for i, n in zip(index, shape, strict=True) if n != 1]
    if [n for n in shape if n != 1] == [n for n in target if n != 1]:
        remaining = iter(dense)
        return tuple(Index() if n == 1 else next(remaining) for n in target)
    return reshaped(index, shape, target)
