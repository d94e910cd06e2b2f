"""Windows along spatial axes: what pooling and unfolding share.

A short window is a chain of elementwise steps over strided slices (``ops/composites_windows.py``), a long one a
reduction over a view.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, cast

import autojit as aj
from autojit import ops
from autojit.core.dtypes import HALVES
from autojit.core.errors import ShapeError, UsageError
from autojit.ops.composites_windows import Window, greatest_tap, is_better, sum_of_taps, window_over
from autojit.tensor import Tensor

Extents = int | Sequence[int]
P = TypeVar("P", Tensor, int)

LONGEST_CHAIN = 16
"""Taps up to which a window is a chain of elementwise steps; a longer one would make a large graph."""


def view_of(window: Window, padded: Tensor, axis: int) -> Tensor:
    """The windows as a new last axis."""
    spread = padded.unfold(axis, (window.size - 1) * window.dilation + 1, window.stride)
    return spread if window.dilation == 1 else ops.slice_axis(spread, -1, 0, None, window.dilation)


def in_single(x: Tensor) -> Tensor:
    """Halves in float32, in which they are added: their means are rounded once."""
    return x.to(aj.float32) if x.dtype in HALVES else x


def windows(
    name: str,
    input: Tensor,
    kernel_size: Extents,
    stride: Extents | None,
    padding: Extents,
    dilation: Extents,
    ndim: int,
    ceil_mode: bool,
) -> list[Window]:
    """The windows of a pooling function along its ``ndim`` last axes.

    Raises:
        RuntimeError: a parameter is out of range or has the wrong length, or no window fits.
    """
    sizes = numbers(kernel_size, ndim, name, "kernel_size")
    is_given = stride is not None and not (isinstance(stride, Sequence) and len(stride) == 0)
    steps = numbers(cast(Extents, stride), ndim, name, "stride") if is_given else sizes
    pads, spacing = numbers(padding, ndim, name, "padding"), numbers(dilation, ndim, name, "dilation")
    if min(sizes) <= 0:
        raise UsageError(f"{name}: kernel size should be greater than zero, but got {list(sizes)}")
    if min(steps) <= 0:
        raise UsageError("stride should not be zero" if 0 in steps else f"{name}: stride must be positive")
    if min(spacing) <= 0:
        raise UsageError(f"{name}: dilation should be greater than zero, but got {list(spacing)}")
    for p, k, d in zip(pads, sizes, spacing, strict=True):
        if p < 0:
            raise UsageError(f"{name}: pad must be non-negative, but got pad={p}")
        if p > (d * (k - 1) + 1) // 2:
            raise UsageError(
                f"{name}: pad should be at most half of effective kernel size, but got pad={p}, kernel_size={k} and "
                f"dilation={d}"
            )
    spans = zip(input.shape[-ndim:], sizes, steps, pads, spacing, strict=True)
    found = [window_over(n, k, s, p, d, ceil_mode) for n, k, s, p, d in spans]
    if any(w.count < 1 for w in found):
        lead = "x".join(map(str, input.shape[-ndim - 1 :]))
        size = "x".join(map(str, (input.shape[-ndim - 1], *(max(w.count, 0) for w in found))))
        raise ShapeError(
            f"{name}: Given input size: ({lead}). Calculated output size: ({size}). Output size is too small"
        )
    return found


def numbers(value: Extents, ndim: int, name: str, what: str) -> tuple[int, ...]:
    """One number per axis from a number or a sequence of one or ``ndim`` numbers; RuntimeError for other lengths."""
    if not isinstance(value, Sequence):
        return (int(value),) * ndim
    given = tuple(int(n) for n in value)
    if len(given) not in (1, ndim):
        words = {1: "one int", 2: "two ints", 3: "three ints"}[ndim]
        raise UsageError(f"{name}: {what} must either be a single int, or a tuple of {words}")
    return given * (ndim // len(given))


def check_rank(name: str, input: Tensor, ndim: int) -> None:
    """ShapeError unless the input is one image or a stack of them, with extents that are not zero."""
    if input.ndim not in (ndim + 1, ndim + 2) or 0 in input.shape[-ndim - 1 :]:
        raise ShapeError(
            f"{name}: Expected {ndim + 1}D or {ndim + 2}D (batch mode) tensor with optional 0 dim batch size for "
            f"input, but got: {list(input.shape)}",
            {"input": input},
        )


def window_sum(x: Tensor, axis: int, window: Window) -> Tensor:
    """Sums over the windows of one axis."""
    padded = window.padded(x, axis, 0)
    if window.size > LONGEST_CHAIN:
        return view_of(window, padded, axis).sum(-1)
    return sum_of_taps(window.taps(padded, axis))


def window_max(x: Tensor, axis: int, window: Window, places: list[Tensor] | None) -> tuple[Tensor, list[Tensor] | None]:
    """Maxima over the windows of one axis, and where they were.

    ``places`` holds the position of every element along the axes behind ``axis``; the result's list begins with the
    position along ``axis``. Among equals the first is taken; NaN counts as greatest.
    """
    padded = window.padded(x, axis, lowest(x))
    carried = None if places is None else [window.padded(p, axis, 0) for p in places]
    if window.size > LONGEST_CHAIN:
        best, tap = view_of(window, padded, axis).max(-1)
        if carried is None:
            return best, None
        seen = [view_of(window, p, axis).gather(-1, tap.unsqueeze(-1)).squeeze(-1) for p in carried]
        return best, [(tap * window.dilation + _starts(x, axis, window)).clamp_min(0), *seen]
    return _chained_max(x, axis, window, padded, carried)


def _chained_max(
    x: Tensor, axis: int, window: Window, padded: Tensor, carried: list[Tensor] | None
) -> tuple[Tensor, list[Tensor] | None]:
    if carried is None:
        return greatest_tap(window.taps(padded, axis)), None
    best, *rest = window.taps(padded, axis)
    start = _starts(x, axis, window)
    inside = start + (-start).clamp_min(0).add(window.dilation - 1).floor_divide(window.dilation) * window.dilation
    found = [inside.expand(best.shape), *(window.taps(p, axis)[0] for p in carried)]
    others = [window.taps(p, axis) for p in carried]
    for k, tap in enumerate(rest, start=1):
        better = is_better(tap, best)
        best = aj.where(better, tap, best)
        news = [start + k * window.dilation, *(seen[k] for seen in others)]
        found = [aj.where(better, new, old) for new, old in zip(news, found, strict=True)]
    return best, found


def _starts(x: Tensor, axis: int, window: Window) -> Tensor:
    """The position of every window's first tap, shaped to broadcast along ``axis``."""
    line = aj.arange(window.count, device=x.device) * window.stride - window.padding
    return line.reshape(-1, *(1,) * (x.ndim - 1 - axis))


def lowest(x: Tensor) -> Any:
    """What no element is below."""
    return -float("inf") if x.is_floating_point() else aj.iinfo(x.dtype).min


def flat_places(places: Sequence[P], extents: Sequence[int]) -> P:
    """Positions along each axis as one position in the row-major image."""
    total: Any = places[0]
    for place, n in zip(places[1:], extents[1:], strict=True):
        total = total * n + place
    found: P = total
    return found
