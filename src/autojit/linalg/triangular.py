"""LU factorisations and what is solved with them; products of Householder reflections; tensors as matrices."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from autojit import ops
from autojit.core.device_array import host_copy
from autojit.core.dtypes import DType, int32
from autojit.core.errors import ShapeError, UsageError
from autojit.dispatch.promotion import cast
from autojit.functions.autocast import in_full_precision
from autojit.functions.comparison import where
from autojit.functions.factories import arange, eye, zeros
from autojit.functions.out_arguments import with_out
from autojit.functions.own_memory import no_view_of_parts
from autojit.linalg.factorizations import inv, require_floating, solve
from autojit.tensor import Tensor
from autojit.tensor.tensor import type_of

__all__ = ["householder_product", "lu", "lu_factor", "lu_factor_ex", "lu_solve", "tensorinv", "tensorsolve"]


class Lu(NamedTuple):
    """``A = P @ L @ U``."""

    P: Tensor
    L: Tensor
    U: Tensor


class LuFactor(NamedTuple):
    """``L`` (unit diagonal left out) and ``U`` in one, and the exchanged rows, counted from 1."""

    LU: Tensor
    pivots: Tensor


class LuFactorEx(NamedTuple):
    """``LuFactor`` and per matrix 0, or which diagonal entry of ``U`` is the first zero."""

    LU: Tensor
    pivots: Tensor
    info: Tensor


def _rows_in_order(x: Tensor, order: Tensor) -> Tensor:
    shape = type_of(x).shape
    return x.take_along_dim(order[..., None].expand(shape), -2)


def _factors(a: Tensor, pivot: bool, is_checked: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(L, U, pivots, order of the rows), both factors of the reduced shapes."""
    *batch, m, n = type_of(a).shape
    k = min(m, n)
    if pivot:
        pivots = ops.lu_pivots(a.detach(), is_checked)
    else:
        pivots = arange(1, k + 1, dtype=int32, device=type_of(a).device).expand(*batch, k)
    order = ops.pivot_order(pivots, m)
    ordered = _rows_in_order(a, order) if pivot else a
    packed = ops.lu_square(ordered[..., :k, :k])
    lower = packed.tril(-1) + eye(k, dtype=type_of(a).dtype, device=type_of(a).device)
    upper = packed.triu()
    if m > n:
        lower = ops.concatenate([lower, ops.triangular_solve(upper, ordered[..., k:, :], True, False)], -2)
    if n > m:
        upper = ops.concatenate([upper, ops.triangular_solve(lower, ordered[..., :, k:], False, True, True)], -1)
    return lower, upper, pivots, order


def triangles_of(packed: Tensor) -> tuple[Tensor, Tensor]:
    """``L`` with its unit diagonal and ``U``, of the reduced shapes, from both in one."""
    *_, m, n = type_of(packed).shape
    k = min(m, n)
    ones = eye(m, k, dtype=type_of(packed).dtype, device=type_of(packed).device)
    return packed[..., :k].tril(-1) + ones, packed[..., :k, :].triu()


def permutation_of(pivots: Tensor, rows: int, dtype: DType) -> Tensor:
    """The permutation matrix ``P`` of exchanged rows."""
    return _permutation(ops.pivot_order(pivots, rows), rows, dtype)


def _permutation(order: Tensor, rows: int, dtype: DType) -> Tensor:
    return cast(order[..., None, :].eq(arange(rows, device=type_of(order).device)[:, None]), dtype)


@with_out
def lu(A: Tensor, *, pivot: bool = True) -> Lu:
    """``A = P @ L @ U`` with a permutation, a unit lower and an upper triangle: ``[m, n] -> [m, m], [m, k], [k, n]``.

    Without ``pivot`` no rows are exchanged, and ``P`` is empty.

    Example:
        >>> import autojit as aj
        >>> aj.linalg.lu(aj.tensor([[0.0, 2.0], [4.0, 4.0]])).U
        tensor([[4., 4.],
                [0., 2.]])
    """
    lower, upper, _, order = _factors(require_floating(A, "lu"), pivot, False)
    if not pivot:
        return Lu(zeros(0, dtype=type_of(A).dtype, device=type_of(A).device), lower, upper)
    return Lu(_permutation(order, type_of(A).shape[-2], type_of(A).dtype), lower, upper)


def _packed(lower: Tensor, upper: Tensor) -> Tensor:
    *_, m, k = type_of(lower).shape
    n = type_of(upper).shape[-1]
    below = lower.tril(-1)
    if n > k:
        return ops.concatenate([below + upper[..., :k], upper[..., k:]], -1)
    if m > k:
        return ops.concatenate([below[..., :k, :] + upper, below[..., k:, :]], -2)
    return below + upper


@with_out
def lu_factor(A: Tensor, *, pivot: bool = True) -> LuFactor:
    """``lu`` in the compact form that ``lu_solve`` takes: ``[m, n] -> [m, n], int32[k]``.

    Raises:
        LinAlgError: a diagonal entry of ``U`` is zero.

    Example:
        >>> import autojit as aj
        >>> aj.linalg.lu_factor(aj.tensor([[0.0, 2.0], [4.0, 4.0]])).pivots
        tensor([2, 2], dtype=autojit.int32)
    """
    lower, upper, pivots, _ = _factors(require_floating(A, "lu_factor"), pivot, True)
    return LuFactor(_packed(lower, upper), pivots)


@with_out
def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> LuFactorEx:
    """``lu_factor`` that reports a zero on the diagonal of ``U`` in ``info`` unless ``check_errors`` is set."""
    lower, upper, pivots, _ = _factors(require_floating(A, "lu_factor_ex"), pivot, check_errors)
    diagonal = upper.detach().diagonal(dim1=-2, dim2=-1)
    leading = cast(diagonal.ne(0), int32).cumprod(-1).sum(-1)  # entries before the first zero
    info = cast(where(leading < type_of(diagonal).shape[-1], leading + 1, 0), int32)
    return LuFactorEx(_packed(lower, upper), pivots, info)


@with_out
@in_full_precision
@no_view_of_parts
def lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    """``X`` with ``A @ X = B`` (``X @ A = B`` without ``left``; ``A.mH`` with ``adjoint``), from ``lu_factor(A)``.

    Example:
        >>> import autojit as aj
        >>> factors = aj.linalg.lu_factor(aj.tensor([[0.0, 2.0], [4.0, 4.0]]))
        >>> aj.linalg.lu_solve(*factors, aj.tensor([[2.0], [8.0]]))
        tensor([[1.],
                [1.]])
    """
    if type_of(pivots).dtype is not int32:
        raise UsageError("linalg.lu_solve: pivots should be a Tensor of scalar type torch.int32", {"pivots": pivots})
    if not left:
        return lu_solve(LU, pivots, B.mH, adjoint=not adjoint).mH
    shape = type_of(require_floating(LU, "lu_solve")).shape
    if shape[-1] != shape[-2]:
        raise ShapeError("linalg.lu_solve: LU must be batches of square matrices", {"LU": LU})
    if type_of(pivots).shape[-1:] != shape[-1:]:
        raise ShapeError(
            "linalg.lu_solve: Number of pivots per batch should be same as the dimension of the matrix",
            {"LU": LU, "pivots": pivots},
        )
    if type_of(B).dtype is not type_of(LU).dtype:
        raise UsageError(
            "linalg.lu_solve: Expected LU and B to have the same dtype, but found LU of type "
            f"{type_of(LU).dtype} and B of type {type_of(B).dtype} instead"
        )
    rows = None if pivots._array is None else host_copy(pivots._array)
    if rows is not None and rows.size and not 1 <= rows.min() <= rows.max() <= shape[-1]:
        raise UsageError(
            f"Pivots given to lu_solve must all be from 1 to LU.size(-1) ({shape[-1]})",
            {"pivots": pivots},
            "give the pivots that lu_factor returned",
        )
    order = ops.pivot_order(pivots, shape[-1])
    batch = ops.base.broadcast_shapes(shape[:-2], type_of(B).shape[:-2])
    factors = LU.expand(*batch, *shape[-2:])
    right = B.expand(*batch, *type_of(B).shape[-2:])
    order = order.expand(*batch, shape[-1])
    if not adjoint:
        inner = ops.triangular_solve(factors, _rows_in_order(right, order), False, True, True)
        return ops.triangular_solve(factors, inner, True)
    inner = ops.triangular_solve(factors.mH, right, False)
    return _rows_in_order(ops.triangular_solve(factors.mH, inner, True, True, True), order.argsort(-1))


@with_out
@in_full_precision
@no_view_of_parts
def householder_product(A: Tensor, tau: Tensor) -> Tensor:
    """The first ``n`` columns of the product of the reflections ``I - tau[i] v v.mH``, ``v`` in column ``i`` of ``A``.

    ``v`` is zero above the diagonal and one on it. Shapes: ``[..., m, n], [..., k] -> [..., m, n]``, m >= n >= k.

    Example:
        >>> import autojit as aj
        >>> aj.linalg.householder_product(aj.tensor([[0.0], [0.0]]), aj.tensor([2.0]))
        tensor([[-1.],
                [ 0.]])
    """
    *batch, m, n = type_of(require_floating(A, "householder_product")).shape
    k = type_of(tau).shape[-1]
    if m < n:
        raise ShapeError(
            "torch.linalg.householder_product: input.shape[-2] must be greater than or equal to input.shape[-1]",
            {"input": A},
        )
    if n < k:
        raise ShapeError(
            "torch.linalg.householder_product: input.shape[-1] must be greater than or equal to tau.shape[-1]",
            {"input": A, "tau": tau},
        )
    dtype = type_of(A).dtype
    vectors = A.tril(-1) + eye(m, n, dtype=dtype, device=type_of(A).device)
    product: Tensor = eye(m, n, dtype=dtype, device=type_of(A).device).expand(*batch, m, n)
    for i in reversed(range(k)):
        v = vectors[..., :, i : i + 1]
        product = product - tau[..., i, None, None] * v @ (v.mH @ product)
    return product


@with_out
def tensorinv(A: Tensor, ind: int = 2) -> Tensor:
    """The inverse of a tensor as a map between its first ``ind`` axes and the others.

    Example:
        >>> import autojit as aj
        >>> aj.linalg.tensorinv(2 * aj.eye(2).reshape(2, 2, 1), ind=1).shape
        autojit.Size([2, 1, 2])
    """
    if ind <= 0:
        raise UsageError("Expected a strictly positive integer for 'ind'", {"ind": ind})
    shape = type_of(A).shape
    rows, columns = shape[:ind], shape[ind:]
    if prod(rows) != prod(columns):
        raise ShapeError(
            f"Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got "
            f"{prod(columns)} != {prod(rows)}",
            {"A": A},
        )
    return inv(A.reshape(prod(rows), prod(rows))).reshape(*columns, *rows)


@with_out
def tensorsolve(A: Tensor, B: Tensor, dims: Sequence[int] | None = None) -> Tensor:
    """``X`` with ``tensordot(A, X, X.ndim) = B``; the axes ``dims`` of ``A`` are moved to its end first.

    Example:
        >>> import autojit as aj
        >>> aj.linalg.tensorsolve(2 * aj.eye(2).reshape(2, 2, 1), aj.ones(2))
        tensor([[0.5000],
                [0.5000]])
    """
    moved = A
    if dims is not None:
        ndim = type_of(A).ndim
        moved = A.movedim(tuple(dims), tuple(range(ndim - len(dims), ndim)))
    shape, size = type_of(moved).shape, prod(type_of(B).shape)
    unknowns = shape[type_of(B).ndim :]
    if prod(unknowns) != size:
        raise ShapeError(
            "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim]), "
            f"but got {prod(unknowns)} != {size}",
            {"A": A, "B": B},
        )
    return solve(moved.reshape(size, size), B.flatten()).reshape(unknowns)
