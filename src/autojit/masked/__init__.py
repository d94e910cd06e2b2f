"""Reductions and normalisations over the elements that a mask keeps (``torch.masked``).

Every function takes ``mask``, a bool tensor that broadcasts to the operand: True keeps an element. ``dtype`` converts
the operand first; sums and products of integers and bools are int64.

Example:
    >>> import autojit as aj
    >>> x, keep = aj.tensor([[1.0, 2.0], [3.0, 4.0]]), aj.tensor([[True, False], [True, True]])
    >>> aj.masked.mean(x, 1, mask=keep)
    tensor([1.0000, 3.5000])
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from autojit.core.dtypes import DType, int64
from autojit.core.errors import ArgumentError, UnsupportedDTypeError
from autojit.dispatch.promotion import cast
from autojit.functions import comparison as comparison
from autojit.functions import elementwise as elementwise
from autojit.functions import order as order
from autojit.functions import reduction as reduction
from autojit.functions.factories import full_like
from autojit.functions.namespace import iinfo
from autojit.ops.base import normalize_axes
from autojit.tensor import Tensor
from autojit.tensor.tensor import type_of

__all__ = [
    "amax", "amin", "argmax", "argmin", "cumprod", "cumsum", "log_softmax", "logaddexp", "logsumexp", "mean", "median",
    "norm", "normalize", "prod", "softmax", "softmin", "std", "sum", "var",
]  # fmt: skip

Axes = int | Sequence[int] | None
Axis = int | None
Mask = Tensor | None


def _converted(input: Tensor, dtype: DType | None, widens: bool = False) -> Tensor:
    own = type_of(input).dtype
    return cast(input, dtype or (int64 if widens and own.category < 2 else own))


def _kept(input: Tensor, mask: Mask, other: Any) -> Tensor:
    """The operand with ``other`` where the mask leaves an element out."""
    if mask is None:
        return input
    if mask.dtype.name != "bool":
        raise ArgumentError(f"masked: mask must be a bool tensor, but got {mask.dtype}", {"mask": mask}, "mask.bool()")
    return comparison.where(mask, input, other)


def _axes(input: Tensor, dim: Axes) -> tuple[int, ...]:
    if dim is None or (isinstance(dim, Sequence) and not dim):
        return tuple(range(type_of(input).ndim))
    return (dim,) if isinstance(dim, int) else tuple(dim)


def _least(dtype: DType, greatest: bool = False) -> Any:
    """The smallest (or greatest) number of a dtype, infinities included."""
    if dtype.is_complex:
        raise UnsupportedDTypeError(f"masked: complex numbers have no order: {dtype}")
    if dtype.is_floating_point:
        return math.inf if greatest else -math.inf
    if dtype.name == "bool":
        return greatest
    limits = iinfo(dtype)
    return limits.max if greatest else limits.min


def sum(
    input: Tensor, dim: Axes = None, *, keepdim: bool | None = False, dtype: DType | None = None, mask: Mask = None
) -> Tensor:
    """The sum over ``dim`` (all axes by default); 0 where nothing is kept."""
    x = _converted(input, dtype, widens=True)
    return reduction.sum(_kept(x, mask, 0), _axes(x, dim), bool(keepdim))


def prod(
    input: Tensor, dim: Axes = None, *, keepdim: bool | None = False, dtype: DType | None = None, mask: Mask = None
) -> Tensor:
    """The product over ``dim``; 1 where nothing is kept."""
    x = _converted(input, dtype, widens=True)
    found = _kept(x, mask, 1)
    is_none = isinstance(dim, Sequence) and not dim  # as in torch: of its masked functions only this one goes over none
    for axis in reversed(() if is_none else normalize_axes(_axes(x, dim), max(type_of(x).ndim, 1), "prod")):
        found = reduction.prod(found, axis, bool(keepdim))
    return found


def cumsum(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Mask = None) -> Tensor:
    """The running sum along ``dim``."""
    x = _converted(input, dtype)
    return order.cumsum(_kept(x, mask, 0), dim, dtype=type_of(x).dtype)


def cumprod(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Mask = None) -> Tensor:
    """The running product along ``dim``."""
    x = _converted(input, dtype)
    return order.cumprod(_kept(x, mask, 1), dim, dtype=type_of(x).dtype)


def amax(
    input: Tensor, dim: Axes = None, *, keepdim: bool | None = False, dtype: DType | None = None, mask: Mask = None
) -> Tensor:
    """The largest kept element over ``dim``; the dtype's least number where nothing is kept."""
    x = _converted(input, dtype)
    return reduction.amax(_kept(x, mask, _least(type_of(x).dtype)), _axes(x, dim), bool(keepdim))


def amin(
    input: Tensor, dim: Axes = None, *, keepdim: bool | None = False, dtype: DType | None = None, mask: Mask = None
) -> Tensor:
    """The smallest kept element over ``dim``; the dtype's greatest number where nothing is kept."""
    x = _converted(input, dtype)
    return reduction.amin(_kept(x, mask, _least(type_of(x).dtype, greatest=True)), _axes(x, dim), bool(keepdim))


def argmax(
    input: Tensor, dim: Axis = None, *, keepdim: bool | None = False, dtype: DType | None = None, mask: Mask = None
) -> Tensor:
    """The position of the largest kept element, in the operand's dtype as in torch."""
    x = _converted(input, dtype)
    found = reduction.argmax(_kept(x, mask, _least(type_of(x).dtype)), dim, bool(keepdim))
    return cast(found, type_of(x).dtype)


def argmin(
    input: Tensor, dim: Axis = None, *, keepdim: bool | None = False, dtype: DType | None = None, mask: Mask = None
) -> Tensor:
    """The position of the smallest kept element, in the operand's dtype as in torch."""
    x = _converted(input, dtype)
    found = reduction.argmin(_kept(x, mask, _least(type_of(x).dtype, greatest=True)), dim, bool(keepdim))
    return cast(found, type_of(x).dtype)


def _count(x: Tensor, mask: Mask, axes: tuple[int, ...]) -> Tensor:
    """How many elements are kept over the axes, which stay with extent 1."""
    ones = _kept(full_like(x.detach(), 1, dtype=int64), mask, 0)
    return reduction.sum(ones, axes, True)


def _shaped(found: Tensor, axes: tuple[int, ...], keepdim: bool | None) -> Tensor:
    return found if keepdim or not axes else found.squeeze(axes)


def mean(
    input: Tensor, dim: Axes = None, *, keepdim: bool | None = False, dtype: DType | None = None, mask: Mask = None
) -> Tensor:
    """The mean over ``dim``; NaN where nothing is kept."""
    x = _converted(input, dtype)
    axes = _axes(x, dim)
    total = reduction.sum(_kept(x, mask, 0), axes, True)
    return _shaped(elementwise.div(total, _count(x, mask, axes)), axes, keepdim)


def median(
    input: Tensor, dim: int = -1, *, keepdim: bool = False, dtype: DType | None = None, mask: Mask = None
) -> Tensor:
    """The lower median along ``dim`` of floats; NaN where nothing is kept, or a NaN is."""
    x = _converted(input, dtype)
    if not type_of(x).dtype.is_floating_point:
        raise ValueError(f"input must be of floating point dtype, got {x.dtype}")
    found = _kept(x, mask, math.nan).nanmedian(dim, keepdim).values
    is_nan = x.isnan() if mask is None else x.isnan() & mask
    return comparison.where(is_nan.any(dim, keepdim), math.nan, found)


def var(
    input: Tensor,
    dim: Axes = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool | None = False,
    dtype: DType | None = None,
    mask: Mask = None,
) -> Tensor:
    """The variance over ``dim``: squares divided by the number of kept elements less ``correction`` (1 by default)."""
    if unbiased is not None and correction is not None:
        raise ArgumentError("Only one of unbiased and correction may be given")
    less = correction if correction is not None else float(unbiased is None or unbiased)
    x = _converted(input, dtype)
    axes = _axes(x, dim)
    count = _count(x, mask, axes)
    centre = elementwise.div(reduction.sum(_kept(x, mask, 0), axes, True), count)
    apart = _kept(elementwise.sub(x, centre), mask, 0)
    squares = elementwise.mul(apart, apart.conj()).real if type_of(apart).dtype.is_complex else apart.square()
    freedom = comparison.clamp(elementwise.sub(count, less), min=0)
    found = elementwise.div(reduction.sum(squares, axes, True), freedom)
    if type_of(x).dtype.category >= 2:
        found = cast(found, type_of(x).dtype)  # also complex, as in torch
    return _shaped(found, axes, keepdim)


def std(
    input: Tensor,
    dim: Axes = None,
    unbiased: bool | None = None,
    *,
    correction: int | None = None,
    keepdim: bool | None = False,
    dtype: DType | None = None,
    mask: Mask = None,
) -> Tensor:
    """The square root of ``var``."""
    spread = var(input, dim, unbiased, correction=correction, keepdim=keepdim, dtype=dtype, mask=mask)
    return elementwise.sqrt(spread)


def norm(
    input: Tensor,
    ord: float | None = 2.0,
    dim: Axes = None,
    *,
    keepdim: bool | None = False,
    dtype: DType | None = None,
    mask: Mask = None,
) -> Tensor:
    """The vector norm of order ``ord`` over ``dim``; 0 where nothing is kept."""
    x = _converted(input, dtype)
    order = 2.0 if ord is None else ord
    neutral = math.inf if order == -math.inf else 0
    return reduction.norm(_kept(x, mask, neutral), order, _axes(x, dim), bool(keepdim))


def normalize(
    input: Tensor, ord: float, dim: int, *, eps: float = 1e-12, dtype: DType | None = None, mask: Mask = None
) -> Tensor:
    """The operand over its norm along ``dim``, at least ``eps``; 0 where the mask leaves out."""
    x = _converted(input, dtype)
    size = norm(x, ord, dim, keepdim=True, mask=mask)
    return elementwise.div(_kept(x, mask, 0), comparison.clamp(size, min=eps))


def softmax(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Mask = None) -> Tensor:
    """The softmax along ``dim`` of the kept elements, 0 elsewhere; NaN where nothing is kept."""
    return _kept(_converted(input, dtype), mask, -math.inf).softmax(dim)


def log_softmax(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Mask = None) -> Tensor:
    """The logarithm of ``softmax``."""
    return _kept(_converted(input, dtype), mask, -math.inf).log_softmax(dim)


def softmin(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Mask = None) -> Tensor:
    """The softmax of the negated operand."""
    return (-_kept(_converted(input, dtype), mask, math.inf)).softmax(dim)


def logsumexp(
    input: Tensor, dim: Axes = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Mask = None
) -> Tensor:
    """``log(sum(exp(x)))`` over ``dim``; minus infinity where nothing is kept."""
    x = _converted(input, dtype)
    if type_of(x).dtype.category < 2:
        found = reduction.logsumexp(_kept(x, mask, iinfo(type_of(x).dtype).min), _axes(x, dim), keepdim)
        return cast(found, type_of(x).dtype)
    return reduction.logsumexp(_kept(x, mask, -math.inf), _axes(x, dim), keepdim)


def logaddexp(
    input: Tensor, other: Tensor, *, dtype: DType | None = None, input_mask: Mask = None, other_mask: Mask = None
) -> Tensor:
    """``log(exp(x) + exp(y))`` of what both masks keep; minus infinity where neither does."""
    x, y = _converted(input, dtype), _converted(other, dtype)
    return elementwise.logaddexp(_kept(x, input_mask, -math.inf), _kept(y, other_mask, -math.inf))
