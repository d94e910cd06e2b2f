"""Linear systems: inverse, solve, triangular solve, determinant, Cholesky. Eager through LAPACK (numpy.linalg).

All act on the last two axes; leading axes are a batch. Cholesky reads the Hermitian part of its operand: its gradient
is Hermitian. Derivatives avoid inverses: Giles, Collected matrix derivative results, 2008; Murray, arXiv:1602.07527.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from autojit.core.dtypes import DType, float32, float64
from autojit.core.errors import DTypeError, ShapeError
from autojit.core.records import record
from autojit.core.types import Shape, TensorType
from autojit.ir.op import Ndarray, O, Op, Operands, bind, bind_all
from autojit.ops.base import Structured, broadcast_shapes, conjugate, tangent_difference
from autojit.ops.dense_matrices import cofactors, substituted
from autojit.ops.elementwise_arithmetic import add, cast, div, mul, neg, sub
from autojit.ops.elementwise_base import unary
from autojit.ops.elementwise_complex import complex, imag, real
from autojit.ops.elementwise_exponential import PowNumber, log
from autojit.ops.failed_matrices import failed_matrix, lapack
from autojit.ops.matmul import adjoint_matrix, matmul
from autojit.ops.reductions import sum
from autojit.ops.samples import Samples, draws
from autojit.ops.shape import batch_all, broadcast_to, reshape
from autojit.ops.sources import zeros_like
from autojit.ops.triangles import eye, tril, triu

__all__ = [
    "Cholesky", "Cofactor", "Det", "Inv", "MatrixOp", "Slogdet", "Solve", "TriangularSolve",
    "cholesky", "cholesky_inverse", "cholesky_solve", "det", "inv", "logdet", "matrix_power", "slogdet", "solve",
    "triangular_solve",
]  # fmt: skip


def has(dtype: DType) -> bool:
    """Whether LAPACK has routines for the dtype."""
    return dtype in (float32, float64) or dtype.is_complex


def well_conditioned(shape: tuple[int, ...], dtype: DType) -> Ndarray:
    """Sample matrices far from singular."""
    return np.asarray((draws(shape, dtype, 3) * 0.5 + 2 * np.eye(shape[-1])).astype(dtype.numpy))


def positive_definite(shape: tuple[int, ...], dtype: DType) -> Ndarray:
    """Sample Hermitian matrices with eigenvalues of at least 1."""
    x = draws(shape, dtype, 4)
    return np.asarray((x @ x.conj().swapaxes(-1, -2) + np.eye(shape[-1])).astype(dtype.numpy))


SINGULAR = "The computation could not be completed because the input matrix is singular."
INDEFINITE = "The factorization could not be completed because the input is not positive-definite."


@record
class MatrixOp(Structured, abstract=True):
    """On the last two axes; any batch axes in front, so batching changes nothing.

    Ops without parameters inherit this dataclass instead of being decorated, which would cost import time.
    """

    def __hash__(self) -> int:
        return hash(type(self))

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        return bind(self, *batch_all(args, batched))

    def may_refuse(self, *types: TensorType) -> bool:
        return self.refuses or self.name in ("inv", "solve", "triangular_solve", "cholesky")

    refusal: ClassVar[str] = SINGULAR

    def failure(self, number: int) -> Exception:
        """The error behind a number that a device reports: 1 for the only matrix, else that of one in a batch, from 2.

        It is said where the eager rule, which is asked first, finds nothing wrong.
        """
        return failed_matrix(self.name, self.refusal, (number - 2,) if number > 1 else ())

    sampled: ClassVar[Callable[..., Ndarray]] = staticmethod(well_conditioned)
    sampled_shapes: ClassVar[tuple[Shape, ...]] = ((3, 3), (2, 2, 2))

    @classmethod
    def samples(cls, dtype: DType) -> Samples:
        return [(cls(), (cls.sampled(shape, dtype),)) for shape in cls.sampled_shapes] if has(dtype) else []

    def _require_square(self, x: TensorType) -> None:
        require_matrix(self.name, x)
        if x.shape[-1] != x.shape[-2]:
            raise ShapeError(
                f"linalg.{self.name}: A must be batches of square matrices, but they are {x.shape[-2]} by "
                f"{x.shape[-1]} matrices",
                {"A": x},
            )


class SquareOp(MatrixOp, abstract=True):
    """Square matrices of square matrices."""

    def result_type(self, a: TensorType) -> TensorType:
        self._require_square(a)
        return a


def require_matrix(op: str, x: TensorType) -> None:
    """Raise unless ``x`` is a (batch of) matrices of float32, float64 or complex elements."""
    if x.ndim < 2:
        raise ShapeError(f"linalg.{op}: The input tensor A must have at least 2 dimensions.", {"A": x})
    if x.dtype not in (float32, float64) and not x.dtype.is_complex:
        raise DTypeError(f"linalg.{op}: Expected a floating point or complex tensor as input.", {"A": x})


class Inv(SquareOp):
    """The inverse matrix; LinAlgError if one is singular."""

    def eager(self, a: Ndarray) -> Ndarray:
        return np.asarray(lapack("inv", SINGULAR, np.linalg.inv, a))

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        inverse = adjoint_matrix(result)
        return (neg(matmul(matmul(inverse, y_bar), inverse)),)

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        (a_dot,) = tangents
        return None if a_dot is None else neg(matmul(matmul(result, a_dot), result))


class System(MatrixOp, abstract=True):
    """A system of equations; a subclass says what it reads of its matrices."""

    torch_name: ClassVar[str]

    def result_type(self, a: TensorType, b: TensorType) -> TensorType:
        self._require_square(a)
        check_system(self.torch_name, a, b)
        return b

    def adjoint(self) -> Op:
        """The op that solves systems with the adjoint matrix."""
        return self

    def read(self, a: O) -> O:
        """What the op reads of a matrix, zeros elsewhere."""
        return a

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        b_bar = bind(self.adjoint(), adjoint_matrix(primals[0]), y_bar)
        return (lambda: neg(self.read(matmul(b_bar, adjoint_matrix(result)))), b_bar)

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        a, (a_dot, b_dot) = primals[0], tangents
        right = tangent_difference(b_dot, None if a_dot is None else matmul(self.read(a_dot), result))
        return None if right is None else bind(self, a, right)


class Solve(System):
    """``x`` with ``a @ x = b``: ``(..., n, n), (..., n, k) -> (..., n, k)``, equal batch shapes."""

    torch_name: ClassVar[str] = "solve"

    def eager(self, a: Ndarray, b: Ndarray) -> Ndarray:
        return np.asarray(lapack("solve", SINGULAR, lambda m: np.linalg.solve(m, b), a))

    @staticmethod
    def samples(dtype: DType) -> Samples:
        if not has(dtype):
            return []
        return [
            (Solve(), (well_conditioned((3, 3), dtype), draws((3, 2), dtype))),
            (Solve(), (well_conditioned((2, 2, 2), dtype), draws((2, 2, 1), dtype))),
        ]


@record
class TriangularSolve(System):
    """``Solve`` reading one triangle of ``a`` only; ``unit``: its diagonal counts as ones."""

    torch_name: ClassVar[str] = "solve_triangular"
    upper: bool
    unit: bool = False

    def eager(self, a: Ndarray, b: Ndarray) -> Ndarray:
        a = np.triu(a) if self.upper else np.tril(a)
        if self.unit:
            ones = np.eye(a.shape[-1], dtype=a.dtype)
            a = np.where(ones != 0, ones, a)
        return np.asarray(lapack("solve_triangular", SINGULAR, lambda m: substituted(m, b, self.upper), a))

    def adjoint(self) -> Op:
        return TriangularSolve(not self.upper, self.unit)

    def read(self, a: O) -> O:
        offset = int(self.unit)
        return triu(a, offset) if self.upper else tril(a, -offset)

    @staticmethod
    def samples(dtype: DType) -> Samples:
        if not has(dtype):
            return []
        a, b = well_conditioned((3, 3), dtype), draws((3, 2), dtype)
        return [(TriangularSolve(True), (a, b)), (TriangularSolve(False, True), (a, b))]


class Det(MatrixOp):
    """The determinant: ``(..., n, n) -> (...)``."""

    def result_type(self, a: TensorType) -> TensorType:
        self._require_square(a)
        return a.with_shape(a.shape[:-2])

    def eager(self, a: Ndarray) -> Ndarray:
        return np.asarray(np.linalg.det(a))

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        cofactors = bind(Cofactor(), primals[0])
        return (mul(_as_matrices(y_bar), conjugate(cofactors)),)

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        (a_dot,) = tangents
        if a_dot is None:
            return None
        terms = mul(bind(Cofactor(), primals[0]), a_dot)
        return sum(terms, (-2, -1))


class Cofactor(SquareOp):
    """``det(a) * inv(a).T``, the gradient of the determinant, right for singular matrices too.

    Its own derivative is NaN for singular matrices, as in torch.
    """

    sampled_shapes: ClassVar[tuple[Shape, ...]] = ((3, 3),)

    def eager(self, a: Ndarray) -> Ndarray:
        return cofactors(a)

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        # c = det(a) b with b = inv(a).T, so c_dot = (b : a_dot) c - b a_dot.T c, and c = det(a) b
        b = div(result, _as_matrices(bind(Det(), primals[0])))  # of a singular matrix NaN, no error
        inner = sum(mul(y_bar, conjugate(result)), (-2, -1))
        first = mul(_as_matrices(inner), conjugate(b))
        second = matmul(matmul(conjugate(result), _transpose(y_bar)), conjugate(b))
        return (sub(first, second),)

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        (a_dot,) = tangents
        if a_dot is None:
            return None
        b = div(result, _as_matrices(bind(Det(), primals[0])))  # of a singular matrix NaN, no error
        inner = sum(mul(b, a_dot), (-2, -1))
        first = mul(_as_matrices(inner), result)
        return sub(first, matmul(matmul(b, _transpose(a_dot)), result))


class Slogdet(MatrixOp):
    """(sign, log of the absolute value) of the determinant; the latter is real."""

    result_names: ClassVar[tuple[str, ...]] = ("sign", "logabsdet")

    n_outputs: ClassVar[int] = 2

    def result_type(self, a: TensorType) -> tuple[TensorType, TensorType]:
        self._require_square(a)
        sign = a.with_shape(a.shape[:-2])
        return sign, sign.with_dtype(a.dtype.to_real())

    def eager(self, a: Ndarray) -> tuple[Ndarray, Ndarray]:
        sign, logarithm = np.linalg.slogdet(a)
        return np.asarray(sign), np.asarray(logarithm)

    def vjp(self, primals: Operands, result: Operands, y_bar: Operands) -> Sequence[Any]:
        """With t = tr(inv(a) a_dot): the log changes by Re t, the sign by i Im(t) sign."""
        (a,) = primals
        sign_bar, logarithm_bar = y_bar
        if not a.spec.dtype.is_complex:
            if logarithm_bar is None:
                return (None,)
            factor = logarithm_bar
        else:
            factor = _slogdet_factor(a.spec.dtype, result[0], sign_bar, logarithm_bar)
        return (mul(_as_matrices(factor), adjoint_matrix(bind(Inv(), a))),)

    def jvp(self, primals: Operands, result: Operands, tangents: Operands) -> Any:
        (a,), (a_dot,) = primals, tangents
        if a_dot is None:
            return (None, None)
        terms = mul(_transpose(bind(Inv(), a)), a_dot)
        trace = sum(terms, (-2, -1))
        if not a.spec.dtype.is_complex:
            return (None, trace)
        turn = complex(zeros_like(imag(trace)), imag(trace))
        return (mul(turn, result[0]), real(trace))


class Cholesky(SquareOp):
    """Lower triangular ``l`` with ``l @ l.mH`` the Hermitian part of the operand, which must be positive definite."""

    sampled = staticmethod(positive_definite)
    refusal: ClassVar[str] = INDEFINITE

    def eager(self, a: Ndarray) -> Ndarray:
        hermitian = (a + a.conj().swapaxes(-1, -2)) / 2
        return np.asarray(lapack("cholesky", INDEFINITE, np.linalg.cholesky, hermitian))

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        factor = adjoint_matrix(result)
        inner = _half_triangle(matmul(factor, y_bar))
        back = TriangularSolve(True)
        left = bind(back, factor, inner)
        whole = adjoint_matrix(bind(back, factor, adjoint_matrix(left)))  # factor^-1 inner factor^-H
        return (hermitian_part(whole),)

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        (a_dot,) = tangents
        if a_dot is None:
            return None
        forward = TriangularSolve(False)
        left = bind(forward, result, hermitian_part(a_dot))
        whole = adjoint_matrix(bind(forward, result, adjoint_matrix(left)))
        return matmul(result, _half_triangle(whole))


def check_system(op: str, a: TensorType, b: TensorType) -> None:
    """Raise unless ``b`` is a right side for ``a``: equal batch axes, rows and dtype."""
    if a.dtype is not b.dtype:
        raise DTypeError(f"linalg.{op}: Expected A and B to have the same dtype", {"A": a, "B": b})
    if b.ndim != a.ndim or b.shape[:-1] != a.shape[:-1]:
        raise ShapeError(f"linalg.{op}: Incompatible shapes of A and B for the equation AX = B", {"A": a, "B": b})


def _slogdet_factor(dtype: DType, sign: Any, sign_bar: Any, logarithm_bar: Any) -> Any:
    """``logarithm_bar - i Im(conj(sign_bar) sign)`` as a complex operand."""
    like = sign_bar if logarithm_bar is None else logarithm_bar
    real_type = TensorType(like.spec.shape, dtype.to_real(), like.spec.device)
    real = like._literal(0, real_type) if logarithm_bar is None else logarithm_bar
    if sign_bar is None:
        imaginary = like._literal(0, real_type)
    else:
        imaginary = neg(imag(mul(conjugate(sign_bar), sign)))
    return complex(real, imaginary)


def _half_triangle(x: O) -> O:
    """The lower triangle with half the (real part of the) diagonal: the projection of the Cholesky derivative."""
    n = x.spec.shape[-1]
    half = mul(eye(x, n, n, x.spec.dtype), 0.5)
    return sub(tril(x), mul(half, x))


def hermitian_part(x: O) -> O:
    """``(x + x.mH) / 2``."""
    return mul(add(x, adjoint_matrix(x)), 0.5)


def _transpose(x: O) -> O:
    return conjugate(adjoint_matrix(x))


def _as_matrices(x: O) -> O:
    return reshape(x, (*x.spec.shape, 1, 1))


inv = unary(Inv())
det = unary(Det())


def slogdet(a: O) -> tuple[O, O]:
    """(sign, log of the absolute value) of the determinant."""
    sign, logarithm = bind_all(Slogdet(), a)
    return sign, logarithm


def logdet(a: O) -> O:
    """Log of a determinant: NaN where a real one is negative."""
    sign, logarithm = slogdet(a)
    return add(cast(logarithm, a.spec.dtype), log(sign))


def cholesky(a: O, upper: bool = False) -> O:
    """The Cholesky factor, lower (or ``upper``: its adjoint) of positive definite matrices."""
    factor = bind(Cholesky(), a)
    return adjoint_matrix(factor) if upper else factor


def solve(a: O, b: O, left: bool = True) -> O:
    """torch.linalg.solve: ``a @ x = b`` (or ``x @ a = b``); ``b`` may be a (batch of) vectors."""
    _require_one_dtype("solve", a, b)
    if not left:
        return adjoint_matrix(solve(adjoint_matrix(a), adjoint_matrix(b)))
    if b.spec.ndim == 1 or (b.spec.ndim == a.spec.ndim - 1 and b.spec.shape == a.spec.shape[:-1]):
        column = reshape(b, (*b.spec.shape, 1))
        x = solve(a, column)
        return reshape(x, x.spec.shape[:-1])
    return bind(Solve(), *_same_batch(a, b))


def triangular_solve(a: O, b: O, upper: bool, left: bool = True, unit: bool = False) -> O:
    """torch.linalg.solve_triangular: ``a @ x = b`` (or ``x @ a = b``) reading one triangle of ``a``."""
    if not left:
        return adjoint_matrix(triangular_solve(adjoint_matrix(a), adjoint_matrix(b), not upper, True, unit))
    return bind(TriangularSolve(upper, unit), *_same_batch(a, b))


def cholesky_solve(b: O, factor: O, upper: bool = False) -> O:
    """``x`` with ``a @ x = b`` from the Cholesky factor of ``a``."""
    _require_one_dtype("cholesky_solve", factor, b)
    lower = adjoint_matrix(factor) if upper else factor
    return triangular_solve(adjoint_matrix(lower), triangular_solve(lower, b, upper=False), upper=True)


def cholesky_inverse(factor: O, upper: bool = False) -> O:
    """The inverse of ``a`` from its Cholesky factor."""
    n = factor.spec.shape[-1]
    return cholesky_solve(broadcast_to(eye(factor, n, n, factor.spec.dtype), factor.spec.shape), factor, upper)


def matrix_power(a: O, exponent: int) -> O:
    """``a @ a @ ...`` by repeated squaring; a negative exponent inverts first."""
    if exponent < 0:
        return matrix_power(inv(a), -exponent)
    n = a.spec.shape[-1]
    result: O | None = None
    square = a
    while exponent:
        if exponent & 1:
            result = square if result is None else matmul(result, square)
        exponent >>= 1
        square = matmul(square, square) if exponent else square
    if result is None:  # depends on the matrix, with derivative 0
        return mul(bind(PowNumber(0), a), broadcast_to(eye(a, n, n, a.spec.dtype), a.spec.shape))
    return result


def _require_one_dtype(op: str, a: O, b: O) -> None:
    if a.spec.dtype is not b.spec.dtype:
        raise DTypeError(
            f"linalg.{op}: Expected A and B to have the same dtype, but found A of type {a.spec.dtype} and B of type "
            f"{b.spec.dtype} instead",
            {"A": a, "B": b},
        )


def _same_batch(a: O, b: O) -> tuple[O, O]:
    lead = broadcast_shapes(a.spec.shape[:-2], b.spec.shape[:-2], op="linalg.solve")
    return broadcast_to(a, (*lead, *a.spec.shape[-2:])), broadcast_to(b, (*lead, *b.spec.shape[-2:]))
