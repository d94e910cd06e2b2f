"""The root of positive semidefinite matrices, and the orthonormal factor of any: their polar decomposition.

Both are ops of their own because their derivatives are smooth where eigenvalues or singular values coincide and those
of the vectors do not exist. Derivatives solve ``X Y + Y X = C``, which is an op with a rule in terms of itself, so they
hold for every order. Source: Higham, Functions of Matrices (SIAM, 2008), chapters 6 and 8.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from autojit.core.dtypes import DType
from autojit.core.errors import ShapeError
from autojit.core.types import TensorType
from autojit.ir.op import Ndarray, O, Operands, bind
from autojit.ops.elementwise_arithmetic import add, neg, sub
from autojit.ops.elementwise_base import binary, unary
from autojit.ops.failed_matrices import DIVERGED, lapack
from autojit.ops.linalg import MatrixOp, SquareOp, has, hermitian_part, inv, positive_definite, require_matrix
from autojit.ops.matmul import adjoint_matrix, matmul
from autojit.ops.samples import Samples, draws

__all__ = ["Lyapunov", "MatrixSquareRoot", "PolarFactor", "lyapunov", "matrix_sqrth", "polar"]


def _eigen(op: str, a: Ndarray) -> tuple[Ndarray, Ndarray, Ndarray]:
    """Eigenvalues of the Hermitian part, its eigenvectors, and their adjoint."""
    hermitian = (a + a.conj().swapaxes(-1, -2)) / 2
    values, vectors = lapack(op, DIVERGED, np.linalg.eigh, hermitian)
    return values, vectors, vectors.conj().swapaxes(-1, -2)


class MatrixSquareRoot(SquareOp):
    """The Hermitian ``X`` with ``X @ X`` the Hermitian part of the operand; eigenvalues below 0 count as 0."""

    refuses: ClassVar[bool] = True
    sampled = staticmethod(positive_definite)

    def eager(self, a: Ndarray) -> Ndarray:
        values, vectors, adjoint = _eigen("matrix_sqrth", a)
        return np.asarray((vectors * np.sqrt(np.maximum(values, 0))[..., None, :]) @ adjoint, a.dtype)

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        return (lyapunov(result, hermitian_part(y_bar)),)

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        (a_dot,) = tangents
        return None if a_dot is None else lyapunov(result, hermitian_part(a_dot))


class Lyapunov(MatrixOp):
    """``x, c -> y`` with ``x y + y x = c``, where x is the Hermitian part of the first operand."""

    refuses: ClassVar[bool] = True

    def result_type(self, x: TensorType, c: TensorType) -> TensorType:
        self._require_square(x)
        return c

    def eager(self, x: Ndarray, c: Ndarray) -> Ndarray:
        values, vectors, adjoint = _eigen("lyapunov", x)
        with np.errstate(divide="ignore", invalid="ignore"):
            inner = (adjoint @ c @ vectors) / (values[..., :, None] + values[..., None, :])
        return np.asarray(vectors @ inner @ adjoint, c.dtype)

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        c_bar = lyapunov(primals[0], y_bar)
        turned = adjoint_matrix(result)
        return neg(hermitian_part(add(matmul(c_bar, turned), matmul(turned, c_bar)))), c_bar

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        x_dot, right = tangents
        if x_dot is not None:
            change = hermitian_part(x_dot)
            moved = add(matmul(change, result), matmul(result, change))
            right = neg(moved) if right is None else sub(right, moved)
        return None if right is None else lyapunov(primals[0], right)

    @staticmethod
    def samples(dtype: DType) -> Samples:
        shapes = ((3, 3), (2, 2, 2)) if has(dtype) else ()
        return [(Lyapunov(), (positive_definite(s, dtype), draws(s, dtype, 9))) for s in shapes]


class PolarFactor(MatrixOp):
    """``U`` of ``A = U H``, with orthonormal columns: of all such matrices the closest to ``A``, (m, n) with m >= n."""

    refuses: ClassVar[bool] = True

    def result_type(self, a: TensorType) -> TensorType:
        require_matrix("polar", a)
        return a

    def eager(self, a: Ndarray) -> Ndarray:
        left, _, right = lapack("polar", DIVERGED, lambda m: np.linalg.svd(m, full_matrices=False), a)
        return np.asarray(left @ right)

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        """The transpose of the rule below."""
        (a,), u = primals, result
        h, inside = hermitian_factor(u, a), matmul(adjoint_matrix(u), y_bar)
        turn = lyapunov(h, inside)
        return (_out_of_space(u, h, y_bar, inside, matmul(u, sub(turn, adjoint_matrix(turn)))),)

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        """Columns turn among themselves by W, where ``H W + W H = U^H a' - a'^H U``, and out of their space."""
        (a,), (a_dot,), u = primals, tangents, result
        if a_dot is None:
            return None
        h, inside = hermitian_factor(u, a), matmul(adjoint_matrix(u), a_dot)
        turn = lyapunov(h, sub(inside, adjoint_matrix(inside)))
        return _out_of_space(u, h, a_dot, inside, matmul(u, turn))

    @staticmethod
    def samples(dtype: DType) -> Samples:
        shapes = ((3, 3), (4, 2), (2, 3, 2)) if has(dtype) else ()
        return [(PolarFactor(), (draws(shape, dtype, 6),)) for shape in shapes]


def _out_of_space(u: O, h: O, direction: O, inside: O, turned: O) -> O:
    """``turned``, and what of a direction leaves the space of the columns; of square matrices nothing does."""
    if u.spec.shape[-2] == u.spec.shape[-1]:
        return turned
    return add(turned, matmul(sub(direction, matmul(u, inside)), inv(h)))


def hermitian_factor(u: O, a: O) -> O:
    """``H`` of ``A = U H``."""
    return hermitian_part(matmul(adjoint_matrix(u), a))


def polar(a: O) -> tuple[O, O]:
    """``A = U @ H``: U with orthonormal columns, H Hermitian and positive semidefinite."""
    t = a.spec
    if t.shape[-2] < t.shape[-1]:
        raise ShapeError(
            f"linalg.polar: input must have at least as many rows as columns, but got {t.shape[-2]} by "
            f"{t.shape[-1]} matrices",
            {"A": t},
            "of a wide matrix take the adjoint: linalg.polar(A.mH)",
        )
    u: O = bind(PolarFactor(), a)
    return u, hermitian_factor(u, a)


matrix_sqrth = unary(MatrixSquareRoot())
lyapunov = binary(Lyapunov())
