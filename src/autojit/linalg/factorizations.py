"""Factorisations of matrices, and what is solved with them. Leading axes are batches."""

from __future__ import annotations

from typing import Any, NamedTuple

from autojit import ops
from autojit.core.dtypes import bfloat16, float16, float32, int64
from autojit.core.errors import ArgumentError, DTypeError, UsageError
from autojit.dispatch.promotion import as_operand
from autojit.functions.autocast import converted, in_full_precision
from autojit.functions.comparison import maximum
from autojit.functions.factories import zeros
from autojit.functions.matrix_forms import complete_qr, completed, one_triangle
from autojit.functions.out_arguments import with_out
from autojit.functions.own_memory import no_view_of_parts
from autojit.functions.refused_dtypes import refuses
from autojit.history.op_node import rename_node
from autojit.tensor import Tensor
from autojit.tensor.state import grad_mode, state
from autojit.tensor.tensor import type_of

__all__ = [
    "cholesky", "eig", "eigh", "eigvals", "eigvalsh", "inv", "lstsq", "matrix_sqrth", "pinv", "polar", "qr", "solve",
    "solve_triangular", "svd", "svdvals",
]  # fmt: skip


class Eigh(NamedTuple):
    """``eigenvalues`` ascending, ``eigenvectors`` as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class Eig(NamedTuple):
    """``eigenvalues`` in no order, ``eigenvectors`` of length 1 as columns; both complex."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class Qr(NamedTuple):
    """``Q`` with orthonormal columns, ``R`` upper triangular."""

    Q: Tensor
    R: Tensor


class Svd(NamedTuple):
    """``U @ diag(S) @ Vh``."""

    U: Tensor
    S: Tensor
    Vh: Tensor


class Polar(NamedTuple):
    """``U @ H``: orthonormal columns, Hermitian and positive semidefinite."""

    U: Tensor
    H: Tensor


class LeastSquares(NamedTuple):
    """What ``lstsq`` gives."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


def require_floating(a: Tensor, name: str) -> Tensor:
    """The operand, or torch's error for integer matrices."""
    if state.autocast is not None:
        a = converted(a, float32)
    t = type_of(a)
    if t.dtype.category < 2:
        raise DTypeError(
            f"linalg.{name}: Expected a floating point or complex tensor as input. Got {t.dtype}", {"a": a}
        )
    if t.ndim < 2:
        raise ArgumentErrorAsRuntime(
            f"linalg.{name}: The input tensor A must have at least 2 dimensions.", {"a": a}, "add an axis: a[None]"
        )
    return a


class ArgumentErrorAsRuntime(ArgumentError, RuntimeError):
    """An impossible argument that torch reports as RuntimeError."""


@with_out
@refuses("bool int")
@no_view_of_parts
def cholesky(A: Tensor, *, upper: bool = False) -> Tensor:
    """The lower (or upper) triangular factor of Hermitian positive definite matrices, of which one triangle is read."""
    return ops.cholesky(one_triangle(require_floating(A, "cholesky"), upper), upper)


@with_out
@in_full_precision
def eig(A: Tensor) -> Eig:
    """Eigenvalues and eigenvectors of square matrices: ``[..., n, n] -> c[..., n], c[..., n, n]``.

    Gradients of the vectors exist where the eigenvalues are distinct, and mean something where the result does not
    depend on the vectors' phases.

    Example:
        >>> import autojit as aj
        >>> aj.linalg.eig(aj.tensor([[2.0, 0.0], [0.0, 3.0]])).eigenvalues
        tensor([2.+0.j, 3.+0.j])
    """
    return Eig(*ops.eig(require_floating(A, "eig")))


@with_out
@in_full_precision
def eigvals(A: Tensor) -> Tensor:
    """Eigenvalues of square matrices, complex, in no order."""
    return eig(A).eigenvalues


@with_out
def eigh(A: Tensor, UPLO: str = "L") -> Eigh:
    """Eigenvalues and eigenvectors of Hermitian matrices, of which the triangle ``UPLO`` is read."""
    if UPLO not in ("L", "U", "l", "u"):
        raise ArgumentErrorAsRuntime(f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    return Eigh(*ops.eigh(one_triangle(require_floating(A, "eigh"), UPLO in "Uu")))


@with_out
def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:
    """Eigenvalues of Hermitian matrices."""
    return eigh(A, UPLO).eigenvalues


@with_out
def inv(A: Tensor) -> Tensor:
    """The inverse of square matrices."""
    return ops.inv(require_floating(A, "inv"))


@with_out
@no_view_of_parts
def pinv(A: Tensor, rcond: Any = None, *, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Tensor:
    """The Moore-Penrose inverse; singular values up to ``max(atol, rtol * largest)`` count as zero.

    Args:
        rcond: the older name of ``rtol``.
        atol: absolute tolerance, a number or one per matrix; 0 by default.
        rtol: relative tolerance; without both, max(m, n) times the machine epsilon.
        hermitian: ``A`` is Hermitian, so its eigenvalues serve.
    """
    a = require_floating(A, "pinv")
    relative, cutoff = tolerances(a, atol, rcond if rtol is None else rtol, hermitian)
    return ops.pinv(a, relative, cutoff, hermitian)


def tolerances(a: Tensor, atol: Any, rtol: Any, hermitian: bool) -> tuple[float | None, Any]:
    """(relative tolerance or None for the default, absolute tolerance) as ``ops.pinv`` takes them."""
    if atol is not None and not isinstance(atol, int | float):
        atol = as_operand(atol)
    if rtol is None and atol is not None:
        return 0.0, atol
    if not isinstance(rtol, Tensor):
        return rtol, atol
    with grad_mode(False):
        values = eigvalsh(a).abs() if hermitian else svdvals(a)
        if type_of(values).shape[-1] == 0:
            return 0.0, None
        cutoff = rtol * values.amax(-1)
        return 0.0, cutoff if atol is None else maximum(cutoff, as_operand(atol))


def _require_precise(a: Tensor, name: str) -> Tensor:
    """The operand, or torch's error for integer matrices and for halves."""
    if type_of(require_floating(a, name)).dtype in (float16, bfloat16):
        raise DTypeError(
            f"linalg.{name}: Low precision dtypes not supported. Got {type_of(a).dtype}", {"A": a}, "use A.float()"
        )
    return a


@with_out
def matrix_sqrth(A: Tensor) -> Tensor:
    """The Hermitian root of Hermitian positive semidefinite matrices: ``X`` with ``X @ X = A``, ``[..., n, n]``.

    The lower triangles are read. Eigenvalues below zero count as zero. Differentiable to every order where ``A`` is
    positive definite, also where eigenvalues coincide.

    Raises:
        DTypeError: A holds integers or halves.
        ShapeError: A does not hold square matrices.

    Example:
        >>> import autojit as aj
        >>> aj.linalg.matrix_sqrth(aj.tensor([[4.0, 0.0], [0.0, 9.0]]))
        tensor([[2., 0.],
                [0., 3.]])
    """
    return ops.matrix_sqrth(one_triangle(_require_precise(A, "matrix_sqrth"), False))


@with_out
def polar(A: Tensor) -> Polar:
    """The polar decomposition ``A = U @ H`` of ``[..., m, n]`` with m >= n.

    ``U [..., m, n]`` has orthonormal columns and is the closest such matrix to A, ``H [..., n, n]`` is Hermitian and
    positive semidefinite.

    Differentiable to every order where the columns of A are independent. ``autojit.polar`` is something else: complex
    numbers of their absolute values and angles.

    Raises:
        DTypeError: A holds integers or halves.
        LinAlgError: the singular values of a matrix were not found: it holds infinities or NaN.
        ShapeError: a matrix has more columns than rows.

    Example:
        >>> import autojit as aj
        >>> U, H = aj.linalg.polar(aj.tensor([[0.0, -2.0], [3.0, 0.0]]))
        >>> U.round().tolist(), H.round().tolist()
        ([[0.0, -1.0], [1.0, 0.0]], [[3.0, 0.0], [0.0, 2.0]])
    """
    return Polar(*ops.polar(_require_precise(A, "polar")))


@with_out
@refuses("bool int")
def qr(A: Tensor, mode: str = "reduced") -> Qr:
    """Orthonormal columns times upper triangle.

    Args:
        mode: ``"reduced"``; ``"complete"``: ``Q`` is square (without a derivative for tall matrices, as in torch);
            ``"r"``: without ``Q``, which is empty, and without a derivative.
    """
    if mode not in ("reduced", "complete", "r"):
        raise ArgumentErrorAsRuntime(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'"
        )
    x = require_floating(A, "qr")
    if mode == "r":
        return Qr(x.new_zeros(0), ops.qr(x.detach())[1])
    found = Qr(*(ops.qr(x) if mode == "reduced" else complete_qr(x)))
    rename_node(found.Q, "LinalgQrBackward0", mode=mode)
    return found


@with_out
@refuses("bool int")
@in_full_precision
@no_view_of_parts
def svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None) -> Svd:
    """Singular value decomposition; ``full_matrices`` completes the factors to square ones, without a derivative."""
    u, s, vh = ops.svd(require_floating(A, "svd"))
    return Svd(completed(u), s, completed(vh.mH).mH) if full_matrices else Svd(u, s, vh)


@with_out
@in_full_precision
def svdvals(A: Tensor, *, driver: str | None = None) -> Tensor:
    """Singular values, descending."""
    return ops.svdvals(require_floating(A, "svdvals"))


@with_out
@in_full_precision
@no_view_of_parts
def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """``X`` with ``A @ X = B`` (or ``X @ A = B``)."""
    return ops.solve(require_floating(A, "solve"), B, left)


@with_out
@no_view_of_parts
def solve_triangular(A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    """``solve`` that reads one triangle of ``A``."""
    return ops.triangular_solve(require_floating(A, "solve_triangular"), B, upper, left, unitriangular)


def _is_everywhere(rank: Tensor, n: int) -> bool:
    """Whether all ranks are ``n``; along a batch of ``vmap``, where nothing can be looked at, they count as full."""
    return (rank._array is None and bool(state.layers)) or bool(rank.eq(n).all())


@in_full_precision
@no_view_of_parts
def lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None) -> LeastSquares:
    """The least squares solution of ``A @ X = B``: ``f[..., m, n], f[..., m, k] or f[..., m] -> f[..., n, k]``.

    Args:
        rcond: singular values up to ``rcond`` times the largest count as zero.
        driver: ``"gelsy"`` (default), ``"gels"``, ``"gelsd"`` or ``"gelss"``: which of the fields torch fills with it.
            The solution, through the pseudo-inverse, is the same.

    Returns:
        (solution, residuals, rank, singular_values).
    """
    if type_of(A).ndim < 2:
        raise UsageError("torch.linalg.lstsq: input must have at least 2 dimensions.", {"A": A})
    if type_of(B).ndim < 1:
        raise UsageError("torch.linalg.lstsq: other must have at least 1 dimension.", {"B": B})
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise UsageError(
            "torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)", {"driver": driver}
        )
    if type_of(A).dtype is not type_of(B).dtype:
        raise UsageError(
            "torch.linalg.lstsq: Expected input and other to have the same dtype, but got input's dtype "
            f"{type_of(A).dtype.scalar_type} and other's dtype {type_of(B).dtype.scalar_type}"
        )
    batch, (m, n) = type_of(A).shape[:-2], type_of(A).shape[-2:]
    is_vector = type_of(B).shape[:-1] == batch and type_of(B).ndim == type_of(A).ndim - 1
    right = B.unsqueeze(-1) if is_vector else B
    if type_of(right).ndim < 2 or type_of(right).shape[-2] != m:
        raise UsageError("torch.linalg.lstsq: input.size(-2) should match other.size(-2)", {"A": A, "B": B})
    x = pinv(A, rtol=rcond) @ right
    rank, empty = ops.matrix_rank(A, rcond), zeros(0, dtype=type_of(A).dtype.to_real(), device=type_of(A).device)
    residuals = x.reshape(-1)[:0].real
    if m > n and driver in ("gels", "gelsd", "gelss") and (driver == "gels" or _is_everywhere(rank, n)):
        residuals = (A @ x - right).abs().square().sum(-2)
    values = svdvals(A).detach() if driver in ("gelsd", "gelss") else empty
    solution = x.squeeze(-1) if is_vector else x
    return LeastSquares(solution, residuals, rank if driver != "gels" else empty.to(int64), values)
