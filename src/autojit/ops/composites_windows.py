"""Windows along axes: what pooling and sliding blocks share, and pools as composites of ops.

Every axis is treated by itself, last axis first: a window over two axes is a window of windows. A short window is a
chain of elementwise steps over strided slices, which compiles into one loop.
"""

from __future__ import annotations

from collections.abc import Sequence

from autojit.core.records import record
from autojit.core.sizes import size_max, surely_equal
from autojit.ir.op import O
from autojit.ops.elementwise_arithmetic import add, div, where
from autojit.ops.elementwise_logic import gt, logical_or, ne
from autojit.ops.shape import pad, slice_axis

__all__ = ["window_maxima", "window_means"]

Spans = Sequence[tuple[int, int, int, int, bool]]
"""Per axis what a window is apart from the axis: size, stride, padding, dilation, whether it may reach over the end."""


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

    def padded(self, x: O, axis: int, value: float) -> O:
        """The axis from the first element that a window sees to the last."""
        ndim, extent = x.spec.ndim, x.spec.shape[axis]
        low, high = [0] * ndim, [0] * ndim
        low[axis] = self.padding
        high[axis] = size_max(0, self.reach - self.padding - extent)
        grown = pad(x, low, high, value)
        is_whole = surely_equal(grown.spec.shape[axis], self.reach)
        return grown if is_whole else slice_axis(grown, axis, 0, self.reach)

    def taps(self, padded: O, axis: int) -> list[O]:
        """For every tap what it sees from all windows."""
        firsts, span = range(0, self.size * self.dilation, self.dilation), (self.count - 1) * self.stride + 1
        return [slice_axis(padded, axis, first, first + span, self.stride) for first in firsts]


def window_over(extent: int, size: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> Window:
    """The windows over an axis of an extent; their count is not positive where none fits."""
    room = extent + 2 * padding - dilation * (size - 1) - 1
    if not ceil_mode:
        return Window(size, stride, padding, dilation, room // stride + 1)
    count = -(-room // stride) + 1
    is_beyond = (count - 1) * stride >= extent + padding  # the last window begins inside
    return Window(size, stride, padding, dilation, count - 1 if is_beyond else count)


def _windows(x: O, spans: Spans) -> list[tuple[int, Window]]:
    """The last axes with their windows, the last axis first."""
    lead = x.spec.ndim - len(spans)
    over = [(lead + k, window_over(x.spec.shape[lead + k], *span)) for k, span in enumerate(spans)]
    return over[::-1]


def window_maxima(x: O, spans: Spans, lowest: float) -> O:
    """The greatest element of every window over the last axes; padding holds ``lowest``."""
    for axis, window in _windows(x, spans):
        x = greatest_tap(window.taps(window.padded(x, axis, lowest), axis))
    return x


def window_means(x: O, spans: Spans, divisor: float | None) -> O:
    """The sum of every window over the last axes, divided by a number if there is one."""
    for axis, window in _windows(x, spans):
        x = sum_of_taps(window.taps(window.padded(x, axis, 0), axis))
    return x if divisor is None else div(x, divisor)


def greatest_tap(taps: Sequence[O]) -> O:
    """The greatest of operands, element by element: among equals the first, and NaN is greatest."""
    best, *rest = taps
    for tap in rest:
        best = where(is_better(tap, best), tap, best)
    return best


def is_better(tap: O, best: O) -> O:
    """Whether an element comes before the best that was seen before it."""
    greater = gt(tap, best)
    return logical_or(greater, ne(tap, tap)) if tap.spec.dtype.is_floating_point else greater


def sum_of_taps(taps: Sequence[O]) -> O:
    """The sum of operands, one after the other."""
    total, *rest = taps
    for tap in rest:
        total = add(total, tap)
    return total
