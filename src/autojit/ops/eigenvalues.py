"""Eigenvalues and eigenvectors of square matrices that need not be Hermitian; eager through LAPACK (numpy.linalg).

Both are complex, the vectors of length 1. Their derivatives exist where eigenvalues are distinct; those of vectors are
those of any vectors of length 1, whose phase LAPACK chooses. Source: Boeddeker et al., arXiv:1701.00392.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from autojit.core.dtypes import DType
from autojit.core.types import TensorType
from autojit.ir.op import O, Operands, bind_all
from autojit.ops.by_name import apply
from autojit.ops.failed_matrices import lapack
from autojit.ops.linalg import MatrixOp, solve
from autojit.ops.matmul import adjoint_matrix, matmul
from autojit.ops.samples import Samples
from autojit.ops.shape import reshape
from autojit.ops.triangles import diag_embed, eye
from autojit.ops.views import diagonal

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Eig", "eig"]

_DIVERGED = "The algorithm failed to converge because the input matrix is ill-conditioned or has NaN."


class Eig(MatrixOp):
    """Eigenvalues and eigenvectors (columns) of square matrices: ``(n, n) -> (n,), (n, n)``, both complex."""

    refuses: ClassVar[bool] = True
    n_outputs: ClassVar[int] = 2

    def result_type(self, a: TensorType) -> tuple[TensorType, TensorType]:
        self._require_square(a)
        wide = a.dtype.to_complex()
        return a.with_shape(a.shape[:-1]).with_dtype(wide), a.with_dtype(wide)

    def eager(self, a: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        values, vectors = lapack("eig", _DIVERGED, np.linalg.eig, a)
        wide = np.result_type(a.dtype, np.complex64)
        return np.asarray(values).astype(wide), np.asarray(vectors).astype(wide)

    def vjp(self, primals: Operands, result: Any, y_bar: Any) -> Sequence[Any]:
        (a,), (values, vectors), (values_bar, vectors_bar) = primals, result, y_bar
        inner = None if values_bar is None else diag_embed(values_bar)
        transposed = adjoint_matrix(vectors)
        if vectors_bar is not None:
            overlap = matmul(transposed, vectors_bar)
            stretched = apply("mul", vectors, _as_complex(_row(_real_diagonal(overlap)), vectors))
            turned = apply("sub", overlap, matmul(transposed, stretched))
            turned = apply("mul", turned, apply("conj", _gaps(values)))
            inner = turned if inner is None else apply("add", inner, turned)
        if inner is None:
            return (None,)
        a_bar = solve(transposed, matmul(inner, transposed))
        return (a_bar if a.spec.dtype.is_complex else apply("real", a_bar),)

    def jvp(self, primals: Operands, result: Any, tangents: Operands) -> Any:
        (values, vectors), (a_dot,) = result, tangents
        if a_dot is None:
            return (None, None)
        inner = solve(vectors, matmul(_as_complex(a_dot, vectors), vectors))
        values_dot = diagonal(inner, 0, inner.spec.ndim - 2, inner.spec.ndim - 1)
        turned = matmul(vectors, apply("mul", inner, _gaps(values)))
        growth = _real_diagonal(matmul(adjoint_matrix(vectors), turned))
        return (values_dot, apply("sub", turned, apply("mul", vectors, _as_complex(_row(growth), vectors))))

    @staticmethod
    def samples(dtype: DType) -> Samples:
        return []  # LAPACK chooses the phases of the vectors


def _row(x: O) -> O:
    return reshape(x, (*x.spec.shape[:-1], 1, x.spec.shape[-1]))


def _real_diagonal(x: O) -> O:
    return apply("real", diagonal(x, 0, x.spec.ndim - 2, x.spec.ndim - 1))


def _as_complex(x: O, like: Any) -> O:
    return x if x.spec.dtype.is_complex else apply("cast", x, dtype=like.spec.dtype)


def _gaps(values: O) -> O:
    """``1 / (values[j] - values[i])`` at (i, j), 0 on the diagonal."""
    n = values.spec.shape[-1]
    identity = eye(values, n, n, values.spec.dtype)
    between = apply("sub", _row(values), reshape(values, (*values.spec.shape, 1)))
    return apply("sub", apply("reciprocal", apply("add", between, identity)), identity)


def eig(a: O) -> tuple[O, O]:
    """(eigenvalues, eigenvectors as columns) of square matrices."""
    values, vectors = bind_all(Eig(), a)
    return values, vectors
