"""Products that eager mode computes in one go and records as one node (``composed.py``)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

from autojit.core.dtypes import DType
from autojit.core.errors import ShapeError
from autojit.core.records import record
from autojit.core.types import TensorType
from autojit.ir.op import Ndarray, O, Operands, bind
from autojit.ops.base import sum_to
from autojit.ops.composed import Composed, is_common
from autojit.ops.elementwise_arithmetic import add, mul
from autojit.ops.matmul import MATMUL, addmm, matmul
from autojit.ops.reductions import sum
from autojit.ops.samples import Samples, draws
from autojit.ops.shape import permute, reshape

__all__ = ["ADDMM", "LINEAR_ROWS", "MATRIX_VECTOR", "Addmm", "LinearRows", "MatrixVector"]


@record
class Addmm(Composed):
    """``beta * base + alpha * (x @ w)`` of matrices of one dtype; ``base`` broadcasts."""

    masks_cotangents: ClassVar[bool] = False
    beta: float
    alpha: float

    def eager(self, base: Ndarray, x: Ndarray, w: Ndarray) -> Any:
        if self.beta == self.alpha == 1:
            return MATMUL.eager(x, w) + base
        return self.line_by_line(base, x, w)

    def expand(self, *operands: O) -> Any:
        base, x, w = operands
        return addmm(base, x, w, self.beta, self.alpha)

    def result_type(self, *types: TensorType) -> TensorType:
        return MATMUL.result_type(*types[1:])

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        base, x, w = primals
        scaled = y_bar if self.alpha == 1 else mul(y_bar, self.alpha.conjugate())
        x_bar, w_bar = MATMUL.vjp((x, w), result, scaled)
        return lambda: self._base_bar(base, y_bar), x_bar, w_bar

    def _base_bar(self, base: Any, y_bar: Any) -> Any:
        if self.beta == 0:
            return None
        return sum_to(y_bar if self.beta == 1 else mul(y_bar, self.beta.conjugate()), base.spec.shape)

    @staticmethod
    def samples(dtype: DType) -> Samples:
        if not is_common(dtype):
            return []
        base, x, w = draws((4,), dtype, 1), draws((2, 3), dtype, 2), draws((3, 4), dtype, 3)
        return [(op, (base, x, w)) for op in (ADDMM, Addmm(0.5, 2.0))]


ADDMM = Addmm(1, 1)


@record
class MatrixVector(Composed):
    """A matrix times a vector: ``f[m, k], f[k] -> f[m]``."""

    masks_cotangents: ClassVar[bool] = False
    node_class: ClassVar[str] = "MvBackward0"
    operand_names: ClassVar[tuple[str, ...]] = ("self", "vec")

    def result_of(self, *types: TensorType) -> TensorType:
        x, v = types
        if x.dtype is not v.dtype or x.ndim != 2 or v.shape != x.shape[1:]:
            raise ShapeError("mv: expected f[m, k] and f[k]", {"input": x, "vec": v})
        return x.drop((1,))

    def eager(self, x: Ndarray, v: Ndarray) -> Any:
        return MATMUL.eager(x, v.reshape(-1, 1)).reshape(-1)

    def expand(self, *operands: O) -> Any:
        return matmul(operands[0], operands[1])

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        x, v = primals
        m, k = x.spec.shape
        column = reshape(y_bar, (m, 1))
        return (
            lambda: bind(MATMUL, column, reshape(v, (1, k))),
            lambda: reshape(bind(MATMUL, permute(x, (1, 0)), column), (k,)),
        )

    @staticmethod
    def samples(dtype: DType) -> Samples:
        if not is_common(dtype):
            return []
        x, v = draws((3, 4), dtype, 1), draws((4,), dtype, 2)
        return [(MATRIX_VECTOR, (x, v)), (MATRIX_VECTOR, (x.T, x[:, 1])), (MATRIX_VECTOR, (x[:, :0], v[:0]))]


MATRIX_VECTOR = MatrixVector()


@record
class LinearRows(Composed):
    """``x w^T + b`` of every row of ``x`` (f[..., k]; ``w`` f[n, k], ``b`` f[n]): as one product of a matrix."""

    masks_cotangents: ClassVar[bool] = False

    def result_of(self, *types: TensorType) -> TensorType:
        x, w, b = types
        if not x.dtype is w.dtype is b.dtype or w.ndim != 2 or x.shape[-1:] != w.shape[1:] or b.shape != w.shape[:1]:
            raise ShapeError("linear: expected f[..., k], f[n, k] and f[n]", {"input": x, "weight": w, "bias": b})
        return x.with_shape((*x.shape[:-1], w.shape[0]))

    def eager(self, x: Ndarray, w: Ndarray, b: Ndarray) -> Any:
        found = MATMUL.eager(x.reshape(prod(x.shape[:-1]), x.shape[-1]), w.T) + b
        return found.reshape(*x.shape[:-1], w.shape[0])

    def expand(self, *operands: O) -> Any:
        x, w, b = operands
        return add(matmul(x, permute(w, (1, 0))), b)

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        x, w, _ = primals
        *lead, k = x.spec.shape
        rows = reshape(y_bar, (prod(lead), w.spec.shape[0]))
        return (
            lambda: reshape(bind(MATMUL, rows, w), x.spec.shape),
            lambda: bind(MATMUL, permute(rows, (1, 0)), reshape(x, (prod(lead), k))),
            lambda: sum(rows, (0,)),
        )

    @staticmethod
    def samples(dtype: DType) -> Samples:
        if not is_common(dtype):
            return []
        x, w, b = draws((2, 3, 4), dtype, 1), draws((5, 4), dtype, 2), draws((5,), dtype, 3)
        return [
            (LINEAR_ROWS, (x, w, b)),
            (LINEAR_ROWS, (x.transpose(1, 0, 2), w[::2], b[::2])),
            (LINEAR_ROWS, (x[0, 1], w, b)),
        ]


LINEAR_ROWS = LinearRows()
