"""The standard's extension ``linalg``, and its products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import autojit as aj
from autojit.array_api.promotion import computed, together
from autojit.core.dtypes import DType
from autojit.core.wrapping import named
from autojit.tensor import Tensor


def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The matrix product."""
    return aj.matmul(*together(x1, x2))


def matrix_transpose(x: Tensor, /) -> Tensor:
    """The last two axes exchanged."""
    return x.mT


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: Any = 2) -> Tensor:
    """The product over several axes."""
    return computed(np.tensordot, *together(x1, x2), axes)


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The inner product of vectors, the first one conjugated."""
    x, y = aj.broadcast_tensors(*together(x1, x2))
    return aj.sum(aj.conj(x) * y, axis, dtype=x.dtype)


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """All products of elements of two vectors."""
    return aj.outer(*together(x1, x2))


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The vector product of vectors of three elements.

    Raises:
        ValueError: the axis has another extent than 3.
    """
    if x1.shape[axis] != 3 or x2.shape[axis] != 3:
        raise ValueError("cross: both arrays need three elements along the axis")
    return computed(np.cross, *together(x1, x2), axis=axis)


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """The diagonals of matrices."""
    return aj.diagonal(x, offset, -2, -1)


def trace(x: Tensor, /, *, offset: int = 0, dtype: DType | None = None) -> Tensor:
    """The sums of the diagonals of matrices."""
    wanted = aj.uint64 if dtype is None and x.dtype.kind == "uint" else dtype
    return diagonal(x, offset=offset).sum(-1, dtype=wanted)


def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """Norms of matrices."""
    return aj.linalg.matrix_norm(x, ord, keepdim=keepdims)


def vector_norm(x: Tensor, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Tensor:
    """Norms of vectors."""
    return aj.linalg.vector_norm(x, ord, axis, keepdim=keepdims)


def matrix_power(x: Tensor, n: int, /) -> Tensor:
    """Powers of square matrices."""
    return aj.linalg.matrix_power(x, n)


def matrix_rank(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """Ranks of matrices: singular values above ``rtol`` times the greatest."""
    return aj.linalg.matrix_rank(x, rtol=rtol)


def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """The triangular factor of positive matrices."""
    return aj.linalg.cholesky(x, upper=upper)


def slogdet(x: Tensor, /) -> Any:
    """Signs and logarithms of the determinants."""
    return aj.linalg.slogdet(x)


def eig(x: Tensor, /) -> Any:
    """Eigenvalues and eigenvectors of square matrices, complex."""
    return aj.linalg.eig(x)


def eigh(x: Tensor, /) -> Any:
    """Eigenvalues and eigenvectors of symmetric matrices."""
    return aj.linalg.eigh(x)


def pinv(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """Pseudo-inverses."""
    return aj.linalg.pinv(x, rtol=rtol)


def qr(x: Tensor, /, *, mode: str = "reduced") -> Any:
    """The QR factors."""
    return aj.linalg.qr(x, mode)


def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """What ``x1`` maps to ``x2``: a vector when ``x2`` has one axis, else matrices."""
    return computed(np.linalg.solve, *together(x1, x2))


def svd(x: Tensor, /, *, full_matrices: bool = True) -> Any:
    """Singular vectors and values."""
    return aj.linalg.svd(x, full_matrices)


def _of_matrices(name: str, doc: str) -> Callable[..., Tensor]:
    compute: Callable[..., Tensor] = getattr(aj.linalg, name)

    def function(x: Tensor, /) -> Tensor:
        return compute(x)

    return named(function, name, doc)


det = _of_matrices("det", "Determinants.")
eigvals = _of_matrices("eigvals", "Eigenvalues of square matrices, complex.")
eigvalsh = _of_matrices("eigvalsh", "Eigenvalues of symmetric matrices.")
inv = _of_matrices("inv", "Inverses of square matrices.")
svdvals = _of_matrices("svdvals", "Singular values.")

__all__ = [
    "cholesky", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv", "matmul", "matrix_norm",
    "matrix_power", "matrix_rank", "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals",
    "tensordot", "trace", "vecdot", "vector_norm",
]  # fmt: skip
