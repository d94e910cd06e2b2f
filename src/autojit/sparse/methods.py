"""Methods of SparseTensor that other modules of this folder compute: attached here, so that the class needs none."""

from __future__ import annotations

from typing import Any, NoReturn

from autojit.core.dtypes import DType
from autojit.core.errors import ShapeError, UnsupportedError
from autojit.core.layout import Layout, sparse_coo, sparse_csr
from autojit.dispatch.inplace import check_writable
from autojit.dispatch.promotion import cast
from autojit.functions.copying import warn_of_hooks
from autojit.sparse.construct import as_layout, coalesced, gradient_of_places, masked
from autojit.sparse.rules import dense, values_at
from autojit.sparse.tensor import SparseTensor, make, words
from autojit.tensor import Tensor
from autojit.tensor.tensor import type_of


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


def copy_(self: SparseTensor, src: Any, non_blocking: bool = False) -> Tensor:
    """Take the places of another sparse tensor of this shape, and its values in this dtype.

    Raises:
        RuntimeError: the other is dense, or has another shape.
    """
    check_writable(self._values_part, "copy_", (src,))
    if not isinstance(src, SparseTensor) or type_of(src).shape != type_of(self).shape:
        raise ShapeError(
            "copy_: a sparse tensor takes the elements of a sparse one of its shape",
            {"self": type_of(self), "src": src},
            "convert it first: src.to_sparse()",
        )
    self._become(src.with_values(src._values_part, type_of(self).dtype))
    return self


def zero_(self: SparseTensor) -> Tensor:
    """All elements become zero: none is kept."""
    check_writable(self._values_part, "zero_", ())
    none = self._index_part[:, :0]
    self._become(
        make(none, self._values_part.detach()[:0], type_of(self).shape, self._layout, True, None, self._blocksize)
    )
    return self


def _rebuilt(parts: tuple[Any, ...], requires_grad: bool) -> Tensor:
    return make(*parts).requires_grad_(requires_grad)


def __reduce_ex__(self: SparseTensor, protocol: Any) -> tuple[Any, ...]:
    """How it is pickled: places, values and whether it requires gradients."""
    warn_of_hooks(self._values_part)
    parts = (
        self._index_part, self._values_part.detach(), type_of(self).shape, self._layout, self._is_coalesced,
        self._row_starts, self._blocksize,
    )  # fmt: skip
    return _rebuilt, (parts, self.requires_grad)


def storage(self: SparseTensor) -> NoReturn:
    """Not there: places and values have each their own."""
    raise UnsupportedError(
        f"Cannot access storage of {words(self._layout)} tensors", {"self": type_of(self)}, "x.values() has one"
    )


def untyped_storage(self: SparseTensor) -> NoReturn:
    """Not there, as ``storage`` is not."""
    storage(self)


def _coalesced_(self: SparseTensor, coalesced: bool) -> SparseTensor:
    """The tensor, which from now on counts as one whose places are in order and there once, or not."""
    self._require_coo("_coalesced_")
    self._is_coalesced = bool(coalesced)
    return self


for _method in (
    _part_of, _from_part, _coalesced_, coalesce, to_dense, to_sparse, to_sparse_csr, sparse_mask, storage,
    untyped_storage, copy_, zero_, __reduce_ex__,
):  # fmt: skip
    setattr(SparseTensor, _method.__name__, _method)
