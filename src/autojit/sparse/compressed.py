"""Sparse matrices given by compressed rows or columns, of numbers or of blocks, and products under older names."""

from __future__ import annotations

from typing import Any

from autojit.core.dtypes import DType
from autojit.core.errors import UsageError
from autojit.core.layout import Layout, sparse_bsc, sparse_bsr, sparse_coo, sparse_csc, sparse_csr
from autojit.dispatch.declared import declared
from autojit.functions.factories import arange
from autojit.functions.products import mm
from autojit.functions.shape import stack
from autojit.sparse.construct import as_layout, in_layout, sparse_coo_tensor, sparse_csr_tensor, values_of
from autojit.sparse.rules import transposed
from autojit.tensor import Tensor
from autojit.tensor.tensor import type_of

__all__ = [
    "hspmm", "saddmm", "smm", "sparse_bsc_tensor", "sparse_bsr_tensor", "sparse_compressed_tensor",
    "sparse_csc_tensor", "spmm", "sspaddmm", "to_sparse_bsc", "to_sparse_bsr", "to_sparse_coo", "to_sparse_csc",
]  # fmt: skip


@declared(method=False)
def sparse_csc_tensor(
    ccol_indices: Any,
    row_indices: Any,
    values: Any,
    size: Any = None,
    *,
    dtype: DType | None = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> Tensor:
    """A sparse matrix kept by columns: where each column starts (``i64[columns + 1]``), the rows and the values.

    Raises:
        RuntimeError: starts that do not begin at 0, fall, or do not end at the number of values.

    Example:
        >>> import autojit as aj
        >>> aj.sparse_csc_tensor([0, 1, 2], [1, 0], [3.0, 4.0], (2, 2)).to_dense()
        tensor([[0., 4.],
                [3., 0.]])
    """
    turned = None if size is None else (size[1], size[0])
    rows = sparse_csr_tensor(ccol_indices, row_indices, values, turned, dtype=dtype, device=device)
    return _leaf(as_layout(transposed(in_layout(rows, sparse_coo)), sparse_csc), requires_grad)


def _leaf(made: Tensor, requires_grad: bool) -> Tensor:
    if requires_grad:
        made.requires_grad = True
    return made


def _blocks(starts: Any, others: Any, values: Any, by_rows: bool, options: dict[str, Any]) -> Tensor:
    """A matrix of blocks ``f[n, high, wide]``, compressed by rows or by columns."""
    kept = values_of(values, options["dtype"], options["device"])
    if type_of(kept).ndim != 3:
        raise UsageError(
            f"values must have 3 axes (blocks, rows, columns), but has {type_of(kept).ndim}", {"values": kept}
        )
    high, wide = type_of(kept).shape[1:]
    size = options["size"]
    counts = None if size is None else (size[0] // high, size[1] // wide)
    grid = counts if by_rows or counts is None else (counts[1], counts[0])
    place = type_of(kept).device
    pattern = sparse_csr_tensor(starts, others, arange(1, type_of(kept).shape[0] + 1, device=place), grid, device=place)
    along, across = in_layout(pattern, sparse_coo).indices()
    block_rows, block_columns = (along, across) if by_rows else (across, along)
    shape = type_of(kept).shape
    rows = (block_rows[:, None, None] * high + arange(high, device=place)[:, None]).expand(shape)
    columns = (block_columns[:, None, None] * wide + arange(wide, device=place)).expand(shape)
    if size is None:
        first, second = type_of(pattern).shape if by_rows else type_of(pattern).shape[::-1]
        size = (first * high, second * wide)
    both = stack([rows.reshape(-1), columns.reshape(-1)])
    entries = sparse_coo_tensor(both, kept.reshape(-1), size, device=place)
    layout = sparse_bsr if by_rows else sparse_bsc
    return _leaf(as_layout(entries.coalesce(), layout, (high, wide)), options["requires_grad"])


@declared(method=False)
def sparse_bsr_tensor(
    crow_indices: Any,
    col_indices: Any,
    values: Any,
    size: Any = None,
    *,
    dtype: DType | None = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> Tensor:
    """A sparse matrix of blocks ``f[n, high, wide]`` kept by rows of blocks.

    Raises:
        RuntimeError: starts that do not begin at 0, fall, or do not end at the number of blocks.

    Example:
        >>> import autojit as aj
        >>> aj.sparse_bsr_tensor([0, 1], [1], [[[1.0, 2.0]]], (1, 4)).to_dense()
        tensor([[0., 0., 1., 2.]])
    """
    options = {"size": size, "dtype": dtype, "device": device, "requires_grad": requires_grad}
    return _blocks(crow_indices, col_indices, values, True, options)


@declared(method=False)
def sparse_bsc_tensor(
    ccol_indices: Any,
    row_indices: Any,
    values: Any,
    size: Any = None,
    *,
    dtype: DType | None = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> Tensor:
    """A sparse matrix of blocks ``f[n, high, wide]`` kept by columns of blocks.

    Raises:
        RuntimeError: starts that do not begin at 0, fall, or do not end at the number of blocks.
    """
    options = {"size": size, "dtype": dtype, "device": device, "requires_grad": requires_grad}
    return _blocks(ccol_indices, row_indices, values, False, options)


_BY_LAYOUT = {
    sparse_csr: sparse_csr_tensor,
    sparse_csc: sparse_csc_tensor,
    sparse_bsr: sparse_bsr_tensor,
    sparse_bsc: sparse_bsc_tensor,
}


@declared(method=False)
def sparse_compressed_tensor(
    compressed_indices: Any,
    plain_indices: Any,
    values: Any,
    size: Any = None,
    *,
    dtype: DType | None = None,
    layout: Layout | None = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> Tensor:
    """A sparse matrix of the compressed ``layout``.

    Raises:
        RuntimeError: ``layout`` is not a compressed one, or the indices do not fit.

    Example:
        >>> import autojit as aj
        >>> aj.sparse_compressed_tensor([0, 1], [1], [5.0], (1, 2), layout=aj.sparse_csr).to_dense()
        tensor([[0., 5.]])
    """
    if layout not in _BY_LAYOUT:
        raise UsageError(
            f"expected sparse compressed tensor layout but got {layout}", fix="layout=sparse_csr, or csc, bsr, bsc"
        )
    make = _BY_LAYOUT[layout]
    options: dict[str, Any] = {"dtype": dtype, "device": device, "requires_grad": requires_grad}
    return make(compressed_indices, plain_indices, values, size, **options)


@declared(function=False)
def to_sparse_coo(self: Tensor) -> Tensor:
    """``to_sparse()``."""
    return self.to_sparse()


@declared(function=False)
def to_sparse_csc(self: Tensor, dense_dim: int | None = None) -> Tensor:
    """The elements of a matrix that are not zero, kept by columns; differentiable."""
    return self.to_sparse(layout=sparse_csc)


@declared(function=False)
def to_sparse_bsr(self: Tensor, blocksize: Any, dense_dim: int | None = None) -> Tensor:
    """The blocks of a matrix that are not all zero, kept by rows; differentiable."""
    return self.to_sparse(layout=sparse_bsr, blocksize=blocksize)


@declared(function=False)
def to_sparse_bsc(self: Tensor, blocksize: Any, dense_dim: int | None = None) -> Tensor:
    """The blocks of a matrix that are not all zero, kept by columns; differentiable."""
    return self.to_sparse(layout=sparse_bsc, blocksize=blocksize)


@declared(aliases="dsmm", method=False)
def spmm(input: Tensor, mat2: Tensor) -> Tensor:
    """The product of matrices of which the first may be sparse.

    Example:
        >>> import autojit as aj
        >>> aj.spmm(aj.eye(2).to_sparse(), aj.ones(2, 1))
        tensor([[1.],
                [1.]])
    """
    return mm(input, mat2)


@declared()
def smm(input: Tensor, mat2: Tensor) -> Tensor:
    """The product of a sparse and a dense matrix, as a sparse one."""
    return mm(input, mat2).to_sparse()


@declared(method=False)
def hspmm(mat1: Tensor, mat2: Tensor, *, out: Any = None) -> Tensor:
    """The product of a sparse and a dense matrix, as one whose rows are sparse."""
    return mm(mat1, mat2).to_sparse(1)


@declared(method=False)
def saddmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1, out: Any = None) -> Tensor:
    """``beta * input + alpha * mat1 @ mat2`` with a sparse ``mat1``."""
    return input * beta + mm(mat1, mat2) * alpha


@declared()
def sspaddmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1, out: Any = None
) -> Tensor:
    """``beta * input + alpha * mat1 @ mat2`` of sparse ``input`` and ``mat1``, as a sparse matrix."""
    return input * beta + smm(mat1, mat2) * alpha
