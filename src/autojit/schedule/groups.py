"""Groups: what shares a loop nest.

A *group* has a domain (a logical shape) whose axes are split into row axes and inner axes once a reduction asks for it.
Members live on a level:

- FULL: one element per point of the domain;
- ROW:  one element per row (results of reductions over the inner axes and what is computed from them);
- OUT:  reduced over the row axes (column sums, full sums), or joined of members (`joined`); never read inside.
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
from autojit.schedule.axis_maps import map_axes
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
    again: set[Value] = field(default_factory=set)  # values of other groups that this one computes itself (`again`)
    awaited: set[Value] = field(default_factory=set)  # that must exist before, though nothing of them is read
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

    def split(
        self, shape: Shape, kept: tuple[int, ...], folded: tuple[int, ...]
    ) -> tuple[tuple[int, ...], int, str] | None:
        """How a reduction of the whole domain, seen as ``shape``, splits it; None where its axes do not line up.

        (row axes, kept leading row axes, level of the result) in axes of the domain.
        """
        mapped = map_axes(shape, self.shape, kept, folded)
        if mapped is None:
            return None
        kept, folded = mapped
        # Kept axes outside: a number per row (softmax). Folded axes outside: column sums, accumulated as rows go by.
        # Kept axes on both sides: the leading ones stay rows, and each has columns of its own (column sums of a batch).
        if not folded:  # axes of extent 1 alone: a nest of its own has them as inner loops
            return None if self.members else (kept, 0, ROW)
        if max(kept) < min(folded):
            return self._rows_like(kept), 0, ROW
        if max(folded) < min(kept):
            return self._rows_like(folded), 0, OUT
        lead = tuple(a for a in kept if a < min(folded))
        tail = tuple(a for a in kept if a > max(folded))
        if lead + tail == kept and tail:
            return lead + folded, len(lead), OUT
        return self._rows_like(kept), 0, ROW

    def splits_like(self, other: Group) -> bool:
        """Whether no reduction of one group asks for another split than one of the other."""
        rows = self.row_axes is None or other.row_axes is None or self.row_axes == other.row_axes
        return rows and (self.prefix is None or other.prefix is None or self.prefix == other.prefix)

    def _rows_like(self, rows: tuple[int, ...]) -> tuple[int, ...]:
        """The row axes that there are, where they differ from ``rows`` in axes of extent 1 alone."""
        if self.row_axes is not None and tuple(a for a in self.row_axes if self.shape[a] != 1) == rows:
            return self.row_axes
        return rows


def reindex(index: Indices, shape: Shape, target: Shape) -> Indices:
    """The position in ``target`` of the element at ``index`` of ``shape``; both hold the same row-major sequence."""
    if shape == target:
        return index
    dense = [i for i, n in zip(index, shape, strict=True) if n != 1]
    if [n for n in shape if n != 1] == [n for n in target if n != 1]:
        remaining = iter(dense)
        return tuple(Index() if n == 1 else next(remaining) for n in target)
    return reshaped(index, shape, target)
