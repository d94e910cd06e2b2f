"""Transforms along several axes, by default all of them (the last two for the names with 2).

``s`` gives the numbers of points per axis (-1 keeps the extent), ``dim`` the axes, by default the last ones.
The transforms of real tensors halve the last of the axes. ``norm`` and the errors are those of one axis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autojit import ops
from autojit.core.errors import ShapeError
from autojit.core.wrapping import named
from autojit.fft.arguments import (
    OPPOSITE,
    axes_and_sizes,
    complex_operand,
    norm_of,
    real_operand,
    require_points,
    resized,
)  # fmt: skip
from autojit.functions.out_arguments import with_out
from autojit.tensor import Tensor
from autojit.tensor.tensor import type_of

Sizes = Any  # None, an int, or a sequence of ints


def _complex(name: str, x: Any, s: Sizes, dim: Sizes, norm: str | None, is_inverse: bool) -> Tensor:
    operand = complex_operand(x, name)
    axes, sizes = axes_and_sizes(operand, s, dim)
    for n in sizes:
        require_points(n)
    return ops.fft(resized(operand, sizes, axes), axes, is_inverse, norm_of(norm))


def _require_axes(name: str, axes: tuple[int, ...]) -> None:
    if not axes:
        raise ShapeError(f"{name} must transform at least one axis", fix="give an axis in dim")


def _half(operand: Tensor, name: str, s: Sizes, dim: Sizes, mode: str) -> tuple[Tensor, tuple[int, ...]]:
    """The half transform along the last axis, and the other axes."""
    axes, sizes = axes_and_sizes(operand, s, dim)
    _require_axes(name, axes)
    for n in sizes:
        require_points(n)
    return ops.rfft(resized(operand, sizes, axes), axes[-1], mode), axes[:-1]


def _prepared(name: str, x: Any, s: Sizes, dim: Sizes) -> tuple[Tensor, tuple[int, ...], int]:
    """The resized half spectrum, its axes, and the number of points along the last one."""
    operand = complex_operand(x, name)
    axes, sizes = axes_and_sizes(operand, s, dim)
    _require_axes(name, axes)
    last = -1 if s is None else int((s if isinstance(s, list | tuple) else [s])[-1])
    points = require_points(2 * (type_of(operand).shape[axes[-1]] - 1) if last == -1 else last)
    return resized(operand, [*sizes[:-1], points // 2 + 1], axes), axes, points


@with_out
def fftn(input: Tensor, s: Sizes = None, dim: Sizes = None, norm: str | None = None) -> Tensor:
    """``fft`` along every axis of ``dim``.

    Example:
        >>> import autojit as aj
        >>> aj.fft.fftn(aj.ones(2, 2)).real
        tensor([[4., 0.],
                [0., 0.]])
    """
    return _complex("fftn", input, s, dim, norm, False)


@with_out
def ifftn(input: Tensor, s: Sizes = None, dim: Sizes = None, norm: str | None = None) -> Tensor:
    """The inverse of ``fftn``.

    Example:
        >>> import autojit as aj
        >>> aj.fft.ifftn(aj.ones(2, 2)).real
        tensor([[1., 0.],
                [0., 0.]])
    """
    return _complex("ifftn", input, s, dim, norm, True)


@with_out
def rfftn(input: Tensor, s: Sizes = None, dim: Sizes = None, norm: str | None = None) -> Tensor:
    """``rfft`` along the last axis of ``dim``, then ``fft`` along the others.

    Example:
        >>> import autojit as aj
        >>> aj.fft.rfftn(aj.ones(2, 4)).shape
        autojit.Size([2, 3])
    """
    operand = real_operand(input, "rfftn", "a real-valued input tensor")
    mode = norm_of(norm)
    half, others = _half(operand, "rfftn", s, dim, mode)
    return ops.fft(half, others, False, mode)


@with_out
def irfftn(input: Tensor, s: Sizes = None, dim: Sizes = None, norm: str | None = None) -> Tensor:
    """The inverse of ``rfftn``; the last size must be given if it is odd.

    Example:
        >>> import autojit as aj
        >>> aj.fft.irfftn(aj.fft.rfftn(aj.ones(2, 3)), s=(2, 3))
        tensor([[1., 1., 1.],
                [1., 1., 1.]])
    """
    half, axes, points = _prepared("irfftn", input, s, dim)
    mode = norm_of(norm)
    return ops.irfft(ops.fft(half, axes[:-1], True, mode), points, axes[-1], mode)


@with_out
def hfftn(input: Tensor, s: Sizes = None, dim: Sizes = None, norm: str | None = None) -> Tensor:
    """``fftn`` of a Hermitian signal, given by half of its last axis; the result is real.

    Example:
        >>> import autojit as aj
        >>> aj.fft.hfftn(aj.ones(2, 2))
        tensor([[4., 0.],
                [0., 0.]])
    """
    half, axes, points = _prepared("hfftn", input, s, dim)
    mode = norm_of(norm)
    spectrum = ops.conj(ops.fft(half, axes[:-1], False, mode))
    return ops.irfft(spectrum, points, axes[-1], OPPOSITE[mode])


@with_out
def ihfftn(input: Tensor, s: Sizes = None, dim: Sizes = None, norm: str | None = None) -> Tensor:
    """The inverse of ``hfftn``.

    Example:
        >>> import autojit as aj
        >>> aj.fft.ihfftn(aj.ones(2, 2)).real
        tensor([[1., 0.],
                [0., 0.]])
    """
    operand = real_operand(input, "ihfftn", "a real-valued input tensor")
    mode = norm_of(norm)
    half, others = _half(operand, "ihfftn", s, dim, OPPOSITE[mode])
    return ops.fft(ops.conj(half), others, True, mode)


def _along_two(of_axes: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A transform along two axes, by default the last ones."""

    def transform(input: Tensor, s: Sizes = None, dim: Sizes = (-2, -1), norm: str | None = None) -> Tensor:
        return of_axes(input, s, dim, norm)

    return with_out(named(transform, f"{of_axes.__name__[:-1]}2", f"``{of_axes.__name__}`` along two axes."))


fft2, ifft2, rfft2 = _along_two(fftn), _along_two(ifftn), _along_two(rfftn)
irfft2, hfft2, ihfft2 = _along_two(irfftn), _along_two(hfftn), _along_two(ihfftn)
