"""QR in LAPACK's packed form: ``R`` and the Householder vectors in one, and the reflections' factors."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from autojit.core.dtypes import DType
from autojit.core.types import TensorType
from autojit.ir.op import Ndarray, O, bind_all, not_differentiable
from autojit.ops.linalg import MatrixOp, has, require_matrix
from autojit.ops.samples import Samples, draws

__all__ = ["Geqrf", "geqrf"]


class Geqrf(MatrixOp):
    """(packed factors, tau): ``(m, n) -> (m, n), (min(m, n),)``; ``R`` on and above the diagonal, vectors below."""

    n_outputs: ClassVar[int] = 2

    def result_type(self, a: TensorType) -> tuple[TensorType, TensorType]:
        require_matrix("geqrf", a)
        return a, a.with_shape((*a.shape[:-2], min(a.shape[-2:])))

    def eager(self, a: Ndarray) -> tuple[Ndarray, Ndarray]:
        if a.size == 0:
            return a.copy(), np.zeros((*a.shape[:-2], min(a.shape[-2:])), a.dtype)
        packed, tau = np.linalg.qr(a, mode="raw")
        return np.ascontiguousarray(packed.swapaxes(-1, -2)).astype(a.dtype), np.asarray(tau).astype(a.dtype)

    vjp = jvp = not_differentiable("torch defines no derivative of the packed factors; use linalg.qr")

    @staticmethod
    def samples(dtype: DType) -> Samples:
        if not has(dtype) or dtype.is_complex:
            return []
        return [(Geqrf(), (draws(shape, dtype, 3),)) for shape in ((3, 3), (2, 4, 2), (2, 3))]


def geqrf(a: O) -> tuple[O, O]:
    """(packed factors, tau) of QR."""
    packed, tau = bind_all(Geqrf(), a)
    return packed, tau
