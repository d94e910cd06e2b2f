"""Folding elements into places by index: ``scatter_reduce`` and ``index_reduce``.

Each is one scatter that folds elements in where they meet, after the places that elements reach were set to the fold's
neutral element if the old ones take no part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autojit import ops
from autojit.core.dtypes import bool_, int32, int64
from autojit.core.errors import DTypeError, UsageError
from autojit.core.sizes import surely_equal
from autojit.dispatch.declared import declared
from autojit.dispatch.promotion import cast
from autojit.functions.comparison import eq, where
from autojit.functions.elementwise import add, div, floor_divide
from autojit.functions.index_functions import (
    from_the_front,
    index_add,
    index_fill,
    require_slices,
    scatter,
    scatter_add,
)
from autojit.functions.own_memory import no_view_of_parts
from autojit.functions.views import narrow
from autojit.ops.base import normalize_axis
from autojit.tensor.tensor import Tensor, type_of

_REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")
FOLDS = {"prod": "mul", "amax": "max", "amin": "min"}


@declared(in_place="values", out=True)
def scatter_reduce(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """``input`` with the elements of ``src`` folded into the places ``index`` along ``dim``.

    Shapes: ``f[.., n, ..], i64[.., k, ..], f[.., k, ..] -> f[.., n, ..]``; along other axes ``index`` may be smaller.

    Args:
        reduce: ``"sum"``, ``"prod"``, ``"mean"``, ``"amax"`` or ``"amin"``.
        include_self: whether the old element takes part where something is folded in.

    Raises:
        RuntimeError: ``reduce`` is unknown, or the dtypes of ``input`` and ``src`` differ.

    Example:
        >>> import autojit as aj
        >>> x, i = aj.tensor([1.0, 2.0, 3.0, 4.0]), aj.tensor([0, 0, 1, 1])
        >>> aj.zeros(3).scatter_reduce(0, i, x, reduce="amax", include_self=False)
        tensor([2., 4., 0.])
    """
    _check("scatter_reduce", input, src, reduce)
    if type_of(input).ndim == 0:
        line = scatter_reduce(
            input.reshape(1), 0, index.reshape(-1), src.reshape(-1), reduce, include_self=include_self
        )
        return line.reshape(())
    axis = normalize_axis(dim, type_of(input).ndim, "scatter_reduce")
    if any(surely_equal(n, 0) for n in type_of(index).shape):
        return ops.scatter(input, axis, index, src)
    piece = src
    for other, extent in enumerate(type_of(index).shape):
        piece = narrow(piece, other, 0, extent)
    if type_of(input).dtype is bool_:
        reduce = {"sum": "amax", "prod": "amin"}.get(reduce, reduce)  # any, all
    if reduce in ("sum", "mean"):
        ones = piece.detach().new_ones(type_of(piece).shape)
        counts = scatter_add(input.detach().new_zeros(type_of(input).shape), axis, index, ones)
        return _summed(lambda kept: scatter_add(kept, axis, index, piece), input, counts, reduce, include_self)
    kept = input
    if not include_self:
        reached = scatter(input.detach().new_zeros(type_of(input).shape, dtype=bool_), axis, index, value=True)
        kept = where(reached, _neutral(input, reduce), input)
    return ops.scatter_fold(kept, axis, from_the_front(index), piece, FOLDS[reduce])


@declared(in_place="values", out=True)
@no_view_of_parts
def index_reduce(
    input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """``input`` with the slices of ``source`` along ``dim`` folded into the positions ``index``.

    Args:
        reduce: ``"prod"``, ``"mean"``, ``"amax"`` or ``"amin"``.
        include_self: whether the old slice takes part where something is folded in.

    Raises:
        RuntimeError: ``reduce`` is unknown, or the dtypes of ``input`` and ``source`` differ.

    Example:
        >>> import autojit as aj
        >>> aj.ones(2).index_reduce(0, aj.tensor([1, 1]), aj.tensor([3.0, 4.0]), "prod")
        tensor([ 1., 12.])
    """
    _check("index_reduce", input, source, reduce)
    normalize_axis(dim, type_of(input).ndim, "index_reduce")
    require_slices("index_reduce", input, source)
    if type_of(input).ndim == 0:
        line = index_reduce(
            input.reshape(1), 0, index.reshape(-1), source.reshape(-1), reduce, include_self=include_self
        )
        return line.reshape(())
    axis = normalize_axis(dim, type_of(input).ndim, "index_reduce")
    index = cast(index, int64) if type_of(index).dtype is int32 else index
    if reduce in ("sum", "mean"):
        ones = source.detach().new_ones(type_of(source).shape)
        counts = index_add(input.detach().new_zeros(type_of(input).shape), axis, index, ones)
        return _summed(lambda kept: index_add(kept, axis, index, source), input, counts, reduce, include_self)
    kept = input
    if not include_self:
        line = index_fill(input.detach().new_zeros(type_of(input).shape[axis], dtype=bool_), 0, index, True)
        shape = [1] * type_of(input).ndim
        shape[axis] = -1
        kept = where(line.reshape(shape), _neutral(input, reduce), input)
    return ops.index_fold(kept, axis, from_the_front(index), source, FOLDS[reduce])


def _check(name: str, input: Tensor, src: Tensor, reduce: str) -> None:
    if reduce not in _REDUCTIONS:
        raise UsageError(f"{name}(): reduce argument must be one of {', '.join(_REDUCTIONS)}, got {reduce}")
    if type_of(src).dtype is not type_of(input).dtype:
        raise DTypeError(f"{name}(): Expected self.dtype to be equal to src.dtype", {"input": input, "src": src})


def _summed(to: Callable[[Tensor], Tensor], input: Tensor, counts: Tensor, reduce: str, include_self: bool) -> Tensor:
    total = to(input if include_self else where(eq(counts, 0), input, 0))
    if reduce == "sum":
        return total
    divisor = add(counts, 1) if include_self else where(eq(counts, 0), 1, counts)
    return div(total, divisor) if type_of(total).dtype.is_differentiable else floor_divide(total, divisor)


def _neutral(input: Tensor, reduce: str) -> Any:
    return {"prod": 1, "amax": _extreme(input, -1), "amin": _extreme(input, 1)}[reduce]


def _extreme(input: Tensor, sign: int) -> float | int:
    """The greatest (or least) value of the dtype."""
    dtype = type_of(input).dtype
    if dtype.is_floating_point:
        return sign * float("inf")
    if dtype.name == "bool":
        return sign > 0
    bits = dtype.size_bytes * 8
    if dtype.kind == "uint":
        return (1 << bits) - 1 if sign > 0 else 0
    return (1 << (bits - 1)) - 1 if sign > 0 else -(1 << (bits - 1))
