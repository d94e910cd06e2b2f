"""Softmax of sparse tensors: what is not kept counts as minus infinity, so only kept elements are normalised."""

from __future__ import annotations

from math import prod

from autojit.core.dtypes import DType
from autojit.core.errors import AxisError, ShapeError
from autojit.core.layout import sparse_coo
from autojit.dispatch.promotion import cast
from autojit.functions.elementwise import exp, log, sub
from autojit.sparse.rules import once
from autojit.sparse.tensor import SparseTensor
from autojit.tensor import Tensor
from autojit.tensor.tensor import type_of


def softmax(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """Softmax over the kept elements along an axis of a COO tensor; a new one of the same places.

    Raises:
        TypeError: the tensor is not sparse in COO layout.

    Example:
        >>> import autojit as aj
        >>> scores = aj.tensor([[0.0, 0.0, 5.0], [1.0, 0.0, 1.0]]).to_sparse()
        >>> aj.sparse.softmax(scores, 1).to_dense()
        tensor([[0.0000, 0.0000, 1.0000],
                [0.5000, 0.0000, 0.5000]])
    """
    return _normalised(input, dim, dtype, "softmax")


def log_softmax(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """The logarithm of `softmax`.

    Raises:
        TypeError: the tensor is not sparse in COO layout.

    Example:
        >>> import autojit as aj
        >>> aj.sparse.log_softmax(aj.tensor([[0.0, 3.0], [1.0, 1.0]]).to_sparse(), 1).values()
        tensor([ 0.0000, -0.6931, -0.6931])
    """
    return _normalised(input, dim, dtype, "log_softmax")


def _normalised(x: Tensor, dim: int, dtype: DType | None, name: str) -> Tensor:
    if not isinstance(x, SparseTensor) or x._layout is not sparse_coo:
        raise TypeError(f"sparse.{name}: expected a sparse COO tensor, but got one of layout {x.layout!r}")
    ndim = type_of(x).ndim
    if not -ndim <= dim < ndim:
        raise AxisError(f"sparse.{name}: Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], but "
                        f"got {dim})", {"input": x})  # fmt: skip
    s = once(x)
    values = s._values_part if dtype is None else cast(s._values_part, dtype)
    axis = dim % ndim
    if axis >= s.sparse_dim():
        inner = axis - s.sparse_dim() + 1
        return s.with_values(values.softmax(inner) if name == "softmax" else values.log_softmax(inner))
    if not type_of(values).dtype.is_floating_point:
        raise ShapeError(f"sparse.{name}: the values must be floating-point numbers", {"input": x}, "pass dtype")
    group, count = _groups(s, axis)
    place = group.reshape((-1, *[1] * (values.ndim - 1))).expand(type_of(values).shape)
    empty = values.detach().new_full((count, *type_of(values).shape[1:]), -float("inf"))
    most = empty.scatter_reduce(0, place, values.detach(), "amax", include_self=True)
    shifted = sub(values, most.gather(0, place))
    total = values.new_zeros((count, *type_of(values).shape[1:])).scatter_add(0, place, exp(shifted)).gather(0, place)
    return s.with_values(exp(shifted) / total if name == "softmax" else sub(shifted, log(total)))


def _groups(s: SparseTensor, axis: int) -> tuple[Tensor, int]:
    """A number for each kept place, the same for places that differ along the axis alone; and how many there are."""
    others = [a for a in range(s.sparse_dim()) if a != axis]
    extents = [type_of(s).shape[a] for a in others]
    number = s._index_part[axis] * 0
    for a, extent in zip(others, extents, strict=True):
        number = number * extent + s._index_part[a]
    return number, prod(extents)


__all__ = ["log_softmax", "softmax"]
