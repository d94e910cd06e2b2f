"""Which leading minor of a matrix is the first that is not positive: what a Cholesky factorisation stumbles on."""

from __future__ import annotations

import numpy as np

from autojit.core.dtypes import DType, int32
from autojit.core.types import TensorType
from autojit.ir.op import Ndarray, not_differentiable
from autojit.ops.elementwise_base import unary
from autojit.ops.linalg import MatrixOp, has, positive_definite
from autojit.ops.samples import Samples

__all__ = ["FirstBadMinor", "first_bad_minor"]


class FirstBadMinor(MatrixOp):
    """Per matrix 0 if its Hermitian part is positive definite, else the order of the first minor that is not positive:
    ``(n, n) -> int32 ()``.
    """

    def result_type(self, a: TensorType) -> TensorType:
        self._require_square(a)
        return a.with_shape(a.shape[:-2]).with_dtype(int32)

    def eager(self, a: Ndarray) -> Ndarray:
        hermitian = (a + a.conj().swapaxes(-1, -2)) / 2
        flat = hermitian.reshape(-1, *a.shape[-2:]) if a.size else hermitian[..., :0, :0].reshape(0, 0, 0)
        orders = np.zeros(a.shape[:-2], np.int32)
        if a.size and not _is_definite(hermitian):
            orders = np.array([0 if _is_definite(m) else _first_bad(m) for m in flat], np.int32)
        return orders.reshape(a.shape[:-2])

    vjp = jvp = not_differentiable("a count is piecewise constant")

    @staticmethod
    def samples(dtype: DType) -> Samples:
        if not has(dtype):
            return []
        good = positive_definite((2, 2, 2), dtype)
        return [(FirstBadMinor(), (good,)), (FirstBadMinor(), (good * np.array([1, -1], dtype.numpy)[:, None, None],))]


def _is_definite(a: Ndarray) -> bool:
    try:
        np.linalg.cholesky(a)
    except np.linalg.LinAlgError:
        return False
    return True


def _first_bad(a: Ndarray) -> int:
    """By bisection: definiteness of a leading minor implies that of the smaller ones."""
    good, bad = 0, int(a.shape[-1])
    while bad - good > 1:
        middle = (good + bad) // 2
        if _is_definite(a[:middle, :middle]):
            good = middle
        else:
            bad = middle
    return bad


first_bad_minor = unary(FirstBadMinor())
