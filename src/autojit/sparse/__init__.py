"""Sparse tensors: torch.sparse's functions on tensors of which only some elements are kept."""

from __future__ import annotations

from typing import Any

from autojit.core.dtypes import DType, float16, float32, float64, int32, int64
from autojit.core.layout import sparse_coo, sparse_csr
from autojit.core.ports import ports
from autojit.dispatch.promotion import cast as _cast
from autojit.functions import products as _products
from autojit.jit import pytree as _pytree
from autojit.sparse import construct, methods, rules  # noqa: F401  (methods attaches itself)
from autojit.sparse.construct import sparse_coo_tensor, sparse_csr_tensor
from autojit.sparse.diagonals import spdiags as spdiags
from autojit.sparse.products import mm, sampled_addmm
from autojit.sparse.softmaxes import log_softmax, softmax
from autojit.sparse.tensor import SparseTensor, make
from autojit.tensor import Tensor
from autojit.tensor.tensor import type_of as _type_of

_LEGACY = {
    "FloatTensor": float32, "DoubleTensor": float64, "HalfTensor": float16, "IntTensor": int32, "LongTensor": int64,
}  # fmt: skip


def addmm(mat: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1.0, alpha: float = 1.0) -> Tensor:
    """``beta * mat + alpha * (mat1 @ mat2)``."""
    product = _products.mm(mat1, mat2)
    return mat * beta + product * alpha


def sum(input: Tensor, dim: Any = None, dtype: DType | None = None) -> Tensor:
    """The sum of a sparse tensor over ``dim`` (all axes by default); sparse while a sparse axis is left."""
    if not isinstance(input, SparseTensor):
        raise TypeError(f"sparse.sum: expected a sparse tensor, but got one of layout {input.layout!r}")
    s = input if dtype is None else input.with_values(_cast(input._values_part, dtype))
    if dim is None:
        return s._values_part.sum()
    ndim = _type_of(s).ndim
    axes = tuple(sorted({d % ndim for d in ((dim,) if isinstance(dim, int) else dim)}))
    return rules.summed(s, axes)


class _Port:
    """What ``tensor`` asks of this package."""

    apply = staticmethod(rules.apply)
    to_sparse = staticmethod(construct.to_sparse)
    to_sparse_csr = staticmethod(construct.to_sparse_csr)
    masked = staticmethod(construct.masked)
    make = staticmethod(make)


def _taken_apart(s: SparseTensor) -> tuple[list[Tensor], tuple[Any, ...]]:
    parts = [s._index_part, s._values_part] + ([] if s._row_starts is None else [s._row_starts])
    return parts, (_type_of(s).shape, s._layout, s._is_coalesced, s._blocksize)


def _put_together(parts: Any, rest: tuple[Any, ...]) -> SparseTensor:
    shape, layout, is_coalesced, blocksize = rest
    return make(parts[0], parts[1], shape, layout, is_coalesced, parts[2] if len(parts) == 3 else None, blocksize)


for _kind, _dtype in _LEGACY.items():
    globals()[_kind] = construct.of_kind(_dtype)
ports.sparse = _Port()
_pytree.register(SparseTensor, _taken_apart, _put_together)

__all__ = [
    "SparseTensor",
    "addmm",
    "log_softmax",
    "mm",
    "sampled_addmm",
    "softmax",
    "sparse_coo",
    "sparse_coo_tensor",
    "sparse_csr",
    "sparse_csr_tensor",
    "spdiags",
    "sum",
]  # fmt: skip
