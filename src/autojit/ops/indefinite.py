"""``A = L D L^H`` of symmetric or Hermitian matrices that need not be definite, ``D`` of blocks of one and two rows.

Bunch and Kaufman's pivoting, column by column, in LAPACK's packed form (``sytrf``, ``hetrf`` with the lower triangle):
``D`` on and below the diagonal, the columns of ``L`` below it. A pivot ``k`` in 1, 2, ... is the row exchanged with its
own, for a block of one row; for a block of two rows both places hold ``-k``, ``k`` the row exchanged with the second.
NumPy has no such factorisation, and SciPy is not a dependency.
Source: Bunch and Kaufman, Mathematics of Computation 31, 1977.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from autojit.core.dtypes import DType, int32
from autojit.core.errors import ShapeError
from autojit.core.records import record
from autojit.core.types import TensorType
from autojit.ir.op import Ndarray, O, bind, bind_all, not_differentiable
from autojit.ops.linalg import MatrixOp, has, positive_definite
from autojit.ops.samples import Samples, draws

if TYPE_CHECKING:
    Array = Ndarray

__all__ = ["LdlFactor", "LdlSolve", "ldl_factor", "ldl_solve"]

_THRESHOLD = (1 + 17**0.5) / 8  # bounds the growth of elements


@record
class LdlFactor(MatrixOp):
    """(packed ``L`` and ``D``, pivots, info): ``(n, n) -> (n, n), int32 (n,), int32 ()``; reads the lower triangle.

    ``info`` is 0, or which diagonal entry of ``D`` is the first zero.
    """

    n_outputs: ClassVar[int] = 3
    hermitian: bool

    def result_type(self, a: TensorType) -> tuple[TensorType, TensorType, TensorType]:
        self._require_square(a)
        pivots = a.with_shape(a.shape[:-1]).with_dtype(int32)
        return a, pivots, pivots.with_shape(a.shape[:-2])

    def eager(self, a: Array) -> tuple[Array, Array, Array]:
        n = a.shape[-1]
        packed = np.tril(a).reshape(int(np.prod(a.shape[:-2])), n, n)
        pivots = np.zeros(packed.shape[:-1], np.int32)
        info = np.zeros(len(packed), np.int32)
        for k, matrix in enumerate(packed):
            info[k] = _factor(matrix, pivots[k], self.hermitian and np.iscomplexobj(a))
        return packed.reshape(a.shape), pivots.reshape(a.shape[:-1]), info.reshape(a.shape[:-2])

    vjp = jvp = not_differentiable("torch defines no derivative of the packed factors; use linalg.solve")

    @staticmethod
    def samples(dtype: DType) -> Samples:
        if not has(dtype):
            return []
        good = positive_definite((2, 3, 3), dtype)
        return [(LdlFactor(False), (good,)), (LdlFactor(True), (good,)), (LdlFactor(False), (draws((4, 4), dtype),))]


def _factor(a: Array, pivots: Array, hermitian: bool) -> int:
    """Factor one matrix, given by its lower triangle, in place."""
    n, k, info = len(a), 0, 0
    while k < n:
        row, size = _choose(a, k, hermitian)
        if size == 0:  # a column of zeros
            info = info or k + 1
            pivots[k] = k + 1
            k += 1
            continue
        last = k + size - 1
        if row != last:
            _exchange(a, last, row, hermitian)
            if size == 2:
                a[k + 1, k], a[row, k] = a[row, k], a[k + 1, k]
        _eliminate(a, k, size, hermitian)
        pivots[k : k + size] = row + 1 if size == 1 else -(row + 1)
        k += size
    return info


def _size_of(x: Any) -> Any:
    return np.abs(x.real) + np.abs(x.imag)  # LAPACK's measure of complex numbers


def _choose(a: Array, k: int, hermitian: bool) -> tuple[int, int]:
    """(row to exchange, rows of the block); 0 rows for a column of zeros."""
    pivot = abs(a[k, k].real) if hermitian else _size_of(a[k, k])
    below = _size_of(a[k + 1 :, k])
    largest = below.max() if below.size else 0.0
    if max(pivot, largest) == 0 or np.isnan(pivot):
        return k, 0
    if pivot >= _THRESHOLD * largest:
        return k, 1
    row = k + 1 + int(below.argmax())
    others = np.concatenate((_size_of(a[row, k:row]), _size_of(a[row + 1 :, row])))
    other = others.max()
    if pivot >= _THRESHOLD * largest * (largest / other):
        return k, 1
    own = abs(a[row, row].real) if hermitian else _size_of(a[row, row])
    return row, 1 if own >= _THRESHOLD * other else 2


def _exchange(a: Array, i: int, j: int, hermitian: bool) -> None:
    """Exchange rows and columns ``i < j`` of what is left of the lower triangle."""
    a[j + 1 :, [i, j]] = a[j + 1 :, [j, i]]
    between = a[i + 1 : j, i].copy()
    a[i + 1 : j, i] = a[j, i + 1 : j].conj() if hermitian else a[j, i + 1 : j]
    a[j, i + 1 : j] = between.conj() if hermitian else between
    a[i, i], a[j, j] = a[j, j], a[i, i]
    if hermitian:
        a[j, i] = np.conj(a[j, i])


def _eliminate(a: Array, k: int, size: int, hermitian: bool) -> None:
    rest = slice(k + size, len(a))
    columns = a[rest, k : k + size].copy()
    block = _block(a, k, size, hermitian)
    multipliers = columns @ np.linalg.inv(block)
    update = multipliers @ (columns.conj() if hermitian else columns).T
    a[rest, rest] -= np.tril(update)
    a[rest, k : k + size] = multipliers
    if hermitian:
        places = np.arange(k, len(a))
        a[places, places] = a[places, places].real


def _block(a: Array, k: int, size: int, hermitian: bool) -> Array:
    """A diagonal block of ``D`` as a full matrix."""
    block = np.tril(a[k : k + size, k : k + size])
    if size == 2:
        block[0, 1] = np.conj(block[1, 0]) if hermitian else block[1, 0]
    if hermitian:
        block[range(size), range(size)] = np.diagonal(block).real
    return block


@record
class LdlSolve(MatrixOp):
    """``x`` with ``A @ x = b`` from ``LdlFactor``: ``(n, n), int32 (n,), (n, k) -> (n, k)``, equal batch shapes."""

    hermitian: bool

    def result_type(self, packed: TensorType, pivots: TensorType, b: TensorType) -> TensorType:
        self._require_square(packed)
        if b.ndim != packed.ndim or b.shape[:-1] != packed.shape[:-1] or pivots.shape != packed.shape[:-1]:
            raise ShapeError("linalg.ldl_solve: Incompatible shapes of LD, pivots and B", {"LD": packed, "B": b})
        return b

    def eager(self, packed: Array, pivots: Array, b: Array) -> Array:
        n = packed.shape[-1]
        found = np.array(b, order="C")
        hermitian = self.hermitian and np.iscomplexobj(packed)
        for factors, order, x in zip(
            packed.reshape(int(np.prod(packed.shape[:-2])), n, n),
            pivots.reshape(-1, n) if n else pivots.reshape(0, 0),
            found.reshape(int(np.prod(b.shape[:-2])), n, b.shape[-1]),
            strict=False,
        ):
            _solve(factors, order, x, hermitian)
        return found

    vjp = jvp = not_differentiable("torch defines no derivative by the packed factors; use linalg.solve")

    @staticmethod
    def samples(dtype: DType) -> Samples:
        if not has(dtype):
            return []
        packed, pivots, _ = LdlFactor(False).eager(positive_definite((3, 3), dtype))
        return [(LdlSolve(False), (packed, pivots, draws((3, 2), dtype)))]


def _solve(a: Array, pivots: Array, x: Array, hermitian: bool) -> None:
    steps = _steps(pivots)
    for k, size in steps:
        _swap(x, k + size - 1, abs(int(pivots[k])) - 1)
        rest = slice(k + size, len(a))
        x[rest] -= a[rest, k : k + size] @ x[k : k + size]
        x[k : k + size] = np.linalg.solve(_block(a, k, size, hermitian), x[k : k + size])
    for k, size in reversed(steps):
        rest = slice(k + size, len(a))
        below = a[rest, k : k + size]
        x[k : k + size] -= (below.conj() if hermitian else below).T @ x[rest]
        _swap(x, k + size - 1, abs(int(pivots[k])) - 1)


def _steps(pivots: Array) -> list[tuple[int, int]]:
    """(first row, rows) of every block."""
    found, k = [], 0
    while k < len(pivots):
        size = 1 if pivots[k] > 0 else 2
        found.append((k, size))
        k += size
    return found


def _swap(x: Array, i: int, j: int) -> None:
    if i != j:
        x[[i, j]] = x[[j, i]]


def ldl_factor(a: O, hermitian: bool = False) -> tuple[O, O, O]:
    """(packed factors, pivots, info) of symmetric or Hermitian matrices."""
    packed, pivots, info = bind_all(LdlFactor(hermitian), a)
    return packed, pivots, info


def ldl_solve(packed: O, pivots: O, b: O, hermitian: bool = False) -> O:
    """The solution of systems from their factors."""
    return bind(LdlSolve(hermitian), packed, pivots, b)
