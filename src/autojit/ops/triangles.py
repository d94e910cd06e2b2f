"""Triangles and diagonals of matrices: tril, triu, eye, diag_embed; masks made of index ramps, so they fuse."""

from __future__ import annotations

from autojit.core.dtypes import DType
from autojit.core.errors import ShapeError
from autojit.ir.op import O
from autojit.ops.base import normalize_axis
from autojit.ops.elementwise_arithmetic import add, cast, mul, sub, where
from autojit.ops.elementwise_exponential import pow
from autojit.ops.elementwise_logic import eq, le
from autojit.ops.reductions import sum
from autojit.ops.shape import broadcast_to, reshape
from autojit.ops.sources import iota
from autojit.ops.views import Diagonal, diagonal

__all__ = ["diag", "diag_embed", "eye", "scale_columns", "scale_rows", "trace", "tril", "triu", "vander"]


def below(like: O, rows: int, columns: int, offset: int = 0) -> O:
    """bool[rows, columns]: true on the diagonal ``offset`` and below it."""
    row = iota(like, (rows, 1), 0)
    column = iota(like, (1, columns), 1)
    return le(column, add(row, offset) if offset else row)


def tril(x: O, offset: int = 0) -> O:
    """Zeros above the diagonal ``offset`` of the last two axes."""
    return where(below(x, *_matrix_shape("tril", x), offset), x, 0)


def triu(x: O, offset: int = 0) -> O:
    """Zeros below the diagonal ``offset`` of the last two axes."""
    return where(below(x, *_matrix_shape("triu", x), offset - 1), 0, x)


def eye(like: O, rows: int, columns: int, dtype: DType) -> O:
    """Ones on the diagonal, zeros elsewhere."""
    row = iota(like, (rows, 1), 0)
    column = iota(like, (1, columns), 1)
    return cast(eq(row, column), dtype)


def diag_embed(x: O, offset: int = 0, axis1: int = -2, axis2: int = -1) -> O:
    """The last axis laid on a diagonal of new axes, zeros elsewhere: the transpose of ``diagonal``."""
    ndim = x.spec.ndim + 1
    first, second = normalize_axis(axis1, ndim, "diag_embed"), normalize_axis(axis2, ndim, "diag_embed")
    if first == second:
        raise ShapeError(f"diagonal dimensions cannot be identical {axis1}, {axis2}", {"x": x})
    *lead, length = x.spec.shape
    extent = length + abs(offset)
    shape = list(lead)
    for axis in sorted((first, second)):
        shape.insert(axis, extent)
    if length == 0:
        return x._literal(0, x.spec.with_shape(tuple(shape)))
    return Diagonal(offset, first, second).embed(x, tuple(shape))


def diag(x: O, offset: int = 0) -> O:
    """A vector as a diagonal matrix, or the diagonal of a matrix."""
    if x.spec.ndim not in (1, 2):
        raise ShapeError(f"diag(): Supports 1D or 2D tensors. Got {x.spec.ndim}D", {"x": x})
    return diag_embed(x, offset) if x.spec.ndim == 1 else diagonal(x, offset)


def scale_columns(x: O, factors: O) -> O:
    """``x @ diag(factors)`` on the last two axes."""
    return mul(x, reshape(factors, (*factors.spec.shape[:-1], 1, factors.spec.shape[-1])))


def scale_rows(x: O, factors: O) -> O:
    """``diag(factors) @ x`` on the last two axes."""
    return mul(x, reshape(factors, (*factors.spec.shape, 1)))


def trace(x: O) -> O:
    """Sum of the diagonal of a matrix."""
    if x.spec.ndim != 2:
        raise ShapeError(f"trace: expected a matrix, but got tensor with dim {x.spec.ndim}", {"x": x})
    return sum(diagonal(x), 0)


def vander(x: O, count: int, increasing: bool = False) -> O:
    """Powers of the elements of a vector as columns: ``(n,) -> (n, count)``; the highest power first by default."""
    powers = iota(x, (1, count), 1, x.spec.dtype)
    if not increasing:
        powers = sub(count - 1, powers)
    return pow(broadcast_to(reshape(x, (*x.spec.shape, 1)), (*x.spec.shape, count)), powers)


def _matrix_shape(op: str, x: O) -> tuple[int, int]:
    if x.spec.ndim < 2:
        raise ShapeError(f"{op}: input tensor must have at least 2 dimensions", {"x": x})
    return x.spec.shape[-2], x.spec.shape[-1]
