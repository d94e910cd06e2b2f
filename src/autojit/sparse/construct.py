"""Making sparse tensors: from parts, from dense tensors, in another layout."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from autojit.core.device import DeviceLike
from autojit.core.device_array import host_copy
from autojit.core.dtypes import DType, int64
from autojit.core.errors import ShapeError, UsageError
from autojit.core.layout import Layout, sparse_bsc, sparse_bsr, sparse_coo, sparse_csc, sparse_csr, strided
from autojit.core.top_level import top_level
from autojit.dispatch.on_device import moved, placed, where_to
from autojit.dispatch.promotion import cast
from autojit.dispatch.requirements import is_known, require
from autojit.functions import counted as functions_counted
from autojit.functions.factories import arange, as_tensor, zeros
from autojit.functions.index_functions import searchsorted
from autojit.functions.shape import stack
from autojit.ops.refused_values import refused_facts
from autojit.sparse.rules import dense, gathered, places, transposed, values_at
from autojit.sparse.tensor import SparseTensor, concrete_indices, make, words
from autojit.tensor import Tensor
from autojit.tensor.state import outside_trace
from autojit.tensor.tensor import type_of, wrap


@top_level
def sparse_coo_tensor(
    indices: Any = None, values: Any = None, size: Any = None, *, dtype: DType | None = None, device: Any = None,
    pin_memory: bool = False, requires_grad: bool = False, check_invariants: bool | None = None,
    is_coalesced: bool | None = None,
) -> SparseTensor:  # fmt: skip
    """A sparse tensor of places ``i64[sparse_dim, n]`` and values ``f[n, *dense shape]``.

    Without ``size`` the smallest one that holds all places is taken. ``sparse_coo_tensor(size)`` holds no element.
    The result is differentiable with respect to ``values``.

    Raises:
        RuntimeError: places outside ``size``, or numbers of places and values that differ.

    Example:
        >>> import autojit as aj
        >>> s = aj.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3))
        >>> s.to_dense()
        tensor([[0., 0., 3.],
                [4., 0., 0.]])
    """
    if values is None and size is None:  # only a size
        indices, values, size = None, None, indices
    if indices is None:
        shape = tuple(size)
        kept = zeros(0, dtype=dtype, device=device)
        places_ = kept.new_zeros((len(shape), 0), dtype=int64)
        return _leaf(make(places_, kept, shape, sparse_coo, True), requires_grad)
    kept = values_of(values, dtype, device)
    places_ = _indices(indices, kept)
    _check_pairs(places_, kept)
    shape = _smallest(places_, kept) if size is None else tuple(size)
    _check_inside(places_, kept, shape)
    return _leaf(make(places_, kept, shape, sparse_coo, bool(is_coalesced)), requires_grad)


@top_level
def sparse_csr_tensor(
    crow_indices: Any, col_indices: Any, values: Any, size: Any = None, *, dtype: DType | None = None,
    device: Any = None, pin_memory: bool = False, requires_grad: bool = False, check_invariants: bool | None = None,
) -> SparseTensor:  # fmt: skip
    """A sparse matrix kept by rows: where each row starts (``i64[rows + 1]``), the columns and the values.

    Raises:
        RuntimeError: starts that do not begin at 0, fall, or do not end at the number of values.

    Example:
        >>> import autojit as aj
        >>> aj.sparse_csr_tensor([0, 1, 2], [2, 0], [3.0, 4.0], (2, 3)).to_dense()
        tensor([[0., 0., 3.],
                [4., 0., 0.]])
    """
    kept = values_of(values, dtype, device)
    starts, columns = _indices(crow_indices, kept), _indices(col_indices, kept)
    if type_of(starts).ndim != 1 or type_of(columns).ndim != 1:
        raise UsageError("sparse_csr_tensor: crow_indices and col_indices must be vectors (batches are not kept)")
    count = type_of(columns).shape[0]
    rows = type_of(starts).shape[0] - 1
    if starts._array is not None:
        _check_starts(host_copy(starts._array), count)
    if size is None:
        size = (rows, int(host_copy(columns._array).max()) + 1 if count else 0)
    if size[0] != rows:
        raise UsageError(
            f"crow_indices.numel() must be rows + 1: got {rows + 1} of them and {size[0]} rows",
            {"crow_indices": starts}, "pass the start of every row and the total",
        )  # fmt: skip
    row = _rows(starts, count)
    both = stack([row, columns])
    _check_pairs(both, kept)
    shape = (*tuple(size)[:2], *type_of(kept).shape[1:])
    _check_inside(both, kept, shape)
    return _leaf(make(both, kept, shape, sparse_csr, True, starts), requires_grad)


def _rows(starts: Tensor, count: int) -> Tensor:
    """The row of each value."""
    if starts._array is not None:
        first = host_copy(starts._array)
        return placed(wrap(np.repeat(np.arange(len(first) - 1), np.diff(first))), type_of(starts).device)
    return searchsorted(starts, arange(count, device=type_of(starts).device), right=True) - 1


def of_kind(dtype: DType) -> Any:
    """The constructor of older programs that names the dtype: ``(indices, values, size)``, or only the extents."""

    def construct(*parts: Any) -> Tensor:
        if all(isinstance(p, int) for p in parts):
            return sparse_coo_tensor(parts or (0,), dtype=dtype, device="cpu")
        return sparse_coo_tensor(*parts, dtype=dtype, device="cpu")

    construct.__doc__ = f"A COO tensor of {dtype}: see ``sparse_coo_tensor``."
    return construct


def _check_starts(starts: Any, count: int) -> None:
    if starts[0] != 0:
        raise UsageError("`crow_indices[..., 0] == 0` is not satisfied.", {"crow_indices": starts[:8]})
    if starts[-1] != count:
        raise UsageError("`crow_indices[..., -1] == nnz` is not satisfied.", {"last": starts[-1], "nnz": count})
    if (np.diff(starts) < 0).any():
        raise UsageError("`0 <= crow_indices[..., 1:] - crow_indices[..., :-1]` is not satisfied.", {})


def _indices(given: Any, values: Tensor) -> Tensor:
    """The indices as int64, where the values are."""
    place = type_of(values).device
    if not isinstance(given, Tensor):
        with outside_trace():
            found: Tensor = as_tensor(given, device=place)
        return cast(found, int64) if type_of(found).size == 0 else _integers(found)
    return _integers(moved(given, place))


def _integers(given: Tensor) -> Tensor:
    if type_of(given).dtype.is_complex:
        raise TypeError(f"indices must be integers, but got {type_of(given).dtype}")
    return cast(given, int64).detach()


def values_of(given: Any, dtype: DType | None, device: DeviceLike) -> Tensor:
    """The values on the device that is asked for; else a tensor stays where it is."""
    if isinstance(given, Tensor):
        kept = given if device is None else moved(given, where_to(device))
    else:
        kept = as_tensor(given, device=device)
    kept = kept if dtype is None else cast(kept, dtype)
    return kept.view_as(kept) if kept.requires_grad else kept.detach()


def _leaf(made: SparseTensor, requires_grad: bool) -> SparseTensor:
    return made.with_values(made._values_part.detach().requires_grad_()) if requires_grad else made


def _check_pairs(indices: Tensor, values: Tensor) -> None:
    where, what = type_of(indices).shape, type_of(values).shape
    if len(where) != 2:
        raise ShapeError(f"indices must be sparse_dim x nnz, but got: {list(where)}", {"indices": indices})
    if not what or what[0] != where[1]:
        raise ShapeError(
            f"indices and values must have same nnz, but got nnz from indices: {where[1]}, nnz from values: "
            f"{what[0] if what else 1}",
            {"indices": indices, "values": values},
        )


def _smallest(indices: Tensor, values: Tensor) -> tuple[int, ...]:
    array = None if indices._array is None else host_copy(indices._array)
    if array is None:
        raise UsageError("sparse_coo_tensor: inside a captured step the size must be given", fix="pass size=")
    if array.size and array.min() < 0:
        raise UsageError("found negative index " + str(int(array.min())), {"indices": indices})
    extents = array.max(axis=1) + 1 if array.shape[1] else np.zeros(array.shape[0], np.int64)
    return (*(int(n) for n in extents), *type_of(values).shape[1:])


def _check_inside(indices: Tensor, values: Tensor, shape: tuple[int, ...]) -> None:
    n = type_of(indices).shape[0]
    if n + type_of(values).ndim - 1 != len(shape):
        raise ShapeError(
            f"number of dimensions must be sparse_dim ({n}) + dense_dim ({type_of(values).ndim - 1}), but got "
            f"{len(shape)}",
            {"indices": indices, "values": values, "size": shape},
        )
    if tuple(shape[n:]) != type_of(values).shape[1:]:
        raise ShapeError(
            f"values has incorrect size, expected {list(shape[n:])} for each element, got "
            f"{list(type_of(values).shape[1:])}",
            {"values": values, "size": shape},
        )
    if not is_known(indices):
        extents = as_tensor([[int(extent)] for extent in shape[:n]], device=type_of(indices).device)
        valid = "0 to the size of the dimension - 1"
        require(indices, lambda i: i >= 0, "found negative index", valid, named="indices")
        require(indices, lambda i: i < extents, "size is inconsistent with indices", valid, named="indices")
        return
    array: Any = host_copy(indices._array)
    if not array.size:
        return
    for axis in range(n):
        low, high, valid = int(array[axis].min()), int(array[axis].max()), f"0 to {shape[axis] - 1}"
        said = f"row {axis} of indices"
        if low < 0:
            facts = refused_facts(array[axis] < 0, said, valid, array[axis])
            raise UsageError(f"found negative index {low} for dim {axis}", {"indices": indices, **facts})
        if high >= shape[axis]:
            facts = refused_facts(array[axis] >= shape[axis], said, valid, array[axis])
            raise UsageError(
                f"size is inconsistent with indices: for dim {axis}, size is {shape[axis]} but found index {high}",
                {"indices": indices, "size": shape, **facts},
            )


def coalesced(s: SparseTensor) -> SparseTensor:
    """Each place once, in order; values of the same place are added."""
    if s._is_coalesced:
        return s
    if s._index_part._array is None:
        return _coalesced_in_step(s)
    places_ = host_copy(s._index_part._array)
    extents = type_of(s).shape[: places_.shape[0]]
    flat = np.ravel_multi_index(tuple(places_), extents) if places_.shape[0] else np.zeros(places_.shape[1], np.int64)
    unique, inverse = np.unique(flat, return_inverse=True)
    kept = s._values_part
    new = np.array(np.unravel_index(unique, extents)) if places_.shape[0] else np.zeros((0, len(unique)), np.int64)
    if len(unique) == len(flat) and (inverse == np.arange(len(flat))).all():
        return make(s._index_part, kept, type_of(s).shape, sparse_coo, True)
    place = type_of(kept).device
    total = zeros((len(unique), *type_of(kept).shape[1:]), dtype=type_of(kept).dtype, device=place)
    summed = total.index_add(0, placed(wrap(np.ascontiguousarray(inverse.reshape(-1))), place), kept)
    indices = placed(wrap(np.ascontiguousarray(new, dtype=np.int64)), place)
    return make(indices, summed, type_of(s).shape, sparse_coo, True)


def _coalesced_in_step(s: SparseTensor) -> SparseTensor:
    """`coalesced` of a captured tensor: the step counts how many different places there are."""
    shape, kept = type_of(s).shape, s._values_part
    unique, inverse = functions_counted.unique(places(s), return_inverse=True)
    total = kept.new_zeros((type_of(unique).shape[0], *type_of(kept).shape[1:]))
    axes = range(s.sparse_dim())
    if axes:
        strides = [prod(shape[axis + 1 : len(axes)]) for axis in axes]
        indices = stack([unique // stride % shape[axis] for axis, stride in zip(axes, strides, strict=True)])
    else:
        indices = unique.new_zeros((0, type_of(unique).shape[0]))
    return make(indices, total.index_add(0, inverse, kept), shape, sparse_coo, True)


def gradient_of_places(s: SparseTensor, values: Tensor) -> SparseTensor:
    """The gradient of a tensor that keeps a place several times: each of them has it, the place has it once."""
    shape = type_of(s).shape
    if s._index_part._array is not None:
        array = host_copy(s._index_part._array)
        flat = np.ravel_multi_index(tuple(array), shape[: array.shape[0]])
        _, first = np.unique(flat, return_index=True)
        chosen = placed(wrap(first), type_of(values).device)
        return make(s._index_part[:, chosen], values.index_select(0, chosen), shape, sparse_coo, True)
    flat_places, numbers = places(s), arange(s._nnz(), device=type_of(values).device)
    marked = numbers.new_zeros((prod(shape[: s.sparse_dim()]),)).index_put((flat_places,), numbers)
    is_chosen = marked.index_select(0, flat_places) == numbers
    axes = (s._nnz(), *([1] * (type_of(values).ndim - 1)))
    return s.with_values(values * is_chosen.reshape(axes))


def as_layout(s: SparseTensor, layout: Layout, blocksize: Any = None) -> Tensor:
    """The same elements in another layout."""
    return dense(s) if layout is strided and blocksize is None else in_layout(s, layout, blocksize)


def in_layout(s: SparseTensor, layout: Layout, blocksize: Any = None) -> SparseTensor:
    """The same elements in another layout of sparse tensors."""
    is_by_blocks = layout in (sparse_bsr, sparse_bsc)
    if isinstance(blocksize, int):
        blocksize = (blocksize, blocksize)
    if is_by_blocks is not (blocksize is not None):
        raise UsageError(
            f"dense_to_sparse: conversion to {words(layout)} {'with' if blocksize is not None else 'without'} "
            "blocksize argument given is not supported", {"input": type_of(s), "blocksize": blocksize},
            "blocksize=(rows, columns) goes with sparse_bsr and sparse_bsc only",
        )  # fmt: skip
    if layout is s._layout and (blocksize is None or tuple(blocksize) == s._blocksize):
        return s
    if layout is sparse_coo:
        return make(s._index_part, s._values_part, type_of(s).shape, sparse_coo, True)
    if s.sparse_dim() != 2:
        raise UsageError("to_sparse_csr: only matrices have the CSR layout", {"input": type_of(s)})
    once = coalesced(s)
    if is_by_blocks:
        return _by_blocks(once, layout, tuple(blocksize))
    if layout is sparse_csc:
        return make(once._index_part, once._values_part, type_of(s).shape, layout, True)
    rows = concrete_indices(once, "to_sparse_csr")[0]
    starts = np.searchsorted(rows, np.arange(type_of(s).shape[0] + 1)).astype(np.int64)
    return make(
        once._index_part, once._values_part, type_of(s).shape, sparse_csr, True, placed(wrap(starts), type_of(s).device)
    )


def _by_blocks(s: SparseTensor, layout: Layout, blocksize: tuple[int, int]) -> SparseTensor:
    """Keep all elements of every block that has one."""
    shape, (high, wide) = type_of(s).shape, blocksize
    if len(shape) != 2 or shape[0] % high or shape[1] % wide:
        raise UsageError(
            f"dense_to_sparse: tensor sparse size ({','.join(map(str, shape))}) must be divisible by given blocksize "
            f"({high},{wide})", {"input": type_of(s)}, "choose extents that divide those of the matrix",
        )  # fmt: skip
    rows, columns = concrete_indices(s, "to_sparse")
    kept = np.zeros((shape[0] // high, shape[1] // wide), bool)
    kept[rows // high, columns // wide] = True
    every = np.array(np.nonzero(np.kron(kept, np.ones(blocksize, bool))), dtype=np.int64)
    with outside_trace():
        where = placed(wrap(np.ascontiguousarray(every)), type_of(s).device)
    pattern = make(where, s._values_part.new_zeros((every.shape[1],)), shape, layout, True, None, blocksize)
    return pattern.with_values(values_at(s, pattern))


def to_sparse(
    self: Tensor, sparse_dim: Any = None, *, layout: Layout | None = None, blocksize: Any = None, dense_dim: Any = None
) -> Tensor:
    """The elements of a dense tensor that are not zero (at its present values), differentiably."""
    if isinstance(sparse_dim, Layout):
        layout, sparse_dim = sparse_dim, None
    ndim = type_of(self).ndim
    kept_axes = ndim - (dense_dim or 0) if sparse_dim is None else int(sparse_dim)
    if not 0 <= kept_axes <= ndim:
        raise UsageError(f"sparse_dim must be in [0, {ndim}], but got {kept_axes}", {"input": self})
    array = None if self._array is None else host_copy(self._array)
    if array is None:
        raise UsageError(
            "to_sparse: the number of elements that are not zero is not known inside a captured step",
            {"input": self}, "use .sparse_mask(pattern), or convert before the step",
        )  # fmt: skip
    filled = array.reshape(*array.shape[:kept_axes], -1).any(axis=-1) if kept_axes < ndim else array != 0
    found = np.array(np.nonzero(filled) if kept_axes else np.zeros((0, int(filled)), np.int64), dtype=np.int64)
    with outside_trace():
        where = placed(wrap(np.ascontiguousarray(found)), type_of(self).device)
    made = make(where, gathered(self, where), type_of(self).shape, sparse_coo, True)
    return made if layout is None and blocksize is None else as_layout(made, layout or sparse_coo, blocksize)


def to_sparse_csr(self: Tensor, dense_dim: int | None = None) -> Tensor:
    """The elements of a dense matrix that are not zero, kept by rows."""
    if type_of(self).ndim < 2:
        raise UsageError("to_sparse_csr: only matrices have the CSR layout", {"input": self})
    return to_sparse(self, layout=sparse_csr, dense_dim=dense_dim)


def masked(x: Tensor, mask: Tensor) -> Tensor:
    """The elements of ``x`` (dense or sparse) at the places of ``mask``, differentiably."""
    if not isinstance(mask, SparseTensor):
        raise UsageError("sparse_mask: the mask must be a sparse tensor", {"mask": mask})
    if type_of(x).shape != type_of(mask).shape:
        raise ShapeError("sparse_mask(): operands have incompatible sizes", {"input": x, "mask": type_of(mask)})
    return mask.with_values(values_at(x, mask))


__all__ = [
    "as_layout", "coalesced", "masked", "places", "sparse_coo_tensor", "sparse_csr_tensor", "to_sparse",
    "to_sparse_csr", "transposed",
]  # fmt: skip
