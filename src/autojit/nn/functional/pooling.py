"""Pooling over windows of a given size: maxima, means and norms. ``F`` in the examples."""

from __future__ import annotations

from math import prod
from typing import Any

import autojit as aj
from autojit.core.errors import DTypeError, UsageError
from autojit.core.top_level import top_level
from autojit.dispatch.kernels import in_one_step
from autojit.functions.autocast import in_full_precision
from autojit.functions.own_memory import own_memory
from autojit.functions.refused_dtypes import refuses
from autojit.history.op_node import rename_node
from autojit.nn.functional.windows import (
    LONGEST_CHAIN,
    Extents,
    check_rank,
    flat_places,
    in_single,
    lowest,
    numbers,
    window_max,
    window_sum,
    windows,
)
from autojit.ops.composites_windows import Window
from autojit.tensor import Tensor

__all__ = [
    "avg_pool1d", "avg_pool2d", "avg_pool3d", "lp_pool1d", "lp_pool2d", "lp_pool3d", "max_pool1d",
    "max_pool1d_with_indices", "max_pool2d", "max_pool2d_with_indices", "max_pool3d", "max_pool3d_with_indices",
]  # fmt: skip


def _max_pool(
    ndim: int,
    input: Tensor,
    kernel_size: Extents,
    stride: Extents | None = None,
    padding: Extents = 0,
    dilation: Extents = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    name = f"max_pool{ndim}d"
    check_rank(name, input, ndim)
    found = windows(name, input, kernel_size, stride, padding, dilation, ndim, ceil_mode)
    node = _node("MaxPool{}DWithIndices", ndim)
    ends_sliced = found[0].size == 1  # over the axis that comes last, maxima of one element are a view, with gaps
    if not return_indices and not ends_sliced and _is_short(found) and input.is_contiguous():
        return in_one_step("window_maxima", (_spans(found, ceil_mode), lowest(input)), input, node=node)
    best, places = input, list[Tensor]() if return_indices else None
    for axis in reversed(range(ndim)):
        best, places = window_max(best, input.ndim - ndim + axis, found[axis], places)
    if ends_sliced:
        best = best.clone()
    rename_node(best, node)
    return best if places is None else (best, flat_places(places, input.shape[-ndim:]))


def _is_short(found: list[Window]) -> bool:
    """Whether all windows are chains of elementwise steps."""
    return all(w.size <= LONGEST_CHAIN for w in found)


def _spans(found: list[Window], ceil_mode: bool) -> tuple[tuple[int, int, int, int, bool], ...]:
    """What windows are apart from the extents that they are over."""
    return tuple((w.size, w.stride, w.padding, w.dilation, ceil_mode) for w in found)


def _node(name: str, ndim: int) -> str:
    """The node as torch names it: over one axis it is an image's of one row, without the row."""
    return f"{name.format(ndim)}Backward0" if ndim > 1 else "SqueezeBackward1"


@top_level
@refuses("bool complex")
def max_pool1d(
    input: Tensor,
    kernel_size: Extents,
    stride: Extents | None = None,
    padding: Extents = 0,
    dilation: Extents = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The greatest element of every window. Shapes: ``[(n,) c, length] -> [(n,) c, windows]``.

    Args:
        stride: from window to window; ``kernel_size`` by default.
        padding: elements that never win, on both sides.
        ceil_mode: whether a last window may reach over the end.
        return_indices: also return where the elements are in the input.

    Raises:
        RuntimeError: wrong rank, parameters out of range, or no window fits.

    Example:
        >>> import autojit as aj
        >>> from autojit.nn import functional as F
        >>> F.max_pool1d(aj.tensor([[1.0, 3.0, 2.0, 0.0]]), 2)
        tensor([[3., 2.]])
    """
    return _max_pool(1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@top_level
@refuses("bool complex")
@own_memory
def max_pool2d(
    input: Tensor,
    kernel_size: Extents,
    stride: Extents | None = None,
    padding: Extents = 0,
    dilation: Extents = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The greatest element of every window of an image; see ``max_pool1d``. Indices count the image row by row.

    Shapes: ``[(n,) c, h, w] -> [(n,) c, h', w']``.

    Example:
        >>> import autojit as aj
        >>> from autojit.nn import functional as F
        >>> F.max_pool2d(aj.arange(16.0).reshape(1, 4, 4), 2)
        tensor([[[ 5.,  7.],
                 [13., 15.]]])
    """
    return _max_pool(2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@top_level
@refuses("bool complex")
def max_pool3d(
    input: Tensor,
    kernel_size: Extents,
    stride: Extents | None = None,
    padding: Extents = 0,
    dilation: Extents = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The greatest element of every window of a volume; see ``max_pool1d``.

    Shapes: ``[(n,) c, d, h, w] -> [(n,) c, d', h', w']``.
    """
    return _max_pool(3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@top_level
def max_pool1d_with_indices(
    input: Tensor,
    kernel_size: Extents,
    stride: Extents | None = None,
    padding: Extents = 0,
    dilation: Extents = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> tuple[Tensor, Tensor]:
    """``max_pool1d`` and where the maxima are; ``return_indices`` is accepted and has no meaning."""
    found: tuple[Tensor, Tensor] = max_pool1d(input, kernel_size, stride, padding, dilation, ceil_mode, True)
    return found


def max_pool2d_with_indices(
    input: Tensor,
    kernel_size: Extents,
    stride: Extents | None = None,
    padding: Extents = 0,
    dilation: Extents = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> tuple[Tensor, Tensor]:
    """``max_pool2d`` and where the maxima are; ``return_indices`` is accepted and has no meaning."""
    found: tuple[Tensor, Tensor] = max_pool2d(input, kernel_size, stride, padding, dilation, ceil_mode, True)
    return found


def max_pool3d_with_indices(
    input: Tensor,
    kernel_size: Extents,
    stride: Extents | None = None,
    padding: Extents = 0,
    dilation: Extents = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> tuple[Tensor, Tensor]:
    """``max_pool3d`` and where the maxima are; ``return_indices`` is accepted and has no meaning."""
    found: tuple[Tensor, Tensor] = max_pool3d(input, kernel_size, stride, padding, dilation, ceil_mode, True)
    return found


def _avg_pool(
    ndim: int,
    input: Tensor,
    kernel_size: Extents,
    stride: Extents | None,
    padding: Extents,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    name = f"avg_pool{ndim}d"
    check_rank(name, input, ndim)
    if input.dtype is aj.bool:
        raise DTypeError(f'"{name}" not implemented for bool', {"input": input})
    if divisor_override == 0:
        raise UsageError("divisor must be not zero")
    found = windows(name, input, kernel_size, stride, padding, 1, ndim, ceil_mode)
    given = in_single(input)
    divisor = _divisor(given, found, count_include_pad) if divisor_override is None else divisor_override
    node = _node("AvgPool{}D", ndim)
    if _is_short(found) and given.is_contiguous() and given.is_floating_point() and not isinstance(divisor, Tensor):
        means = in_one_step("window_means", (_spans(found, ceil_mode), divisor), given, node=node)
    else:
        total = given
        for axis in reversed(range(ndim)):
            total = window_sum(total, input.ndim - ndim + axis, found[axis])
        means = rename_node(_quotient(total, divisor), node)
    return means if means.dtype is input.dtype else means.to(input.dtype)


def _quotient(total: Tensor, divisor: Any) -> Tensor:
    """Integers are divided as C does."""
    return total / divisor if total.is_floating_point() else aj.div(total, divisor, rounding_mode="trunc")


def _divisor(x: Tensor, found: list[Window], include_pad: bool) -> Any:
    """The number of every window's elements: one number if all have as many."""
    extents = x.shape[-len(found) :]
    counts = [_counts(w, n, include_pad) for w, n in zip(found, extents, strict=True)]
    if all(min(line) == max(line) for line in counts):
        return prod(line[0] for line in counts)
    divisor = aj.ones((), dtype=x.dtype, device=x.device)
    for axis, line in enumerate(counts):
        shape = (-1, *(1,) * (len(counts) - 1 - axis))
        divisor = divisor * aj.tensor(line, dtype=x.dtype, device=x.device).reshape(shape)
    return divisor


def _counts(window: Window, extent: int, include_pad: bool) -> list[int]:
    """How many elements each window has; one number if all have as many as its size."""
    low, high = (-window.padding, extent + window.padding) if include_pad else (0, extent)
    if low <= -window.padding and window.reach - window.padding <= high:
        return [window.size]  # all are inside
    starts = [i * window.stride - window.padding for i in range(window.count)]
    return [min(start + window.size, high) - max(start, low) for start in starts]


@top_level
def avg_pool1d(
    input: Tensor,
    kernel_size: Extents,
    stride: Extents | None = None,
    padding: Extents = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of every window. Shapes: ``f[(n,) c, length] -> f[(n,) c, windows]``.

    Args:
        stride: from window to window; ``kernel_size`` by default.
        padding: zeros on both sides.
        ceil_mode: whether a last window may reach over the end.
        count_include_pad: whether the padding counts as elements.

    Raises:
        RuntimeError: wrong rank, parameters out of range, or no window fits.

    Example:
        >>> import autojit as aj
        >>> from autojit.nn import functional as F
        >>> F.avg_pool1d(aj.tensor([[1.0, 3.0, 2.0, 0.0]]), 2)
        tensor([[2., 1.]])
    """
    return _avg_pool(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


def avg_pool2d(
    input: Tensor,
    kernel_size: Extents,
    stride: Extents | None = None,
    padding: Extents = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of every window of an image; see ``avg_pool1d``. Shapes: ``f[(n,) c, h, w] -> f[(n,) c, h', w']``.

    Args:
        divisor_override: divide every sum by this number instead.
    """
    return _avg_pool(2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@in_full_precision
def avg_pool3d(
    input: Tensor,
    kernel_size: Extents,
    stride: Extents | None = None,
    padding: Extents = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of every window of a volume; see ``avg_pool2d``."""
    return _avg_pool(3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def _lp_pool(
    ndim: int, input: Tensor, norm_type: float, kernel_size: Extents, stride: Extents | None, ceil_mode: bool
) -> Tensor:
    sizes = numbers(kernel_size, ndim, f"lp_pool{ndim}d", "kernel_size")
    if abs(norm_type) == float("inf"):
        sign = 1 if norm_type > 0 else -1
        extreme: Tensor = _max_pool(ndim, input.abs() * sign, sizes, stride, 0, 1, ceil_mode)
        return extreme * sign
    mean = _avg_pool(ndim, input.pow(norm_type), sizes, stride, 0, ceil_mode, True, None)
    return (mean.sign() * mean.abs().relu()).mul(prod(sizes)).pow(1.0 / norm_type)


def lp_pool1d(
    input: Tensor, norm_type: float, kernel_size: Extents, stride: Extents | None = None, ceil_mode: bool = False
) -> Tensor:
    """The ``norm_type``-th root of the sum of powers of every window. Shapes: ``f[(n,) c, l] -> f[(n,) c, windows]``.

    Example:
        >>> import autojit as aj
        >>> from autojit.nn import functional as F
        >>> F.lp_pool1d(aj.tensor([[3.0, 4.0]]), 2, 2)
        tensor([[5.]])
    """
    return _lp_pool(1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(
    input: Tensor, norm_type: float, kernel_size: Extents, stride: Extents | None = None, ceil_mode: bool = False
) -> Tensor:
    """The same over images; see ``lp_pool1d``."""
    return _lp_pool(2, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(
    input: Tensor, norm_type: float, kernel_size: Extents, stride: Extents | None = None, ceil_mode: bool = False
) -> Tensor:
    """The same over volumes; see ``lp_pool1d``."""
    return _lp_pool(3, input, norm_type, kernel_size, stride, ceil_mode)
