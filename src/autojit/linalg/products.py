"""Products, determinants, norms of matrices and vectors."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from autojit import ops
from autojit.core.dtypes import DType, int64
from autojit.core.errors import ShapeError, UsageError
from autojit.core.sizes import agree, seems_equal
from autojit.dispatch.promotion import cast
from autojit.functions.autocast import in_full_precision_on_devices
from autojit.functions.comparison import eq, where
from autojit.functions.derived import cross as vector_product
from autojit.functions.method_forms import with_numpy_names
from autojit.functions.out_arguments import with_out
from autojit.functions.own_memory import own_memory
from autojit.functions.products import matmul as product_of_matrices
from autojit.functions.reduction import norm as vector_p_norm
from autojit.functions.refused_dtypes import refuses
from autojit.functions.special import Slogdet
from autojit.functions.views import diagonal as diagonal_view
from autojit.linalg.factorizations import require_floating, svdvals, tolerances
from autojit.linalg.reporting import inv_ex
from autojit.ops.base import normalize_axis
from autojit.tensor import Tensor
from autojit.tensor.state import state
from autojit.tensor.tensor import type_of

__all__ = [
    "cond", "cross", "det", "diagonal", "matmul", "matrix_norm", "matrix_power", "matrix_rank", "multi_dot", "norm",
    "slogdet", "vander", "vecdot", "vector_norm",
]  # fmt: skip

Dims = int | Sequence[int] | None


matmul = with_out(product_of_matrices)


@with_out
def det(A: Tensor) -> Tensor:
    """The determinant of square matrices."""
    return ops.det(require_floating(A, "det"))


@with_out
def slogdet(A: Tensor) -> Slogdet:
    """(sign, log of the absolute value) of the determinant."""
    return Slogdet(*ops.slogdet(require_floating(A, "slogdet")))


@with_out
@own_memory
def matrix_power(A: Tensor, n: int) -> Tensor:
    """``A`` multiplied ``n`` times with itself."""
    shape = type_of(A).shape
    if len(shape) < 2:
        raise ShapeError("linalg.matrix_power: The input tensor A must have at least 2 dimensions.", {"A": A})
    if not agree(shape[-2], shape[-1]):
        raise ShapeError(
            f"linalg.matrix_power: A must be batches of square matrices, but they are {shape[-2]} by {shape[-1]} "
            "matrices",
            {"A": A},
        )
    return ops.matrix_power(A, n)


@with_out
def matrix_rank(A: Tensor, tol: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None) -> Tensor:
    """How many singular values exceed ``max(atol, rtol * largest)``; ``tol`` is the older name of ``atol``."""
    a = require_floating(A, "matrix_rank")
    relative, cutoff = tolerances(a, tol if atol is None else atol, rtol, hermitian)
    return ops.matrix_rank(a, relative, cutoff, hermitian)


@with_out
def multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """The product of matrices, left to right."""
    if len(tensors) < 2:
        raise UsageError(f"multi_dot(): expected at least 2 tensors but got {len(tensors)}")
    product = tensors[0]
    for t in tensors[1:]:
        product = matmul(product, t)
    return product


@with_out
@refuses("bool int")
@with_numpy_names
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """Sums of products along an axis, the first operand conjugated."""
    if state.autocast is not None:
        return state.autocast.lower(vecdot, x, y, dim=dim)
    if type_of(x).dtype is not type_of(y).dtype:
        raise UsageError(
            f"linalg.vecdot: Expected x and y to have the same dtype, but found x of type {type_of(x).dtype} and y of "
            f"type {type_of(y).dtype} instead"
        )
    return (x.conj() * y).sum(dim)


@with_out
@with_numpy_names
def cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """The vector product along an axis of extent 3."""
    return vector_product(input, other, dim)


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonals of matrices; a view."""
    return diagonal_view(A, offset, dim1, dim2)


def vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """Powers 0 .. N - 1 of a vector as columns."""
    if N is not None and N < 1:
        raise UsageError(f"linalg.vander: N must be at least 1, got {N}", {"x": x})
    if N is None and not type_of(x).ndim:
        raise ShapeError("linalg.vander: a number has no extent, so N must be given", {"x": x}, "say N=3")
    x = cast(x, int64) if type_of(x).dtype.category < 2 else x
    return ops.vander(x, type_of(x).shape[-1] if N is None else N, True)


@with_out
@with_numpy_names
@in_full_precision_on_devices
def vector_norm(
    x: Tensor, ord: float = 2, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    """The p-norm of the elements along ``dim`` (of all of them by default).

    Raises:
        RuntimeError: no elements have a norm of this order: it is negative or infinite; or ``ord`` is complex.
    """
    if isinstance(ord, complex):
        raise UsageError("linalg.vector_norm: Expected a non-complex scalar as the order of norm.")
    if ord < 0 or ord == inf:
        _require_elements(x, ord, dim)
    return vector_p_norm(x, ord, dim, keepdim, dtype)


def _require_elements(x: Tensor, order: float, dim: Dims) -> None:
    axes = range(type_of(x).ndim) if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    for axis in axes or range(type_of(x).ndim):
        if seems_equal(type_of(x).shape[normalize_axis(axis, type_of(x).ndim, "linalg.vector_norm")], 0):
            place = "an empty tensor" if dim is None else f"the dimension {axis}, which is empty,"
            raise UsageError(
                f"linalg.vector_norm cannot compute the {order} norm on {place} because the operation does not have an "
                "identity",
                {"x": x},
            )


@with_out
@with_numpy_names
@in_full_precision_on_devices
def matrix_norm(
    A: Tensor, ord: Any = "fro", dim: Sequence[int] = (-2, -1), keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    """Norms of matrices: "fro", "nuc", 1, -1, 2, -2, inf, -inf."""
    x = require_floating(A if dtype is None else cast(A, dtype), "matrix_norm")
    if len(dim) != 2:
        raise UsageError(f"linalg.matrix_norm: dim must be a 2-tuple. Got {list(dim)}", {"A": A})
    if isinstance(ord, str) and ord not in ("fro", "nuc"):
        raise UsageError(f"linalg.matrix_norm: Order {ord} not supported.", {"A": A}, "'fro', 'nuc' or a number")
    rows, columns = (normalize_axis(d, type_of(x).ndim, "matrix_norm") for d in dim)
    if ord == "fro":
        return vector_p_norm(x, 2, (rows, columns), keepdim)
    if ord in ("nuc", 2, -2):
        return _spectral(x, ord, rows, columns, keepdim)
    along, across = (rows, columns) if abs(ord) == 1 else (columns, rows)
    if abs(ord) not in (1, inf):
        raise UsageError(f"linalg.matrix_norm: Order {ord} not supported.")
    sums = x.abs().sum(along, keepdim=True)
    best = _greatest(sums, across, True) if ord > 0 else sums.amin(across, keepdim=True)
    return best if keepdim else best.squeeze((rows, columns))


def _greatest(magnitudes: Tensor, axis: int, keepdim: bool) -> Tensor:
    """The largest along an axis; of no magnitudes it is 0."""
    if type_of(magnitudes).shape[axis] == 0:
        return magnitudes.sum(axis, keepdim)
    return magnitudes.amax(axis, keepdim)


def _spectral(x: Tensor, order: Any, rows: int, columns: int, keepdim: bool) -> Tensor:
    values = svdvals(x.movedim((rows, columns), (-2, -1)))
    found = values.sum(-1) if order == "nuc" else _greatest(values, -1, False) if order == 2 else values.amin(-1)
    if keepdim:
        for axis in sorted((rows, columns)):
            found = found.unsqueeze(axis)
    return found


@with_out
@with_numpy_names
def norm(A: Tensor, ord: Any = None, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """A vector or matrix norm, by ``ord`` and ``dim`` as torch.linalg.norm chooses."""
    if ord is None:
        return vector_norm(A, 2, dim, keepdim, dtype=dtype)
    is_matrix = (dim is None and type_of(A).ndim == 2) or (
        not isinstance(dim, int) and dim is not None and len(dim) == 2
    )
    if isinstance(ord, str) and not is_matrix:
        raise UsageError(
            "linalg.matrix_norm: The input tensor A must have at least 2 dimensions."
            if type_of(A).ndim < 2
            else f"linalg.matrix_norm: dim must be a 2-tuple. Got {dim}",
            {"A": A},
        )
    if is_matrix:
        return matrix_norm(A, ord, (-2, -1) if dim is None else dim, keepdim, dtype=dtype)  # type: ignore[arg-type]
    return vector_norm(A, ord, dim, keepdim, dtype=dtype)


@with_out
def cond(A: Tensor, p: Any = None) -> Tensor:
    """The condition number in a norm (2 by default), infinite of a singular matrix."""
    if seems_equal(type_of(A).size, 0):
        return A.real.sum((-2, -1)) if type_of(A).ndim > 1 else A
    if p == "nuc":
        values = svdvals(A)
        return values.sum(-1) * values.reciprocal().sum(-1)
    if p in (None, 2, -2):
        values = svdvals(A)
        top, bottom = values[..., 0], values[..., -1]
        return bottom / top if p == -2 else top / bottom
    found = inv_ex(A)
    return where(eq(found.info, 0), matrix_norm(A, p) * matrix_norm(found.inverse, p), inf)
