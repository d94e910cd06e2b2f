"""Eager results on a device that are as long as the elements say: computed there, and one number is waited for.

Before the length is known there is room for the longest result. A graph of fixed sizes fills what there is of it, in
order, and counts (`ops.counted_positions.PackedPositions`); then the number is read, and that many elements are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from autojit.core.dtypes import bool_, int64
from autojit.core.types import TensorType
from autojit.ir.builder import Tracer
from autojit.ir.op import Op, bind_all
from autojit.ops.counted_positions import PackedPositions
from autojit.ops.data_dependent import Bincount, Distinct, Nonzero, Unique, UniqueConsecutive
from autojit.ops.elementwise_arithmetic import add, cast, sub, where
from autojit.ops.elementwise_logic import eq, logical_or, lt, ne
from autojit.ops.elementwise_rounding import floor_divide, remainder
from autojit.ops.elementwise_selection import clamp_max, clamp_min
from autojit.ops.indexing import index_select
from autojit.ops.joining import moveaxis, stack
from autojit.ops.reductions import amax, amin, any
from autojit.ops.scans import cumsum
from autojit.ops.scattering import scatter
from autojit.ops.shape import reshape
from autojit.ops.sorting import row_order, sort
from autojit.ops.sources import arange


class Counted(NamedTuple):
    """Results with room for the longest, and how long they are.

    Args:
        results: those that are counted have the counted axis in front.
        axes: where it belongs, for each; None: the result is as it is.
        number: how much of the axis there is, a tensor of rank 0; negative where the op refuses its operand.
    """

    results: tuple[Tracer, ...]
    axes: tuple[int | None, ...]
    number: Tracer


def can_count(op: Op, types: Sequence[TensorType]) -> bool:
    """Whether the op's results are composed here: not of complex numbers, nor where there is nothing to count."""
    x = types[0]
    return type(op) in _COUNTED and x.size > 0 and x.ndim > 0 and not x.dtype.is_complex and x.dtype.kind != "float8"


def counted(op: Any, x: Tracer) -> Counted:
    """The results of an op that `can_count`."""
    return _COUNTED[type(op)](op, x)


def _packed(mask: Tracer) -> tuple[Tracer, Tracer]:
    positions, number = bind_all(PackedPositions(), mask)
    return positions, number


def _nonzero(op: Nonzero, x: Tracer) -> Counted:
    """Flat positions, taken apart into one for each axis."""
    rest, number = _packed(reshape(x if x.spec.dtype is bool_ else ne(x, 0), (-1,)))
    columns: list[Tracer] = []
    for n in reversed(x.spec.shape[1:]):
        columns.insert(0, remainder(rest, n))
        rest = floor_divide(rest, n)
    return Counted((stack([rest, *columns], 1),), (0,), number)


def _distinct(op: Distinct, x: Tracer) -> Counted:
    """Neighbours in order that differ begin a value; the rows of a matrix stand for slices along an axis."""
    whole = reshape(x, (-1,)) if op.axis is None else moveaxis(x, op.axis, 0)
    count = whole.spec.shape[0]
    rows = whole if op.axis is None else reshape(whole, (count, -1))
    order: Tracer | None = None
    if isinstance(op, Unique):
        order = sort(rows, 0)[1] if op.axis is None else row_order(rows)
    line = rows if order is None else index_select(rows, 0, order)
    place = arange(x, count)
    differs = ne(line, index_select(line, 0, clamp_min(sub(place, 1), 0)))
    starts = logical_or(differs if op.axis is None else any(differs, 1), eq(place, 0))
    first, number = _packed(starts)
    numbers = sub(cumsum(cast(starts, int64), 0), 1)
    inverse = numbers if order is None else scatter(numbers, 0, order, numbers)
    values = index_select(whole, 0, first if order is None else index_select(order, 0, first))
    following = index_select(first, 0, clamp_max(add(place, 1), count - 1))
    ends = where(lt(add(place, 1), number), following, count)
    inverse = reshape(inverse, x.spec.shape) if op.axis is None else inverse
    return Counted((values, inverse, sub(ends, first)), (op.axis or 0, None, 0), number)


def _length_of_counts(op: Bincount, x: Tracer) -> Counted:
    """As many as the greatest number asks for; negative if one is. The counts are a sum over so many places."""
    places = cast(x, int64)
    length = clamp_min(add(amax(places), 1), op.minimum)
    return Counted((), (), where(lt(amin(places), 0), -1, length))


_COUNTED: dict[type[Op], Callable[[Any, Tracer], Counted]] = {
    Bincount: _length_of_counts,
    Nonzero: _nonzero,
    Unique: _distinct,
    UniqueConsecutive: _distinct,
}
