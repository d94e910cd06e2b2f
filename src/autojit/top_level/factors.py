"""Matrix factorisations under their older top-level names: LU and QR in packed form, and what is done with them."""

from __future__ import annotations

from typing import Any, NamedTuple

from autojit import linalg, ops
from autojit.core.dtypes import int32
from autojit.core.errors import ShapeError, UsageError
from autojit.core.user_warnings import warn
from autojit.dispatch.declared import declared
from autojit.functions.autocast import in_full_precision
from autojit.functions.factories import eye, zeros
from autojit.history.lasting import with_lasting_constants
from autojit.linalg.factorizations import require_floating
from autojit.linalg.triangular import permutation_of, triangles_of
from autojit.ops.base import broadcast_shapes
from autojit.tensor import Tensor
from autojit.tensor.tensor import type_of


class PackedQr(NamedTuple):
    """``R`` and the vectors of the reflections in one matrix, and the reflections' factors."""

    a: Tensor
    tau: Tensor


class UnpackedLu(NamedTuple):
    """``P @ L @ U``."""

    P: Tensor
    L: Tensor
    U: Tensor


@declared()
def lu(A: Tensor, pivot: bool = True, get_infos: bool = False, out: Any = None) -> Any:
    """``linalg.lu_factor`` under its older name; with ``get_infos`` the third result counts zero pivots from 1.

    Raises:
        RuntimeError: ``pivot`` is not set, or a pivot is zero and ``get_infos`` is not set.

    Example:
        >>> import warnings
        >>> import autojit as aj
        >>> with warnings.catch_warnings(action="ignore"):
        ...     packed, pivots = aj.lu(aj.tensor([[0.0, 2.0], [4.0, 4.0]]))
        >>> pivots
        tensor([2, 2], dtype=autojit.int32)
    """
    warn("lu is deprecated in favor of linalg.lu_factor and linalg.lu_factor_ex", UserWarning)
    if not pivot:
        raise UsageError("linalg.lu_factor: LU without pivoting is not implemented on the CPU", {"A": A})
    found = tuple(linalg.lu_factor_ex(A) if get_infos else linalg.lu_factor(A))
    if out is None:
        return found
    for place, result in zip(out, found, strict=True):
        place.resize_(type_of(result).shape).copy_(result)
    return out


@declared(out=True)
def lu_solve(input: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """``linalg.lu_solve(LU_data, LU_pivots, input)``.

    Example:
        >>> import autojit as aj
        >>> aj.lu_solve(aj.ones(2, 1), *aj.linalg.lu_factor(2 * aj.eye(2)))
        tensor([[0.5000],
                [0.5000]])
    """
    return linalg.lu_solve(LU_data, LU_pivots, input)


@declared(method=False, out=True)
def lu_unpack(LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True) -> UnpackedLu:
    """The permutation and the two triangles in ``linalg.lu_factor``'s result; empty tensors for what is not asked.

    Shapes: ``[.., m, n], i32[.., k] -> [.., m, m], [.., m, k], [.., k, n]`` with k the smaller of m and n.

    Raises:
        RuntimeError: pivots that are not int32.

    Example:
        >>> import autojit as aj
        >>> aj.lu_unpack(*aj.linalg.lu_factor(aj.tensor([[0.0, 2.0], [4.0, 4.0]]))).U
        tensor([[4., 4.],
                [0., 2.]])
    """
    if unpack_pivots and type_of(LU_pivots).dtype is not int32:
        raise UsageError(
            "torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype. Note: this "
            "function is intended to be used with the output produced by torch.linalg.lu_factor",
            {"LU_pivots": LU_pivots},
        )
    dtype = type_of(LU_data).dtype
    nothing = zeros(0, dtype=dtype, device=type_of(LU_data).device)
    lower, upper = with_lasting_constants(triangles_of(LU_data), LU_data) if unpack_data else (nothing, nothing)
    rows = type_of(LU_data).shape[-2]
    return UnpackedLu(permutation_of(LU_pivots, rows, dtype) if unpack_pivots else nothing, lower, upper)


@declared(out=True)
def geqrf(input: Tensor) -> PackedQr:
    """QR in packed form, for ``orgqr`` and ``ormqr``: ``[.., m, n] -> [.., m, n], [.., min(m, n)]``.

    Not differentiable, as in torch; ``linalg.qr`` is.

    Raises:
        RuntimeError: the operand has fewer than two axes, or is not a float.

    Example:
        >>> import autojit as aj
        >>> aj.geqrf(aj.tensor([[3.0], [4.0]])).a[0]
        tensor([-5.])
    """
    if type_of(input).ndim < 2:
        raise ShapeError("torch.geqrf: input must have at least 2 dimensions.", {"input": input})
    return PackedQr(*ops.geqrf(require_floating(input, "geqrf")))


@declared(out=True)
def orgqr(input: Tensor, input2: Tensor) -> Tensor:
    """``linalg.householder_product``.

    Example:
        >>> import autojit as aj
        >>> aj.orgqr(*aj.geqrf(2 * aj.eye(2)))
        tensor([[1., 0.],
                [0., 1.]])
    """
    return linalg.householder_product(input, input2)


@declared(out=True)
@in_full_precision
def ormqr(input: Tensor, input2: Tensor, input3: Tensor, left: bool = True, transpose: bool = False) -> Tensor:
    """``Q @ input3``, with ``Q`` (whole, ``[m, m]``) given by reflections; differentiable in all operands.

    Shapes: ``[.., m, k], [.., k], [.., m, n] -> [.., m, n]``; ``[.., n, m]`` is multiplied from the right if not
    ``left``.

    Args:
        transpose: multiply by the adjoint of ``Q``.

    Raises:
        RuntimeError: shapes that do not fit.

    Example:
        >>> import autojit as aj
        >>> aj.ormqr(*aj.geqrf(aj.eye(2)), aj.ones(2, 1))
        tensor([[1.],
                [1.]])
    """
    tau, other = input2, input3
    a, t, b = type_of(require_floating(input, "ormqr")), type_of(tau), type_of(other)
    if a.ndim < 2 or b.ndim < 2:
        raise ShapeError("torch.ormqr: input and other must have at least 2 dimensions.", {"input": input})
    axis = -2 if left else -1
    if t.shape[-1] > a.shape[-1]:
        raise ShapeError("torch.ormqr: input.shape[-1] must be greater than or equal to tau.shape[-1]", {"tau": tau})
    if b.shape[axis] < t.shape[-1] or t.shape[-1] != min(b.shape[axis], a.shape[-1]):
        raise ShapeError(
            f"torch.ormqr: tau.shape[-1] must be equal to min(other.shape[{axis}], input.shape[-1])", {"tau": tau}
        )
    if b.shape[axis] != a.shape[-2]:
        raise ShapeError(f"torch.ormqr: other.shape[{axis}] must be equal to input.shape[-2]", {"other": other})
    if a.dtype is not t.dtype or a.dtype is not b.dtype:
        raise UsageError("torch.ormqr: Expected input, tau and other to have the same dtype", {"tau": tau})
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    vectors = (input.tril(-1) + eye(*a.shape[-2:], dtype=a.dtype, device=a.device)).expand(*batch, *a.shape[-2:])
    factors = (tau.conj() if transpose and a.dtype.is_complex else tau).expand(*batch, t.shape[-1])
    found: Tensor = other.expand(*batch, *b.shape[-2:])
    order = range(t.shape[-1])
    for i in order if transpose == left else reversed(order):
        v, factor = vectors[..., i : i + 1], factors[..., i, None, None]
        found = found - (factor * v @ (v.mH @ found) if left else (found @ v) * factor @ v.mH)
    return found
