"""LU factorisation by elimination with row exchanges; NumPy has none, and SciPy is not a dependency.

Both ops eliminate column by column, all matrices of a batch at once. The choice of rows has no derivative; that of the
factors belongs to the op that eliminates without exchanges, on the square part of the reordered matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from autojit.core.dtypes import DType, int32, int64
from autojit.core.records import record
from autojit.core.types import TensorType
from autojit.ir.op import Ndarray, O, Operands, bind, not_differentiable
from autojit.ops.elementwise_arithmetic import add
from autojit.ops.elementwise_base import unary
from autojit.ops.failed_matrices import failed_matrix
from autojit.ops.linalg import MatrixOp, SquareOp, TriangularSolve, has, require_matrix, well_conditioned
from autojit.ops.matmul import adjoint_matrix, matmul
from autojit.ops.samples import Samples
from autojit.ops.triangles import eye, tril, triu

__all__ = ["LuPivots", "LuSquare", "PivotOrder", "lu_pivots", "lu_square", "pivot_order"]


def _pivot_size(column: Ndarray) -> Ndarray:
    """What LAPACK compares when it looks for a pivot: of complex entries the sum of both parts' absolute values."""
    if column.dtype.kind == "c":
        return np.asarray(np.abs(column.real) + np.abs(column.imag))
    return np.asarray(np.abs(column))


def eliminate(a: Ndarray, pivots: Ndarray | None) -> Ndarray:
    """``L`` below the diagonal and ``U`` in one array; the exchanged rows, counted from 1, go into ``pivots``."""
    packed = a.reshape(-1, *a.shape[-2:]).copy()
    matrices = np.arange(len(packed))
    for k in range(min(packed.shape[1:])):
        if pivots is not None:
            best = k + np.argmax(_pivot_size(packed[:, k:, k]), axis=1)
            pivots[:, k] = best + 1
            rows = packed[matrices, best].copy()
            packed[matrices, best] = packed[:, k]
            packed[:, k] = rows
        pivot = packed[:, k, k]
        column = packed[:, k + 1 :, k]
        usable = (pivot != 0)[:, None]  # a column of zeros stays, as in LAPACK
        np.divide(column, pivot[:, None], out=column, where=usable if pivots is not None else True)
        packed[:, k + 1 :, k + 1 :] -= column[:, :, None] * packed[:, k, None, k + 1 :]
    return packed.reshape(a.shape)


@record
class LuPivots(MatrixOp):
    """The rows that elimination exchanges, counted from 1: ``(m, n) -> int32 (min(m, n),)``.

    ``is_checked``: a matrix with a zero on the diagonal of ``U`` is an error.
    """

    is_checked: bool
    refusal: ClassVar[str] = "a pivot of U is zero, and using it on lu_solve would result in a division by zero"

    def result_type(self, a: TensorType) -> TensorType:
        require_matrix("lu_factor", a)
        return a.with_shape((*a.shape[:-2], min(a.shape[-2:]))).with_dtype(int32)

    def may_refuse(self, *types: TensorType) -> bool:
        return self.is_checked

    def eager(self, a: Ndarray) -> Ndarray:
        count = min(a.shape[-2:])
        pivots = np.zeros((int(np.prod(a.shape[:-2])), count), np.int32)
        if a.size:
            packed = eliminate(a, pivots)
            if self.is_checked:
                _require_pivots(packed)
        return pivots.reshape(*a.shape[:-2], count)

    vjp = jvp = not_differentiable("the choice of pivots is piecewise constant")

    @staticmethod
    def samples(dtype: DType) -> Samples:
        return [(LuPivots(False), (well_conditioned((3, 3), dtype),))] if has(dtype) else []


def _require_pivots(packed: Ndarray) -> None:
    diagonal = np.diagonal(packed, axis1=-2, axis2=-1)
    zero = np.argwhere(diagonal == 0)
    if len(zero):
        k = int(zero[0, -1]) + 1
        why = (
            f"U[{k},{k}] is zero and using it on lu_solve would result in a division by zero. "
            "If you still want to perform the factorization, consider calling linalg.lu(A, pivot) or "
            "linalg.lu_factor_ex(A, pivot)"
        )
        raise failed_matrix("lu_factor", why, tuple(zero[0, :-1].tolist()))


@record
class PivotOrder(MatrixOp):
    """Which row comes to row ``i`` after the exchanges of ``m`` rows: ``int32 (k,) -> int64 (m,)``."""

    m: int

    def result_type(self, pivots: TensorType) -> TensorType:
        return pivots.with_shape((*pivots.shape[:-1], self.m)).with_dtype(int64)

    def eager(self, pivots: Ndarray) -> Ndarray:
        flat = pivots.reshape(int(np.prod(pivots.shape[:-1])), pivots.shape[-1])
        order = np.tile(np.arange(self.m), (len(flat), 1))
        matrices = np.arange(len(flat))
        for k in range(flat.shape[1]):
            other = flat[:, k].astype(np.int64) - 1
            taken = order[matrices, other].copy()
            order[matrices, other] = order[:, k]
            order[:, k] = taken
        return order.reshape(*pivots.shape[:-1], self.m)

    vjp = jvp = not_differentiable("an order of rows has no derivative")

    @staticmethod
    def samples(dtype: DType) -> Samples:
        return [(PivotOrder(3), (np.array([2, 3, 3], np.int32),))] if dtype is int32 else []


class LuSquare(SquareOp):
    """``L`` (unit diagonal, not stored) and ``U`` of square matrices in one, without exchanges of rows."""

    def eager(self, a: Ndarray) -> Ndarray:
        if a.size == 0:
            return a.copy()
        with np.errstate(all="ignore"):
            return eliminate(a, None)

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        lower, upper = _lower(result), adjoint_matrix(triu(result))
        inner = add(tril(matmul(adjoint_matrix(lower), tril(y_bar, -1)), -1), triu(matmul(triu(y_bar), upper)))
        left = bind(TriangularSolve(True, True), adjoint_matrix(lower), inner)
        # left @ upper^-1, as the adjoint of a solve with upper's adjoint
        return (adjoint_matrix(bind(TriangularSolve(True), triu(result), adjoint_matrix(left))),)

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        (a_dot,) = tangents
        if a_dot is None:
            return None
        lower, upper = _lower(result), triu(result)
        left = bind(TriangularSolve(False, True), lower, a_dot)
        inner = adjoint_matrix(bind(TriangularSolve(False), adjoint_matrix(upper), adjoint_matrix(left)))
        return add(matmul(lower, tril(inner, -1)), matmul(triu(inner), upper))


def _lower(packed: O) -> O:
    n = packed.spec.shape[-1]
    return add(tril(packed, -1), eye(packed, n, n, packed.spec.dtype))


def lu_pivots(a: O, is_checked: bool = False) -> O:
    """The rows exchanged by elimination, counted from 1."""
    return bind(LuPivots(is_checked), a)


def pivot_order(pivots: O, m: int) -> O:
    """The order of ``m`` rows after exchanges."""
    return bind(PivotOrder(m), pivots)


lu_square = unary(LuSquare())
