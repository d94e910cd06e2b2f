"""Windows along spatial axes: what pooling and unfolding share.

Every axis is treated by itself, last axis first: a window over two axes is a window of windows. A short window is a
chain of elementwise steps over strided slices, which compiles into one loop; a long one is a reduction over a view.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, cast

import autojit as aj
from autojit import ops
from autojit.core.dtypes import HALVES
from autojit.core.errors import ShapeError, UsageError
from autojit.core.records import record
from autojit.core.sizes import size_max, surely_equal
from autojit.tensor import Tensor

Extents = int | Sequence[int]
P = TypeVar("P", Tensor, int)

LONGEST_CHAIN = 16
"""Taps up to which a window is a chain of elementwise steps; a longer one would make a large graph."""


@record
class Window:
    """Windows along one axis: window ``i`` sees ``i * stride + k * dilation - padding`` for every tap ``k < size``."""

    size: int
    stride: int
    padding: int
    dilation: int
    count: int

    @property
    def reach(self) -> int:
        """Extent of the padded axis that the windows see."""
        return (self.count - 1) * self.stride + (self.size - 1) * self.dilation + 1 if self.count else 0

    def padded(self, x: Tensor, axis: int, value: float) -> Tensor:
        """The axis from the first element that a window sees to the last."""
        low, high = [0] * x.ndim, [0] * x.ndim
        low[axis] = self.padding
        high[axis] = size_max(0, self.reach - self.padding - x.shape[axis])
        grown = ops.pad(x, low, high, value)
        return grown if surely_equal(grown.shape[axis], self.reach) else grown.narrow(axis, 0, self.reach)

    def taps(self, padded: Tensor, axis: int) -> list[Tensor]:
        """For every tap what it sees from all windows."""
        firsts, span = range(0, self.size * self.dilation, self.dilation), (self.count - 1) * self.stride + 1
        return [ops.slice_axis(padded, axis, first, first + span, self.stride) for first in firsts]

    def view(self, padded: Tensor, axis: int) -> Tensor:
        """The windows as a new last axis."""
        spread = padded.unfold(axis, (self.size - 1) * self.dilation + 1, self.stride)
        return spread if self.dilation == 1 else ops.slice_axis(spread, -1, 0, None, self.dilation)


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
    found = [Window(k, s, p, d, _count(n, k, s, p, d, ceil_mode)) for n, k, s, p, d in spans]
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


def _count(n: int, size: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> int:
    room = n + 2 * padding - dilation * (size - 1) - 1
    if not ceil_mode:
        return room // stride + 1
    count = -(-room // stride) + 1
    return count - 1 if (count - 1) * stride >= n + padding else count  # the last window begins inside


def window_sum(x: Tensor, axis: int, window: Window) -> Tensor:
    """Sums over the windows of one axis."""
    padded = window.padded(x, axis, 0)
    if window.size > LONGEST_CHAIN:
        return window.view(padded, axis).sum(-1)
    total, *rest = window.taps(padded, axis)
    for tap in rest:
        total = total + tap
    return total


def window_max(x: Tensor, axis: int, window: Window, places: list[Tensor] | None) -> tuple[Tensor, list[Tensor] | None]:
    """Maxima over the windows of one axis, and where they were.

    ``places`` holds the position of every element along the axes behind ``axis``; the result's list begins with the
    position along ``axis``. Among equals the first is taken; NaN counts as greatest.
    """
    padded = window.padded(x, axis, lowest(x))
    carried = None if places is None else [window.padded(p, axis, 0) for p in places]
    if window.size > LONGEST_CHAIN:
        best, tap = window.view(padded, axis).max(-1)
        if carried is None:
            return best, None
        seen = [window.view(p, axis).gather(-1, tap.unsqueeze(-1)).squeeze(-1) for p in carried]
        return best, [(tap * window.dilation + _starts(x, axis, window)).clamp_min(0), *seen]
    return _chained_max(x, axis, window, padded, carried)


def _chained_max(
    x: Tensor, axis: int, window: Window, padded: Tensor, carried: list[Tensor] | None
) -> tuple[Tensor, list[Tensor] | None]:
    best, *rest = window.taps(padded, axis)
    if carried is None:
        for tap in rest:
            best = aj.where(_is_better(tap, best), tap, best)
        return best, None
    start = _starts(x, axis, window)
    inside = start + (-start).clamp_min(0).add(window.dilation - 1).floor_divide(window.dilation) * window.dilation
    found = [inside.expand(best.shape), *(window.taps(p, axis)[0] for p in carried)]
    others = [window.taps(p, axis) for p in carried]
    for k, tap in enumerate(rest, start=1):
        better = _is_better(tap, best)
        best = aj.where(better, tap, best)
        news = [start + k * window.dilation, *(seen[k] for seen in others)]
        found = [aj.where(better, new, old) for new, old in zip(news, found, strict=True)]
    return best, found


def _is_better(tap: Tensor, best: Tensor) -> Tensor:
    greater = tap > best
    return greater | (tap != tap) if tap.is_floating_point() else greater


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
