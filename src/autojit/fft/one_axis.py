"""Transforms along one axis.

All take ``n``, the number of points (the operand is cut or padded with zeros at its end; by default its extent), the
axis ``dim`` and ``norm``: "backward" divides inverse transforms by ``n``, "forward" the others, "ortho" both by
its root.
Integers become the default float. Errors are torch's: RuntimeError for fewer than one point, an unknown ``norm`` or a
dtype without a transform, IndexError for an axis out of range.
"""

from __future__ import annotations

from typing import Any

from autojit import ops
from autojit.fft.arguments import (
    OPPOSITE,
    axis_of,
    complex_operand,
    norm_of,
    real_operand,
    require_points,
    resized,
    size_of,
)  # fmt: skip
from autojit.functions.out_arguments import with_out
from autojit.tensor import Tensor
from autojit.tensor.tensor import type_of


def _points(name: str, x: Tensor, n: Any, axis: int) -> int:
    return require_points(type_of(x).shape[axis] if n is None else size_of(name, n))


def _complex(name: str, x: Any, n: Any, dim: int, norm: str | None, is_inverse: bool) -> Tensor:
    operand = complex_operand(x, name)
    axis = axis_of(operand, dim)
    points = _points(name, operand, n, axis)
    mode = norm_of(norm)
    return ops.fft(resized(operand, [points], [axis]), (axis,), is_inverse, mode)


def _half(operand: Tensor, name: str, n: Any, dim: int, mode: str) -> Tensor:
    axis = axis_of(operand, dim)
    points = _points(name, operand, n, axis)
    return ops.rfft(resized(operand, [points], [axis]), axis, mode)


def _whole(name: str, x: Any, n: Any, dim: int, mode: str, is_conjugate: bool) -> Tensor:
    operand = complex_operand(x, name)
    axis = axis_of(operand, dim)
    points = require_points(2 * (type_of(operand).shape[axis] - 1) if n is None else size_of(name, n))
    half = resized(operand, [points // 2 + 1], [axis])
    return ops.irfft(ops.conj(half) if is_conjugate else half, points, axis, mode)


@with_out
def fft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The transform ``sum over j of x[j] exp(-2 pi i j k / n)``: ``[..., m] -> c[..., n]``.

    Example:
        >>> import autojit as aj
        >>> aj.fft.fft(aj.tensor([1.0, 0.0, 0.0, 0.0]))
        tensor([1.+0.j, 1.+0.j, 1.+0.j, 1.+0.j])
    """
    return _complex("fft", input, n, dim, norm, False)


@with_out
def ifft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of ``fft``: ``[..., m] -> c[..., n]``.

    Example:
        >>> import autojit as aj
        >>> aj.fft.ifft(aj.fft.fft(aj.tensor([1.0, 2.0]))).real
        tensor([1., 2.])
    """
    return _complex("ifft", input, n, dim, norm, True)


@with_out
def rfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The half ``k = 0, ..., n // 2`` of a real tensor's ``fft``: ``f[..., m] -> c[..., n // 2 + 1]``.

    The rest of the spectrum mirrors it.

    Example:
        >>> import autojit as aj
        >>> aj.fft.rfft(aj.ones(4))
        tensor([4.+0.j, 0.+0.j, 0.+0.j])
    """
    return _half(real_operand(input, "rfft"), "rfft", n, dim, norm_of(norm))


@with_out
def irfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of ``rfft``; an odd ``n`` must be given: ``[..., m] -> f[..., n]``, by default ``n = 2 (m - 1)``.

    Example:
        >>> import autojit as aj
        >>> aj.fft.irfft(aj.fft.rfft(aj.tensor([1.0, 2.0, 3.0])), n=3)
        tensor([1., 2., 3.])
    """
    return _whole("irfft", input, n, dim, norm_of(norm), False)


@with_out
def hfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """``fft`` of a Hermitian signal given by its first half; the result is real: ``[..., m] -> f[..., n]``.

    By default ``n = 2 (m - 1)``.

    Example:
        >>> import autojit as aj
        >>> aj.fft.hfft(aj.ones(2))
        tensor([2., 0.])
    """
    return _whole("hfft", input, n, dim, OPPOSITE[norm_of(norm)], True)


@with_out
def ihfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of ``hfft``: ``f[..., m] -> c[..., n // 2 + 1]``.

    Example:
        >>> import autojit as aj
        >>> aj.fft.ihfft(aj.tensor([2.0, 0.0])).real
        tensor([1., 1.])
    """
    return ops.conj(_half(real_operand(input, "ihfft"), "ihfft", n, dim, OPPOSITE[norm_of(norm)]))
