"""Frequencies of a transform's entries, and their order along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autojit import ops
from autojit.core.dtypes import DType, default_dtype
from autojit.core.errors import DTypeError
from autojit.functions.factories import arange, finish
from autojit.functions.out_arguments import with_out
from autojit.ops.base import normalize_axis
from autojit.tensor import Tensor
from autojit.tensor.tensor import type_of


@with_out
def fftfreq(
    n: int,
    d: float = 1.0,
    *,
    dtype: DType | None = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """The frequencies of ``fft``'s entries for samples at distance ``d``, in cycles per unit of ``d``: ``[n]``.

    Example:
        >>> import autojit as aj
        >>> aj.fft.fftfreq(4)
        tensor([ 0.0000,  0.2500, -0.5000, -0.2500])
    """
    kind = _floating("fftfreq", dtype)
    positive = (n + 1) // 2
    counts = ops.concatenate([arange(positive, dtype=kind), arange(-(n // 2), 0, dtype=kind)])
    return finish(_over(counts, n, d), requires_grad, device)


@with_out
def rfftfreq(
    n: int,
    d: float = 1.0,
    *,
    dtype: DType | None = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """The frequencies of ``rfft``'s entries for samples at distance ``d``: ``[n // 2 + 1]``.

    Example:
        >>> import autojit as aj
        >>> aj.fft.rfftfreq(4)
        tensor([0.0000, 0.2500, 0.5000])
    """
    kind = _floating("rfftfreq", dtype)
    return finish(_over(arange(n // 2 + 1, dtype=kind), n, d), requires_grad, device)


def _floating(name: str, dtype: DType | None) -> DType:
    kind = default_dtype() if dtype is None else dtype
    if kind.category < 2:
        raise DTypeError(f"{name} requires a floating point or complex dtype", {"dtype": kind})
    return kind


def _over(counts: Tensor, n: int, d: float) -> Tensor:
    """torch multiplies by the reciprocal; a distance of 0 gives infinite frequencies."""
    distance = n * d
    return counts * (1.0 / distance if distance else float("inf"))


def fftshift(input: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """Move the zero frequency to the middle of the axes (all by default).

    Example:
        >>> import autojit as aj
        >>> aj.fft.fftshift(aj.arange(5))
        tensor([3, 4, 0, 1, 2])
    """
    return _rolled(input, dim, 0)


def ifftshift(input: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """The inverse of ``fftshift``.

    Example:
        >>> import autojit as aj
        >>> aj.fft.ifftshift(aj.tensor([3, 4, 0, 1, 2]))
        tensor([0, 1, 2, 3, 4])
    """
    return _rolled(input, dim, 1)


def _rolled(x: Tensor, dim: int | Sequence[int] | None, more: int) -> Tensor:
    shape = type_of(x).shape
    given = range(len(shape)) if dim is None else [dim] if isinstance(dim, int) else dim
    axes = [normalize_axis(axis, len(shape), "fftshift") for axis in given]
    return ops.roll(x, [(shape[axis] + more) // 2 for axis in axes], axes) if axes else x.clone()
