"""Factorisations of symmetric and Hermitian matrices that need not be definite, and what is solved with them."""

from __future__ import annotations

from typing import NamedTuple

from autojit import ops
from autojit.core.errors import ShapeError, UsageError
from autojit.functions.out_arguments import with_out
from autojit.linalg.factorizations import require_floating
from autojit.ops.base import broadcast_shapes
from autojit.ops.failed_matrices import LinAlgError
from autojit.tensor import Tensor
from autojit.tensor.tensor import type_of

__all__ = ["ldl_factor", "ldl_factor_ex", "ldl_solve"]


class LdlFactors(NamedTuple):
    """``L`` and ``D`` in one (LAPACK's packed form) and the pivots: negative ones in pairs for blocks of two rows."""

    LD: Tensor
    pivots: Tensor


class LdlFactorsWithInfo(NamedTuple):
    """``LdlFactors`` and per matrix 0, or which diagonal entry of ``D`` is zero."""

    LD: Tensor
    pivots: Tensor
    info: Tensor


@with_out
def ldl_factor_ex(A: Tensor, *, hermitian: bool = False, check_errors: bool = False) -> LdlFactorsWithInfo:
    """``ldl_factor`` that reports a singular ``D`` in ``info``.

    Raises:
        LinAlgError: ``check_errors`` is set and a diagonal entry of ``D`` is zero.
    """
    found = LdlFactorsWithInfo(*ops.ldl_factor(require_floating(A, "ldl_factor_ex"), hermitian))
    if check_errors and any(found.info.reshape(-1).tolist()):
        raise LinAlgError("linalg.ldl_factor_ex: a diagonal entry of D is zero; solving would divide by it")
    return found


@with_out
def ldl_factor(A: Tensor, *, hermitian: bool = False) -> LdlFactors:
    """``A = L @ D @ L.mT`` (``L.mH`` if ``hermitian``), reading the lower triangle.

    Shapes: ``[.., n, n] -> [.., n, n], i32[.., n]``.

    Not differentiable, as in torch; ``linalg.solve`` is.

    Raises:
        LinAlgError: a diagonal entry of ``D`` is zero.

    Example:
        >>> import autojit as aj
        >>> aj.linalg.ldl_factor(aj.tensor([[0.0, 1.0], [1.0, 0.0]])).pivots
        tensor([-2, -2], dtype=autojit.int32)
    """
    packed, pivots, _ = ldl_factor_ex(A, hermitian=hermitian, check_errors=True)
    return LdlFactors(packed, pivots)


@with_out
def ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False) -> Tensor:
    """``X`` with ``A @ X = B`` from ``ldl_factor(A)``: ``[.., n, n], i32[.., n], [.., n, k] -> [.., n, k]``.

    Raises:
        RuntimeError: shapes or dtypes that do not fit.

    Example:
        >>> import autojit as aj
        >>> factors = aj.linalg.ldl_factor(aj.tensor([[0.0, 1.0], [1.0, 0.0]]))
        >>> aj.linalg.ldl_solve(*factors, aj.tensor([[2.0], [3.0]]))
        tensor([[3.],
                [2.]])
    """
    factors, right = type_of(require_floating(LD, "ldl_solve")), type_of(B)
    if right.ndim < 2:
        raise ShapeError(
            f"torch.linalg.ldl_solve: Expected B to have at least 2 dimensions, but it has {right.ndim} dimensions "
            "instead",
            {"B": B},
        )
    if factors.shape[:-1] != type_of(pivots).shape:
        raise ShapeError(
            "torch.linalg.ldl_solve: Expected LD.shape[:-1] and pivots.shape to be the same", {"pivots": pivots}
        )
    if type_of(pivots).dtype.category != 1:
        raise UsageError(
            f"torch.linalg.ldl_solve: Expected pivots to be integers. Got {type_of(pivots).dtype}", {"pivots": pivots}
        )
    if factors.dtype is not right.dtype:
        raise UsageError(
            f"torch.linalg.ldl_solve: LD dtype {factors.dtype} does not match b dtype {right.dtype}", {"B": B}
        )
    if factors.shape[-1] != right.shape[-2]:
        raise ShapeError("linalg.ldl_solve: Incompatible shapes of A and B for the equation AX = B", {"LD": LD, "B": B})
    batch = broadcast_shapes(factors.shape[:-2], right.shape[:-2])
    n, k = right.shape[-2:]
    return ops.ldl_solve(
        LD.detach().expand(*batch, n, n), pivots.expand(*batch, n), B.detach().expand(*batch, n, k), hermitian
    )
