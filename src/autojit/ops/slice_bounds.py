"""Bounds of slices and widths of paddings, which may be open sizes or counted by the step."""

from __future__ import annotations

from collections.abc import Sequence

from autojit.core.size_recorder import asked
from autojit.core.sizes import is_counted, is_symbolic, seems_equal, size_max, size_min, surely_less
from autojit.core.types import Shape


def slice_ends(starts: Sequence[int], shape: Shape, steps: Sequence[int]) -> tuple[int, ...]:
    """Where slices of ``shape`` end that begin at ``starts``: behind their last element."""
    spans = zip(starts, shape, steps, strict=True)
    return tuple(start if seems_equal(n, 0) else start + (n - 1) * step + 1 for start, n, step in spans)


def slice_span(start: int | None, stop: int | None, step: int, extent: int) -> tuple[int, int]:
    """(start, just after the last element) of Python's clipped slice: one spelling, so that equal slices are equal."""
    if not (is_symbolic(start) or is_symbolic(stop) or is_symbolic(extent)):
        places = range(*slice(start, stop, step).indices(extent))
        return places.start, places[-1] + 1 if len(places) else places.start
    first = 0 if start is None else _clipped(start, extent)
    last = extent if stop is None else _clipped(stop, extent)
    if step == 1 and (is_counted(first) or is_counted(last)):
        return first, size_max(first, last)
    if not first < last:
        return first, first
    return first, last if step == 1 else first + (last - first - 1) // step * step + 1


def _clipped(place: int, extent: int) -> int:
    """A slice's bound as a position between 0 and an extent."""
    place = place + extent if place < 0 else place
    if is_counted(place) or is_counted(extent):
        return size_max(0, size_min(place, extent))
    return 0 if place < 0 else place if place <= extent else extent


def is_negative(width: int) -> bool:
    """Whether a width is negative; what remains of an axis besides a counted region is not."""
    return surely_less(width, 0) if _is_settled(width) else width < 0


def exceeds(stop: int, extent: int) -> bool:
    """Whether a region ends beyond an axis; what a step counts has been clipped by what counts it."""
    return surely_less(extent, stop) if _is_settled(stop - extent) else stop > extent


def _is_settled(difference: int) -> bool:
    """Whether a capture does not ask for a sign, or is over: then it has asked, and a guard keeps the answer."""
    return asked.recorder is None or is_counted(difference)
