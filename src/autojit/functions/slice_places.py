"""Subscripts of constants, and bounds of slices: ints, sizes, and numbers that a step computes."""

from __future__ import annotations

from typing import Any

from autojit.core.errors import ArgumentKindError
from autojit.core.sizes import as_extent
from autojit.dispatch.promotion import as_operand
from autojit.functions.comparison import clamp, minimum, where
from autojit.ops.slice_bounds import slice_span
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor, type_of


def slice_bound(given: Any) -> Any:
    """A bound of a slice: None, an int, or a number that a step computes."""
    if given is None or type(given) is int:
        return given
    if isinstance(given, Tensor) and state.trace is not None and type_of(given).dtype.category == 1:
        given = given.item()
    if hasattr(type(given), "as_size"):
        return given
    if isinstance(given, Tensor) or hasattr(type(given), "__index__"):
        return as_extent(given)
    raise ArgumentKindError(
        "slice indices must be integers or None or have an __index__ method", {"given": type(given).__name__}
    )


def counted_span(start: Any, stop: Any, extent: int) -> tuple[int, int]:
    """`slice_span` for bounds that a step computes: where the slice begins and its length are sizes it counts.

    The length is plain where it is known though the bounds are not: ``x[pos : pos + 3]``.
    """
    number: Any = start if hasattr(type(start), "as_size") else stop
    known: tuple[int, int] | None = number.known_span(start, stop, extent)
    if known is not None:
        return known
    length = as_operand(extent)
    low, high = (
        _clipped(as_operand(n), length) for n in (0 if start is None else start, extent if stop is None else stop)
    )
    first = low.item().as_size(extent) if hasattr(type(start), "as_size") else slice_span(start, None, 1, extent)[0]
    return first, first + clamp(high - low, min=0).item().as_size(extent - first)


def _clipped(bound: Tensor, length: Tensor) -> Tensor:
    from_start = where(bound < 0, bound + length, bound)
    return minimum(clamp(from_start, min=0), length)


def constant_subscript(index: Any) -> tuple[Any, ...] | None:
    """A subscript of ints, slices, None and Ellipsis as a flat tuple that can be hashed; None for any other."""
    kind = type(index)
    if kind is int:
        return ("[", index)
    if kind is slice:
        return ("[:", index.start, index.stop, index.step)
    if kind is not tuple:
        return ("[", index) if index is None or index is Ellipsis else None
    parts: list[Any] = ["[,"]
    for item in index:
        kind = type(item)
        if kind is slice:
            parts += (":", item.start, item.stop, item.step)
        elif kind is int or item is None or item is Ellipsis:
            parts.append(item)
        else:
            return None
    return tuple(parts)
