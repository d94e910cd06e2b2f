"""What dense tensors say of their layout, and how they become sparse ones."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

from autojit.core.dtypes import DType
from autojit.core.errors import UnsupportedError, UsageError
from autojit.core.layout import Layout, strided
from autojit.core.ports import ports
from autojit.core.wrapping import named
from autojit.dispatch.promotion import cast
from autojit.tensor.tensor import Tensor, type_of


def layout(self: Tensor) -> Layout:
    """How the elements are kept: ``strided`` of a dense tensor."""
    return strided


def is_sparse(self: Tensor) -> bool:
    """Whether the layout is ``sparse_coo``."""
    return False


def to_dense(self: Tensor, dtype: DType | None = None, *, masked_grad: bool | None = None) -> Tensor:
    """All elements in memory: the tensor itself."""
    return self if dtype is None else cast(self, dtype)


def to_sparse(
    self: Tensor, sparse_dim: Any = None, *, layout: Any = None, blocksize: Any = None, dense_dim: int | None = None
) -> Tensor:
    """The elements that are not zero, with their places; differentiable.

    Args:
        sparse_dim: how many leading axes have their places kept (all by default); values have the other axes.
        layout: ``sparse_coo`` (the default), or one of matrices: ``sparse_csr``, ``sparse_csc``, ``sparse_bsr``,
            ``sparse_bsc``.
        blocksize: the extents of the blocks of ``sparse_bsr`` and ``sparse_bsc``.

    Raises:
        RuntimeError: inside a captured step, where the number of such elements is not known.
    """
    found: Tensor = ports.sparse.to_sparse(self, sparse_dim, layout=layout, blocksize=blocksize, dense_dim=dense_dim)
    return found


def to_sparse_csr(self: Tensor, dense_dim: int | None = None) -> Tensor:
    """The elements of a matrix that are not zero, by rows; differentiable."""
    found: Tensor = ports.sparse.to_sparse_csr(self, dense_dim)
    return found


def sparse_mask(self: Tensor, mask: Tensor) -> Tensor:
    """The elements at the places of a sparse tensor of the same shape; differentiable."""
    found: Tensor = ports.sparse.masked(self, mask)
    return found


def sparse_dim(self: Tensor) -> int:
    """The number of axes whose places are kept: 0 of a dense tensor."""
    return 0


def dense_dim(self: Tensor) -> int:
    """The number of axes that are kept whole: all of a dense tensor."""
    return type_of(self).ndim


def _refuse(self: Tensor, name: str, wanted: str) -> NoReturn:
    if name.startswith("_"):
        raise UnsupportedError(f"{name} is not implemented for a dense tensor", {"input": self}, "x.to_sparse()")
    raise UsageError(f"{name} expected {wanted} layout but got Strided", {"input": self}, "x.to_sparse()")


def is_coalesced(self: Tensor) -> bool:
    """Of sparse tensors only."""
    _refuse(self, "is_coalesced", "sparse coordinate tensor")


def _nnz(self: Tensor) -> int:
    """Of sparse tensors only."""
    _refuse(self, "_nnz", "sparse tensor")


def _refusing(name: str, wanted: str) -> Callable[[Tensor], Tensor]:
    """A method that only sparse tensors have."""

    def method(self: Tensor) -> Tensor:
        _refuse(self, name, wanted)

    return named(method, name, "Of sparse tensors only.")


def _by_layout(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that is the sparse tensor's own one even when it is called as ``Tensor.to_dense(x)``."""

    @functools.wraps(method)
    def called(self: Tensor, *arguments: Any, **options: Any) -> Any:
        of_layout = method if self.layout is strided else _own_of(type(self), name)
        return of_layout(self, *arguments, **options)

    return called


def _own_of(kind: type[Tensor], name: str) -> Any:
    """What the class of a layout says under a name; a program's classes that follow from it may ask for just that."""
    return next(vars(k)[name] for k in kind.__mro__ if name in vars(k) and k.__module__.startswith("autojit."))


_PLAIN = (sparse_dim, dense_dim, to_dense, to_sparse, to_sparse_csr, sparse_mask, is_coalesced, _nnz)
METHODS: dict[str, Any] = {method.__name__: method for method in _PLAIN}
METHODS |= {n: _refusing(n, "sparse coordinate tensor") for n in ("indices", "coalesce")}
METHODS |= {n: _refusing(n, "sparse tensor") for n in ("values", "_indices", "_values")}
METHODS |= {n: _refusing(n, "sparse row compressed tensor") for n in ("crow_indices", "col_indices")}
METHODS |= {n: _refusing(n, "sparse column compressed tensor") for n in ("ccol_indices", "row_indices")}
METHODS = {name: _by_layout(name, method) for name, method in METHODS.items()}
METHODS |= {"layout": property(layout)} | dict.fromkeys(("is_sparse", "is_sparse_csr"), property(is_sparse))
