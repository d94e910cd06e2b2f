"""The exponential of a matrix, by scaling, a diagonal Pade approximant and squaring.

Its derivative in the direction E is the upper right block of the exponential of ``[[A, E], [0, A]]``, so the rules
apply the op itself and hold for every order. Sources: Higham, SIAM J. Matrix Anal. Appl. 26(4), 2005 (the approximant
of degree 13); Mathias, SIAM J. Matrix Anal. Appl. 17(3), 1996 (the block form).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from autojit.ir.op import Ndarray, O, Operands, bind
from autojit.ops.elementwise_base import unary
from autojit.ops.failed_matrices import lapack
from autojit.ops.joining import concatenate, narrow
from autojit.ops.linalg import SquareOp
from autojit.ops.matmul import adjoint_matrix
from autojit.ops.samples import draws
from autojit.ops.sources import zeros_like

__all__ = ["MatrixExp", "matrix_exp"]

_DEGREE_13 = (
    64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000, 10559470521600,
    670442572800, 33522128640, 1323241920, 40840800, 960960, 16380, 182, 1,
)  # fmt: skip
_LARGEST_NORM = 5.371920351148152  # up to which the approximant is exact to float64


def _approximant(a: Ndarray) -> Ndarray:
    """``exp(a)`` for matrices of small norm."""
    b, unit = _DEGREE_13, np.eye(a.shape[-1], dtype=a.dtype)
    two = a @ a
    four = two @ two
    six = four @ two
    odd = a @ (six @ (b[13] * six + b[11] * four + b[9] * two) + b[7] * six + b[5] * four + b[3] * two + b[1] * unit)
    even = six @ (b[12] * six + b[10] * four + b[8] * two) + b[6] * six + b[4] * four + b[2] * two + b[0] * unit
    return np.asarray(
        lapack("matrix_exp", "the matrix is not finite", lambda m: np.linalg.solve(m, even + odd), even - odd)
    )


class MatrixExp(SquareOp):
    """``exp(A)``, the sum of ``A**k / k!``."""

    refuses: ClassVar[bool] = True
    sampled = staticmethod(draws)

    def eager(self, a: Ndarray) -> Ndarray:
        wide = a.astype(np.complex128 if a.dtype.kind == "c" else np.float64)
        norm = float(np.abs(wide).sum(-2).max(initial=0.0))
        squarings = max(0, int(np.ceil(np.log2(norm / _LARGEST_NORM)))) if np.isfinite(norm) and norm else 0
        found = _approximant(wide / 2.0**squarings)
        for _ in range(squarings):
            found = found @ found
        return found.astype(a.dtype)

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        return (_directional(adjoint_matrix(primals[0]), y_bar),)

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        (a_dot,) = tangents
        return None if a_dot is None else _directional(primals[0], a_dot)


def _directional(a: O, direction: O) -> O:
    """The derivative of ``exp`` at ``a`` in a direction."""
    n, last = a.spec.shape[-1], a.spec.ndim - 1
    top = concatenate([a, direction], last)
    bottom = concatenate([zeros_like(a), a], last)
    found: O = bind(MatrixExp(), concatenate([top, bottom], last - 1))
    return narrow(narrow(found, last - 1, 0, n), last, n, n)


matrix_exp = unary(MatrixExp())
