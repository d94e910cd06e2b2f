"""Factorisations that report failures instead of raising: ``cholesky_ex``, ``inv_ex``, ``solve_ex``.

``info`` is 0 for success. The result of a matrix that failed is NaN; the others of its batch are right.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from autojit import ops
from autojit.core.dtypes import int32
from autojit.core.errors import ShapeError
from autojit.dispatch.promotion import cast
from autojit.functions.comparison import where
from autojit.functions.factories import eye
from autojit.functions.matrix_forms import one_triangle
from autojit.functions.out_arguments import with_out
from autojit.linalg.factorizations import cholesky, inv, require_floating, solve
from autojit.linalg.triangular import lu_factor_ex
from autojit.ops.failed_matrices import LinAlgError
from autojit.tensor import Tensor
from autojit.tensor.tensor import type_of

__all__ = ["cholesky_ex", "inv_ex", "solve_ex"]


class CholeskyWithInfo(NamedTuple):
    """The factor and per matrix 0, or the order of the first leading minor that is not positive."""

    L: Tensor
    info: Tensor


class InverseWithInfo(NamedTuple):
    """The inverse and per matrix 0, or which diagonal entry of its ``U`` is zero."""

    inverse: Tensor
    info: Tensor


class SolutionWithInfo(NamedTuple):
    """The solution and per matrix 0, or which diagonal entry of its ``U`` is zero."""

    result: Tensor
    info: Tensor


def _without_failures(a: Tensor, info: Tensor) -> tuple[Tensor, Tensor]:
    """The matrices with identities for those that failed, and which are good."""
    good = info.eq(0)[..., None, None]
    return where(good, a, eye(type_of(a).shape[-1], dtype=type_of(a).dtype, device=type_of(a).device)), good


def _raise_first(info: Tensor, name: str, message: str) -> None:
    """Raise for the first matrix of a batch that failed: ``message`` says what about the number in ``info``."""
    numbers = info.reshape(-1).tolist()
    failed = next((k for k, number in enumerate(numbers) if number), None)
    if failed is not None:
        place = f"(Batch element {failed}): " if info.ndim else ""
        raise LinAlgError(f"linalg.{name}: {place}{message.format(numbers[failed])}")


@with_out
def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False) -> CholeskyWithInfo:
    """``cholesky`` that says in ``info`` which matrices are not positive definite.

    Shapes: ``[.., n, n] -> [.., n, n], i32[..]``.

    Raises:
        LinAlgError: ``check_errors`` is set and a matrix is not positive definite.

    Example:
        >>> import autojit as aj
        >>> aj.linalg.cholesky_ex(aj.tensor([[1.0, 2.0], [2.0, 1.0]])).info
        tensor(2, dtype=autojit.int32)
    """
    a = one_triangle(require_floating(A, "cholesky_ex"), upper)
    info = ops.first_bad_minor(a.detach())
    if check_errors:
        _raise_first(
            info,
            "cholesky_ex",
            "The factorization could not be completed because the input is not positive-definite "
            "(the leading minor of order {} is not positive-definite).",
        )
    safe, good = _without_failures(a, info)
    return CholeskyWithInfo(where(good, cholesky(safe, upper=upper), math.nan), info)


def _singular(a: Tensor, name: str, check_errors: bool) -> Tensor:
    shape = type_of(require_floating(a, name)).shape
    if shape[-1] != shape[-2]:
        raise ShapeError(
            f"linalg.{name}: A must be batches of square matrices, but they are {shape[-2]} by {shape[-1]} matrices",
            {"A": a},
        )
    info = lu_factor_ex(a.detach()).info
    if check_errors:
        _raise_first(
            info,
            name,
            f"The diagonal element {{}} is zero, the {'inversion' if name == 'inv_ex' else 'computation'} could not be "
            "completed because the input matrix is singular.",
        )
    return info


@with_out
def inv_ex(A: Tensor, *, check_errors: bool = False) -> InverseWithInfo:
    """``inv`` that says in ``info`` which matrices are singular: ``[.., n, n] -> [.., n, n], i32[..]``.

    Raises:
        LinAlgError: ``check_errors`` is set and a matrix is singular.

    Example:
        >>> import autojit as aj
        >>> aj.linalg.inv_ex(aj.tensor([[1.0, 2.0], [2.0, 4.0]])).info
        tensor(2, dtype=autojit.int32)
    """
    info = _singular(A, "inv_ex", check_errors)
    safe, good = _without_failures(A, info)
    return InverseWithInfo(where(good, inv(safe), math.nan), cast(info, int32))


@with_out
def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> SolutionWithInfo:
    """``solve`` that says in ``info`` which matrices are singular.

    Raises:
        LinAlgError: ``check_errors`` is set and a matrix is singular.

    Example:
        >>> import autojit as aj
        >>> aj.linalg.solve_ex(2 * aj.eye(2), aj.ones(2, 1)).result
        tensor([[0.5000],
                [0.5000]])
    """
    info = _singular(A, "solve_ex", check_errors)
    safe, good = _without_failures(A, info)
    found = solve(safe, B, left=left)
    is_vector = type_of(found).ndim == type_of(safe).ndim - 1
    return SolutionWithInfo(where(good.squeeze(-1) if is_vector else good, found, math.nan), info)
