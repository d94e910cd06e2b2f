"""The Moore-Penrose inverse and the rank: what depends on which singular values count as zero.

The inverse is an op of its own because its derivative is smooth as long as the rank stays, also where singular values
coincide or vanish and those of the singular vectors do not exist. Source: Golub and Pereyra, SIAM J. Numer. Anal.
10(2), 1973.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from autojit.core.dtypes import DType, int64
from autojit.core.errors import ShapeError
from autojit.core.records import record
from autojit.core.types import TensorType
from autojit.ir.op import Ndarray, O, Operand, Operands, bind
from autojit.ops.decompositions import eigvalsh, svdvals
from autojit.ops.elementwise_arithmetic import add, cast, mul, sub
from autojit.ops.elementwise_complex import abs
from autojit.ops.elementwise_logic import gt
from autojit.ops.elementwise_selection import maximum
from autojit.ops.failed_matrices import DIVERGED, lapack
from autojit.ops.linalg import MatrixOp, has, require_matrix
from autojit.ops.matmul import adjoint_matrix, matmul
from autojit.ops.reductions import amax, sum
from autojit.ops.samples import Samples, draws
from autojit.ops.shape import broadcast_to, reshape

__all__ = ["PseudoInverse", "matrix_rank", "pinv"]


@record
class PseudoInverse(MatrixOp):
    """``(m, n), cutoff () -> (n, m)``, any batch axes in front: singular values above the larger of ``cutoff`` and
    ``relative`` times the largest one are inverted, the others count as zero.
    """

    relative: float
    is_hermitian: bool

    refuses: ClassVar[bool] = True

    def result_type(self, a: TensorType, cutoff: TensorType) -> TensorType:
        require_matrix("pinv", a)
        if self.is_hermitian:
            self._require_square(a)
        if cutoff.shape != a.shape[:-2]:
            raise ShapeError("linalg.pinv: one tolerance per matrix is needed", {"A": a, "tolerance": cutoff})
        return a.with_shape((*a.shape[:-2], a.shape[-1], a.shape[-2]))

    def eager(self, a: Ndarray, cutoff: Ndarray) -> Ndarray:
        left, s, right = lapack("pinv", DIVERGED, lambda m: _factors(m, self.is_hermitian), a)
        magnitude = np.abs(s)
        largest = magnitude.max(-1, initial=0.0, keepdims=True)
        keeps = magnitude > np.maximum(largest * self.relative, cutoff[..., None])
        inverse = np.where(keeps, 1.0 / np.where(keeps, s, 1.0), 0.0)
        found = (right.conj().swapaxes(-1, -2) * inverse[..., None, :]) @ left.conj().swapaxes(-1, -2)
        return np.asarray(found, a.dtype)

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        """The transpose of the rule below."""
        (a, _), p = primals, result
        p_adjoint, g = adjoint_matrix(p), adjoint_matrix(y_bar)
        k = matmul(g, p)
        k_p = matmul(k, p_adjoint)
        terms = sub(k_p, adjoint_matrix(matmul(p, k)))
        terms = sub(terms, matmul(matmul(a, p), k_p))
        rest = sub(g, matmul(k, a))
        return (add(terms, matmul(matmul(p_adjoint, p), rest)), None)

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        """``-p a' p + p p^H a'^H (1 - a p) + (1 - p a) a'^H p^H p``."""
        (a, _), (a_dot, _), p = primals, tangents, result
        if a_dot is None:
            return None
        p_adjoint, turned = adjoint_matrix(p), adjoint_matrix(a_dot)
        row = matmul(matmul(p, p_adjoint), turned)
        column = matmul(matmul(turned, p_adjoint), p)
        found = sub(row, matmul(matmul(row, a), p))
        found = add(found, sub(column, matmul(p, matmul(a, column))))
        return sub(found, matmul(matmul(p, a_dot), p))

    @staticmethod
    def samples(dtype: DType) -> Samples:
        if not has(dtype):
            return []
        op, real = PseudoInverse(1e-5, False), dtype.to_real().numpy
        return [(op, (draws(s, dtype, 8), np.zeros(s[:-2], real))) for s in ((3, 3), (4, 2), (2, 2, 3))]


def _factors(a: Ndarray, is_hermitian: bool) -> tuple[Ndarray, Ndarray, Ndarray]:
    """(u, s, vh) with ``a = u @ diag(s) @ vh``; of a Hermitian matrix ``s`` are its eigenvalues."""
    if not is_hermitian:
        u, s, vh = np.linalg.svd(a, full_matrices=False)
        return u, s, vh
    values, vectors = np.linalg.eigh(a)  # of the lower triangle
    return vectors, values, vectors.conj().swapaxes(-1, -2)


def _default_tolerance(a: Operand) -> float:
    """max(m, n) times the machine epsilon, as in torch."""
    return max(a.spec.shape[-2:]) * float(np.finfo(a.spec.dtype.to_real().numpy).eps)


def _cutoff(a: O, cutoff: Any) -> O:
    """The absolute tolerance of each matrix as a real operand."""
    shape, real = a.spec.shape[:-2], a.spec.dtype.to_real()
    if cutoff is None or isinstance(cutoff, int | float):
        return a._literal(float(cutoff or 0.0), TensorType(shape, real, a.spec.device))
    given: O = cutoff
    return broadcast_to(cast(given, real), shape)


def pinv(a: O, relative: float | None = None, cutoff: Any = None, hermitian: bool = False) -> O:
    """The Moore-Penrose inverse; singular values up to ``relative * largest`` or ``cutoff`` count as zero.

    ``relative`` is max(m, n) times the machine epsilon by default; ``cutoff`` a number or one per matrix.
    """
    if 0 in a.spec.shape:
        return adjoint_matrix(a)
    tolerance = _default_tolerance(a) if relative is None else float(relative)
    return bind(PseudoInverse(tolerance, hermitian), a, _cutoff(a, cutoff))


def matrix_rank(a: O, relative: float | None = None, cutoff: Any = None, hermitian: bool = False) -> O:
    """How many singular values ``pinv`` would invert: int64."""
    s = abs(eigvalsh(a)) if hermitian else svdvals(a)
    count = s.spec.shape[-1]
    if count == 0:
        return sum(cast(s, int64), -1)
    largest = amax(s, -1)
    tolerance = mul(largest, _default_tolerance(a) if relative is None else float(relative))
    tolerance = maximum(tolerance, _cutoff(a, cutoff))
    keeps = gt(s, broadcast_to(reshape(tolerance, (*tolerance.spec.shape, 1)), s.spec.shape))
    return sum(cast(keeps, int64), -1)
