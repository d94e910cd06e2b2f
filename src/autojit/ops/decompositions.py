"""Orthogonal decompositions: QR, Hermitian eigenvalues, singular values. Eager through LAPACK (numpy.linalg).

Derivatives of vectors exist where eigenvalues (singular values) are distinct; those of values alone exist always, and
terms of vectors nobody uses are never formed. Source: Townsend, Differentiating the singular value decomposition, 2016;
Walter and Lehmann, arXiv:1009.6112 (QR).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from autojit.core.dtypes import DType
from autojit.core.errors import ArgumentError
from autojit.core.types import TensorType
from autojit.ir.op import Ndarray, O, Operands, bind_all
from autojit.ops.base import tangent_difference, tangent_sum
from autojit.ops.by_name import apply
from autojit.ops.elementwise_arithmetic import add, cast, div, mul, reciprocal, sub
from autojit.ops.elementwise_complex import complex, imag, real
from autojit.ops.failed_matrices import DIVERGED, lapack
from autojit.ops.joining import concatenate
from autojit.ops.linalg import MatrixOp, has, hermitian_part, require_matrix
from autojit.ops.matmul import adjoint_matrix, matmul
from autojit.ops.samples import Samples, draws
from autojit.ops.shape import reshape, slice_axis
from autojit.ops.sources import zeros_like
from autojit.ops.triangles import diag_embed, eye, scale_columns, scale_rows, tril
from autojit.ops.views import diagonal

__all__ = ["Eigh", "Qr", "Svd", "eigh", "eigvalsh", "qr", "svd", "svdvals"]


class Qr(MatrixOp):
    """Reduced QR of matrices with at least as many rows as columns: ``(m, n) -> q (m, n), r (n, n)``."""

    result_names: ClassVar[tuple[str, ...]] = ("Q", "R")

    n_outputs: ClassVar[int] = 2

    def result_type(self, a: TensorType) -> tuple[TensorType, TensorType]:
        require_matrix("qr", a)
        m, n = a.shape[-2:]
        if m < n:
            raise ArgumentError("qr: the op takes tall matrices; the function qr splits wide ones", {"A": a})
        return a, a.with_shape((*a.shape[:-2], n, n))

    def eager(self, a: Ndarray) -> tuple[Ndarray, Ndarray]:
        q, r = lapack("qr", DIVERGED, np.linalg.qr, a)
        return np.asarray(q), np.asarray(r)

    def vjp(self, primals: Operands, result: Any, y_bar: Any) -> Sequence[Any]:
        (q, r), (q_bar, r_bar) = result, y_bar
        inner = None if r_bar is None else matmul(r, adjoint_matrix(r_bar))
        if q_bar is not None:
            inner = tangent_difference(inner, matmul(adjoint_matrix(q_bar), q))
        if inner is None:
            return (None,)
        whole = matmul(q, _mirrored(inner))
        if q_bar is not None:
            whole = add(q_bar, whole)
        return (_right_divide(whole, adjoint_matrix(r), upper=False),)

    def jvp(self, primals: Operands, result: Any, tangents: Operands) -> Any:
        (q, r), (a_dot,) = result, tangents
        if a_dot is None:
            return (None, None)
        moved = _right_divide(a_dot, r, upper=True)
        inner = matmul(adjoint_matrix(q), moved)
        turn = _skew_of_lower(inner)
        q_dot = add(sub(moved, matmul(q, inner)), matmul(q, turn))
        return (q_dot, matmul(sub(inner, turn), r))

    @staticmethod
    def samples(dtype: DType) -> Samples:
        if not has(dtype) or dtype.is_complex:  # LAPACK chooses the phases of complex vectors
            return []
        return [(Qr(), (draws(shape, dtype, 5),)) for shape in ((3, 3), (2, 4, 2))]


class Eigh(MatrixOp):
    """Eigenvalues (ascending, real) and orthonormal eigenvectors (columns) of the Hermitian part of the operand."""

    result_names: ClassVar[tuple[str, ...]] = ("eigenvalues", "eigenvectors")

    refuses: ClassVar[bool] = True
    n_outputs: ClassVar[int] = 2

    def result_type(self, a: TensorType) -> tuple[TensorType, TensorType]:
        self._require_square(a)
        return a.with_shape(a.shape[:-1]).with_dtype(a.dtype.to_real()), a

    def eager(self, a: Ndarray) -> tuple[Ndarray, Ndarray]:
        hermitian = (a + a.conj().swapaxes(-1, -2)) / 2
        values, vectors = lapack("eigh", DIVERGED, np.linalg.eigh, hermitian)
        return np.asarray(values), np.asarray(vectors)

    def vjp(self, primals: Operands, result: Any, y_bar: Any) -> Sequence[Any]:
        (values, vectors), (values_bar, vectors_bar) = result, y_bar
        inner = None if values_bar is None else diag_embed(cast(values_bar, vectors.spec.dtype))
        if vectors_bar is not None:
            overlap = matmul(adjoint_matrix(vectors), vectors_bar)
            inner = tangent_sum(inner, mul(gaps(values, overlap.spec.dtype), overlap))
        if inner is None:
            return (None,)
        return (hermitian_part(matmul(matmul(vectors, inner), adjoint_matrix(vectors))),)

    def jvp(self, primals: Operands, result: Any, tangents: Operands) -> Any:
        (values, vectors), (a_dot,) = result, tangents
        if a_dot is None:
            return (None, None)
        inner = matmul(matmul(adjoint_matrix(vectors), hermitian_part(a_dot)), vectors)
        values_dot = real(diagonal(inner, 0, -2, -1))
        turn = mul(gaps(values, inner.spec.dtype), inner)
        return (values_dot, matmul(vectors, turn))

    @staticmethod
    def samples(dtype: DType) -> Samples:
        if not has(dtype) or dtype.is_complex:  # LAPACK chooses the phases of complex vectors
            return []
        return [(Eigh(), (spread_spectrum(shape, dtype),)) for shape in ((3, 3), (2, 2, 2))]


class Svd(MatrixOp):
    """Reduced singular value decomposition: ``(m, n) -> u (m, k), s (k,) descending and real, vh (k, n)``."""

    result_names: ClassVar[tuple[str, ...]] = ("U", "S", "Vh")

    refuses: ClassVar[bool] = True
    n_outputs: ClassVar[int] = 3

    def result_type(self, a: TensorType) -> tuple[TensorType, TensorType, TensorType]:
        require_matrix("svd", a)
        *lead, m, n = a.shape
        k = min(m, n)
        s = a.with_shape((*lead, k)).with_dtype(a.dtype.to_real())
        return a.with_shape((*lead, m, k)), s, a.with_shape((*lead, k, n))

    def eager(self, a: Ndarray) -> tuple[Ndarray, ...]:
        return tuple(map(np.asarray, lapack("svd", DIVERGED, lambda m: np.linalg.svd(m, full_matrices=False), a)))

    def vjp(self, primals: Operands, result: Any, y_bar: Any) -> Sequence[Any]:
        (u, s, vh), (u_bar, s_bar, vh_bar) = result, y_bar
        if u_bar is None and s_bar is None and vh_bar is None:
            return (None,)
        dtype = u.spec.dtype
        inner: Any = None if s_bar is None else diag_embed(cast(s_bar, dtype))
        wide_s = cast(s, dtype)
        if u_bar is not None:
            inner = tangent_sum(inner, scale_columns(_turn(s, matmul(adjoint_matrix(u), u_bar)), wide_s))
        if vh_bar is not None:
            inner = tangent_sum(inner, scale_rows(_turn(s, matmul(vh, adjoint_matrix(vh_bar))), wide_s))
        if u_bar is not None and dtype.is_complex:
            inner = tangent_sum(inner, _phase(matmul(adjoint_matrix(u), u_bar), s))
        total = matmul(matmul(u, inner), vh)
        inverse_s = reciprocal(wide_s)
        if u_bar is not None and u.spec.shape[-2] > u.spec.shape[-1]:
            outside = sub(u_bar, matmul(u, matmul(adjoint_matrix(u), u_bar)))
            total = add(total, matmul(scale_columns(outside, inverse_s), vh))
        if vh_bar is not None and vh.spec.shape[-1] > vh.spec.shape[-2]:
            outside = sub(vh_bar, matmul(matmul(vh_bar, adjoint_matrix(vh)), vh))
            total = add(total, matmul(scale_columns(u, inverse_s), outside))
        return (total,)

    def jvp(self, primals: Operands, result: Any, tangents: Operands) -> Any:
        (u, s, vh), (a_dot,) = result, tangents
        if a_dot is None:
            return (None, None, None)
        dtype = u.spec.dtype
        wide_s = cast(s, dtype)
        inner = matmul(matmul(adjoint_matrix(u), a_dot), adjoint_matrix(vh))
        flipped = adjoint_matrix(inner)
        s_dot = real(diagonal(inner, 0, -2, -1))
        between = gaps(mul(s, s), dtype)
        u_turn = mul(between, add(scale_columns(inner, wide_s), scale_rows(flipped, wide_s)))
        v_turn = mul(between, add(scale_rows(inner, wide_s), scale_columns(flipped, wide_s)))
        if dtype.is_complex:
            u_turn = add(u_turn, _phase(inner, s))
        u_dot = matmul(u, u_turn)
        vh_dot = matmul(adjoint_matrix(v_turn), vh)
        inverse_s = reciprocal(wide_s)
        if u.spec.shape[-2] > u.spec.shape[-1]:
            outside = sub(a_dot, matmul(u, matmul(adjoint_matrix(u), a_dot)))
            u_dot = add(u_dot, scale_columns(matmul(outside, adjoint_matrix(vh)), inverse_s))
        if vh.spec.shape[-1] > vh.spec.shape[-2]:
            outside = sub(a_dot, matmul(matmul(a_dot, adjoint_matrix(vh)), vh))
            vh_dot = add(vh_dot, scale_rows(matmul(adjoint_matrix(u), outside), inverse_s))
        return (u_dot, s_dot, vh_dot)

    @staticmethod
    def samples(dtype: DType) -> Samples:
        if not has(dtype) or dtype.is_complex:  # LAPACK chooses the phases of complex vectors
            return []
        return [(Svd(), (draws(shape, dtype, 6),)) for shape in ((3, 3), (4, 2), (2, 2, 3))]


def _mirrored(x: O) -> O:
    """The lower triangle mirrored to a Hermitian matrix (of the diagonal, the real part)."""
    strict = tril(x, -1)
    return add(add(strict, adjoint_matrix(strict)), _diagonal_matrix(x))


def _diagonal_matrix(x: O) -> O:
    return diag_embed(cast(real(diagonal(x, 0, -2, -1)), x.spec.dtype))


def _skew_of_lower(x: O) -> O:
    """The skew-Hermitian matrix with the strict lower triangle of ``x`` (and its imaginary diagonal)."""
    strict = tril(x, -1)
    skew = sub(strict, adjoint_matrix(strict))
    if not x.spec.dtype.is_complex:
        return skew
    on_diagonal = diag_embed(diagonal(x, 0, -2, -1))
    return add(skew, sub(on_diagonal, _diagonal_matrix(x)))


def _right_divide(x: O, triangle: O, upper: bool) -> O:
    """``x @ inv(triangle)``."""
    return adjoint_matrix(apply("triangular_solve", adjoint_matrix(triangle), adjoint_matrix(x), upper=not upper))


def gaps(values: O, dtype: DType) -> O:
    """``1 / (values[j] - values[i])`` at (i, j), 0 on the diagonal."""
    n = values.spec.shape[-1]
    columns = reshape(values, (*values.spec.shape[:-1], 1, n))
    rows = reshape(values, (*values.spec.shape, 1))
    identity = eye(values, n, n, values.spec.dtype)
    between = add(sub(columns, rows), identity)  # 1 on the diagonal, so that nothing divides by 0
    return cast(sub(reciprocal(between), identity), dtype)


def _turn(s: O, overlap: O) -> O:
    """The skew-Hermitian part of an overlap over the gaps of the squared singular values."""
    skew = sub(overlap, adjoint_matrix(overlap))
    return mul(gaps(mul(s, s), overlap.spec.dtype), skew)


def _phase(overlap: O, s: O) -> O:
    """The imaginary diagonal over s, which only complex vectors have: their phases are set by LAPACK."""
    places = diagonal(overlap, 0, -2, -1)
    imaginary = div(imag(places), s)
    return diag_embed(complex(zeros_like(imaginary), imaginary))


def spread_spectrum(shape: tuple[int, ...], dtype: DType) -> Ndarray:
    """Sample Hermitian matrices with well separated eigenvalues."""
    x = draws(shape, dtype, 7) * 0.3
    return (x + x.conj().swapaxes(-1, -2) + np.diag(np.arange(shape[-1]) * 2.0)).astype(dtype.numpy)


def qr(a: O) -> tuple[O, O]:
    """Reduced QR: ``(m, n) -> q (m, k), r (k, n)`` with k = min(m, n)."""
    m, n = a.spec.shape[-2:]
    if m >= n:
        q, r = bind_all(Qr(), a)
        return q, r
    q, left = bind_all(Qr(), slice_axis(a, -1, 0, m))
    right = matmul(adjoint_matrix(q), slice_axis(a, -1, m, n))
    return q, concatenate([left, right], -1)


def eigh(a: O) -> tuple[O, O]:
    """(eigenvalues ascending, eigenvectors as columns) of Hermitian matrices."""
    values, vectors = bind_all(Eigh(), a)
    return values, vectors


def eigvalsh(a: O) -> O:
    """The eigenvalues of Hermitian matrices, ascending."""
    return eigh(a)[0]


def svd(a: O) -> tuple[O, O, O]:
    """(u, s, vh), reduced: ``a = u @ diag(s) @ vh``."""
    u, s, vh = bind_all(Svd(), a)
    return u, s, vh


def svdvals(a: O) -> O:
    """The singular values, descending."""
    return svd(a)[1]
