"""Sliding blocks as columns and back, and the inverse of maximum pooling. ``F`` in the examples."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, cast

from autojit import ops
from autojit.core.dtypes import int64
from autojit.core.errors import ArgumentError, DTypeError, ShapeError, UsageError
from autojit.functions.formats import laid_out_as
from autojit.functions.own_memory import no_view_of_parts, own_memory
from autojit.functions.refused_dtypes import refuses
from autojit.history.op_node import rename_node
from autojit.nn.functional.windows import Extents, numbers, view_of
from autojit.ops.composites_windows import Window
from autojit.tensor import Tensor

__all__ = ["fold", "max_unpool1d", "max_unpool2d", "max_unpool3d", "unfold"]


@no_view_of_parts
def unfold(
    input: Tensor, kernel_size: Extents, dilation: Extents = 1, padding: Extents = 0, stride: Extents = 1
) -> Tensor:
    """Every sliding block of an image as a column. Shapes: ``[(n,) c, h, w] -> [(n,) c kh kw, blocks]``.

    Raises:
        RuntimeError: wrong rank, parameters out of range, or no block fits.

    Example:
        >>> import autojit as aj
        >>> from autojit.nn import functional as F
        >>> F.unfold(aj.tensor([[[1.0, 2.0, 3.0]]]), (1, 2))
        tensor([[1., 2.],
                [2., 3.]])
    """
    found = _unfolded(input, kernel_size, dilation, padding, stride)
    return rename_node(
        found, "Im2ColBackward0", self_sym_argsize_minus_2=input.shape[-2], self_sym_argsize_minus_1=input.shape[-1]
    )


@own_memory
def _unfolded(input: Tensor, kernel_size: Extents, dilation: Extents, padding: Extents, stride: Extents) -> Tensor:
    if input.ndim not in (3, 4) or 0 in input.shape[-3:]:
        raise ShapeError(
            "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for input, "
            f"but got: {list(input.shape)}"
        )
    blocks = _blocks("unfold", input.shape[-2:], kernel_size, dilation, padding, stride)
    if min(b.count for b in blocks) < 1:
        raise ShapeError(
            f"Given input with spatial size {tuple(input.shape[-2:])}, {_described(blocks)}, calculated shape of the "
            f"array of sliding blocks as {tuple(b.count for b in blocks)}, but its components must be at least one."
        )
    rows, columns = blocks
    lead = input.ndim - 2
    seen = view_of(rows, rows.padded(input, lead, 0), lead)
    seen = view_of(columns, columns.padded(seen, lead + 1, 0), lead + 1)  # (..., c, h', w', kh, kw)
    order = (*range(lead), lead + 2, lead + 3, lead, lead + 1)
    taps = input.shape[-3] * rows.size * columns.size
    return seen.permute(order).reshape(*input.shape[:-3], taps, rows.count * columns.count)


@own_memory
def fold(
    input: Tensor,
    output_size: Extents,
    kernel_size: Extents,
    dilation: Extents = 1,
    padding: Extents = 0,
    stride: Extents = 1,
) -> Tensor:
    """Add up columns where their blocks are in an image: the transpose of ``unfold``.

    Shapes: ``[(n,) c kh kw, blocks] -> [(n,) c, *output_size]``.

    Raises:
        RuntimeError: wrong rank, parameters out of range, or a number of rows or columns that does not fit.

    Example:
        >>> import autojit as aj
        >>> from autojit.nn import functional as F
        >>> F.fold(aj.tensor([[1.0, 2.0], [2.0, 3.0]]), (1, 3), (1, 2))
        tensor([[[1., 4., 3.]]])
    """
    if input.ndim not in (2, 3) or 0 in input.shape[-2:]:
        raise ShapeError(
            "Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and non-zero dimensions for "
            f"input, but got: {list(input.shape)}"
        )
    size = numbers(output_size, 2, "fold", "output_size")
    if min(size) <= 0:
        raise UsageError(f"fold: output_size should be greater than zero, but got {list(size)}")
    blocks = _blocks("fold", size, kernel_size, dilation, padding, stride)
    rows, columns = blocks
    if input.shape[-2] % (rows.size * columns.size):
        raise ShapeError(
            "Expected size of input's dimension 1 to be divisible by the product of kernel_size, but got "
            f"input.size(1)={input.shape[-2]} and kernel_size={(rows.size, columns.size)}."
        )
    if min(rows.count, columns.count) < 1:
        raise ShapeError(
            f"Given output_size={size}, {_described(blocks)}, calculated shape of the array of sliding blocks as "
            f"({rows.count}, {columns.count}), which is too small (non-positive)."
        )
    if input.shape[-1] != rows.count * columns.count:
        raise ShapeError(
            f"Given output_size={size}, {_described(blocks)}, expected size of input's dimension 2 to match the "
            f"calculated number of sliding blocks {rows.count} * {columns.count} = {rows.count * columns.count}, but "
            f"got input.size(2)={input.shape[-1]}."
        )
    channels = input.shape[-2] // (rows.size * columns.size)
    parts = input.reshape(*input.shape[:-2], channels, rows.size, columns.size, rows.count, columns.count)
    lines = _spread(parts, -3, -1, columns, size[1])  # (..., c, kh, h', w)
    return _spread(lines, -3, -2, rows, size[0])


def _spread(parts: Tensor, tap_axis: int, axis: int, window: Window, extent: int) -> Tensor:
    """Add up the taps' elements where they are along ``axis`` of ``extent``; the axis of taps vanishes."""
    total: Any = None
    for k in range(window.size):
        piece = parts.select(tap_axis, k)
        low, high, gaps = [0] * piece.ndim, [0] * piece.ndim, [0] * piece.ndim
        low[axis] = first = k * window.dilation
        gaps[axis] = window.stride - 1
        high[axis] = window.reach - first - (window.count - 1) * window.stride - 1
        part = ops.pad(piece, low, high, 0, gaps)
        total = part if total is None else total + part
    missing = max(0, window.padding + extent - window.reach)
    low, high = [0] * total.ndim, [0] * total.ndim
    high[axis] = missing
    return cast(Tensor, ops.pad(total, low, high)).narrow(axis, window.padding, extent)


def _blocks(
    name: str, extents: Sequence[int], kernel_size: Extents, dilation: Extents, padding: Extents, stride: Extents
) -> list[Window]:
    sizes, spacing = numbers(kernel_size, 2, name, "kernel_size"), numbers(dilation, 2, name, "dilation")
    pads, steps = numbers(padding, 2, name, "padding"), numbers(stride, 2, name, "stride")
    for what, values in (("kernel size", sizes), ("dilation", spacing), ("stride", steps)):
        if min(values) <= 0:
            raise UsageError(f"{name}: {what} should be greater than zero, but got {list(values)}")
    if min(pads) < 0:
        raise UsageError(f"{name}: padding should be non-negative, but got {list(pads)}")
    spans = zip(extents, sizes, steps, pads, spacing, strict=True)
    return [Window(k, s, p, d, (n + 2 * p - d * (k - 1) - 1) // s + 1) for n, k, s, p, d in spans]


def _described(blocks: list[Window]) -> str:
    a, b = blocks
    return (
        f"kernel_size={(a.size, b.size)}, dilation={(a.dilation, b.dilation)}, padding={(a.padding, b.padding)}, "
        f"stride={(a.stride, b.stride)}"
    )


def _max_unpool(
    ndim: int,
    input: Tensor,
    indices: Tensor,
    kernel_size: Extents,
    stride: Extents | None,
    padding: Extents,
    output_size: Sequence[int] | None,
) -> Tensor:
    name = f"max_unpool{ndim}d"
    if input.ndim not in (ndim + 1, ndim + 2):
        raise ShapeError(f"{name}: expected a {ndim + 1}D or {ndim + 2}D input, but got {list(input.shape)}")
    if indices.dtype is not int64:
        raise DTypeError(f"elements in indices should be type int64 but got: {indices.dtype}")
    if indices.shape != input.shape:
        raise ShapeError(
            f"Expected shape of indices to be same as that of the input tensor ({list(input.shape)}) but got indices "
            f"tensor with shape: {list(indices.shape)}"
        )
    sizes = numbers(kernel_size, ndim, name, "kernel_size")
    steps = sizes if stride is None else numbers(stride, ndim, name, "stride")
    pads = numbers(padding, ndim, name, "padding")
    spans = zip(input.shape[-ndim:], sizes, steps, pads, strict=True)
    default = [(n - 1) * s + k - 2 * p for n, k, s, p in spans]
    wanted = default if output_size is None else _unpooled_size(list(output_size), default, steps)
    lead = input.shape[: input.ndim - ndim]
    zeros = input.new_zeros((*lead, prod(wanted)))
    flat = (*lead, prod(input.shape[-ndim:]))
    filled = zeros.scatter(-1, indices.reshape(flat), input.reshape(flat)).reshape(*lead, *wanted)
    return laid_out_as(filled, input) if ndim == 2 else filled


def _unpooled_size(wanted: list[int], default: list[int], stride: tuple[int, ...]) -> list[int]:
    ndim = len(default)
    if len(wanted) == ndim + 2:
        wanted = wanted[2:]
    if len(wanted) != ndim:
        raise ArgumentError(
            f"output_size should be a sequence containing {ndim} or {ndim + 2} elements, but it has a length of "
            f"'{len(wanted)}'"
        )
    for axis, (n, normal, step) in enumerate(zip(wanted, default, stride, strict=True)):
        if not normal - step < n < normal + step:
            raise ArgumentError(
                f"invalid output_size {wanted} (dim {axis} must be between {normal - step} and {normal + step})"
            )
    return wanted


@refuses("bool int complex")
@no_view_of_parts
def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Extents,
    stride: Extents | None = None,
    padding: Extents = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Put what ``max_pool1d`` kept back where ``indices`` say it was; zeros elsewhere.

    Shapes: ``f[(n,) c, windows], i64[(n,) c, windows] -> f[(n,) c, length]``.

    Raises:
        RuntimeError: shapes differ, or an index is out of range.
        ValueError: an ``output_size`` that pooling would not make this input of.

    Example:
        >>> import autojit as aj
        >>> from autojit.nn import functional as F
        >>> F.max_unpool1d(aj.tensor([[5.0, 7.0]]), aj.tensor([[1, 2]]), 2)
        tensor([[0., 5., 7., 0.]])
    """
    return _max_unpool(1, input, indices, kernel_size, stride, padding, output_size)


@refuses("bool int complex")
@no_view_of_parts
def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Extents,
    stride: Extents | None = None,
    padding: Extents = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """The same for images; see ``max_unpool1d``."""
    return _max_unpool(2, input, indices, kernel_size, stride, padding, output_size)


@refuses("bool int complex")
@no_view_of_parts
def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Extents,
    stride: Extents | None = None,
    padding: Extents = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """The same for volumes; see ``max_unpool1d``."""
    return _max_unpool(3, input, indices, kernel_size, stride, padding, output_size)
