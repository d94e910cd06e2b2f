"""Methods of SparseTensor that other modules of this folder compute: attached here, so that the class needs none."""

from __future__ import annotations

from typing import Any

from autojit.core.dtypes import DType
from autojit.core.layout import Layout, sparse_coo, sparse_csr
from autojit.dispatch.promotion import cast
from autojit.sparse.construct import as_layout, coalesced, gradient_of_places, masked
from autojit.sparse.rules import dense, values_at
from autojit.sparse.tensor import SparseTensor
from autojit.tensor import Tensor


def _part_of(self: SparseTensor, other: Any) -> Any:
    """The values of ``other`` (sparse or dense) at this tensor's places."""
    return values_at(other, self) if isinstance(other, Tensor) else other


def _from_part(self: SparseTensor, part: Tensor | None) -> Tensor | None:
    """The gradient of the values as one of the tensor: sparse, with the same places."""
    if part is None or self._is_coalesced:
        return None if part is None else self.with_values(part)
    return gradient_of_places(self, part)


def coalesce(self: SparseTensor) -> SparseTensor:
    """Each place once, in order; values of the same place are added."""
    self._require_coo("coalesce")
    return coalesced(self)


def to_dense(self: SparseTensor, dtype: DType | None = None, *, masked_grad: bool | None = None) -> Tensor:
    """All elements, in memory."""
    found = dense(self)
    return found if dtype is None else cast(found, dtype)


def to_sparse(self: SparseTensor, *arguments: Any, layout: Layout | None = None, blocksize: Any = None) -> Tensor:
    """COO (or ``layout``)."""
    return as_layout(self, layout or sparse_coo, blocksize)


def to_sparse_csr(self: SparseTensor, dense_dim: int | None = None) -> Tensor:
    """CSR."""
    return as_layout(self, sparse_csr)


def sparse_mask(self: SparseTensor, mask: Tensor) -> Tensor:
    """The elements at the places of another sparse tensor."""
    return masked(self, mask)


def _coalesced_(self: SparseTensor, coalesced: bool) -> SparseTensor:
    """The tensor, which from now on counts as one whose places are in order and there once, or not."""
    self._require_coo("_coalesced_")
    self._is_coalesced = bool(coalesced)
    return self


for _method in (_part_of, _from_part, _coalesced_, coalesce, to_dense, to_sparse, to_sparse_csr, sparse_mask):
    setattr(SparseTensor, _method.__name__, _method)
