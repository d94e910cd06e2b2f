"""Eigenvalues and eigenvectors of square matrices that need not be Hermitian; eager through LAPACK (numpy.linalg).

Both are complex, the vectors of length 1. Their derivatives exist where eigenvalues are distinct; those of vectors are
those of any vectors of length 1, whose phase LAPACK chooses. Source: Boeddeker et al., arXiv:1701.00392.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from autojit.core.dtypes import DType
from autojit.core.types import TensorType
from autojit.ir.op import Ndarray, O, Operands, bind_all
from autojit.ops.base import tangent_sum
from autojit.ops.decompositions import gaps
from autojit.ops.elementwise_arithmetic import cast, mul, sub
from autojit.ops.elementwise_complex import conj, real
from autojit.ops.failed_matrices import DIVERGED, lapack
from autojit.ops.linalg import MatrixOp, solve
from autojit.ops.matmul import adjoint_matrix, matmul
from autojit.ops.samples import Samples
from autojit.ops.shape import reshape
from autojit.ops.triangles import diag_embed
from autojit.ops.views import diagonal

__all__ = ["Eig", "eig"]


class Eig(MatrixOp):
    """Eigenvalues and eigenvectors (columns) of square matrices: ``(n, n) -> (n,), (n, n)``, both complex."""

    refuses: ClassVar[bool] = True
    n_outputs: ClassVar[int] = 2

    def result_type(self, a: TensorType) -> tuple[TensorType, TensorType]:
        self._require_square(a)
        wide = a.dtype.to_complex()
        return a.with_shape(a.shape[:-1]).with_dtype(wide), a.with_dtype(wide)

    def eager(self, a: Ndarray) -> tuple[Ndarray, Ndarray]:
        values, vectors = lapack("eig", DIVERGED, np.linalg.eig, a)
        wide = np.result_type(a.dtype, np.complex64)
        return np.asarray(values).astype(wide), np.asarray(vectors).astype(wide)

    def vjp(self, primals: Operands, result: Any, y_bar: Any) -> Sequence[Any]:
        (a,), (values, vectors), (values_bar, vectors_bar) = primals, result, y_bar
        inner = None if values_bar is None else diag_embed(values_bar)
        transposed = adjoint_matrix(vectors)
        if vectors_bar is not None:
            overlap = matmul(transposed, vectors_bar)
            stretched = mul(vectors, cast(_row(_real_diagonal(overlap)), vectors.spec.dtype))
            turned = sub(overlap, matmul(transposed, stretched))
            inner = tangent_sum(inner, mul(turned, conj(gaps(values, values.spec.dtype))))
        if inner is None:
            return (None,)
        a_bar = solve(transposed, matmul(inner, transposed))
        return (a_bar if a.spec.dtype.is_complex else real(a_bar),)

    def jvp(self, primals: Operands, result: Any, tangents: Operands) -> Any:
        (values, vectors), (a_dot,) = result, tangents
        if a_dot is None:
            return (None, None)
        inner = solve(vectors, matmul(cast(a_dot, vectors.spec.dtype), vectors))
        values_dot = diagonal(inner, 0, -2, -1)
        turned = matmul(vectors, mul(inner, gaps(values, values.spec.dtype)))
        growth = _row(_real_diagonal(matmul(adjoint_matrix(vectors), turned)))
        return (values_dot, sub(turned, mul(vectors, cast(growth, vectors.spec.dtype))))

    @staticmethod
    def samples(dtype: DType) -> Samples:
        return []  # LAPACK chooses the phases of the vectors


def _row(x: O) -> O:
    return reshape(x, (*x.spec.shape[:-1], 1, x.spec.shape[-1]))


def _real_diagonal(x: O) -> O:
    return real(diagonal(x, 0, -2, -1))


def eig(a: O) -> tuple[O, O]:
    """(eigenvalues, eigenvectors as columns) of square matrices."""
    values, vectors = bind_all(Eig(), a)
    return values, vectors
