"""Forms of matrices that factorisations start from or end with: one triangle as a whole, square orthonormal factors."""

from __future__ import annotations

import numpy as np

from autojit import ops
from autojit.tensor.tensor import Tensor, type_of


def one_triangle(a: Tensor, upper: bool) -> Tensor:
    """The Hermitian matrices of which ``a`` holds one triangle, as LAPACK reads them.

    Derivatives are those by a Hermitian matrix, as in torch: they spread over both triangles.
    """
    shape, array = type_of(a).shape, a._array
    if len(shape) < 2 or shape[-1] != shape[-2]:
        return a  # an error of the function that goes on with it
    if type(array) is np.ndarray and np.array_equal(array, array.swapaxes(-1, -2).conj()):
        return a
    half = a.detach().triu() if upper else a.detach().tril()
    other = half.triu(1) if upper else half.tril(-1)
    return (half + other.mH) + (a - a.detach())


def completed(q: Tensor) -> Tensor:
    """Orthonormal columns completed to a square matrix; the new ones have no derivative."""
    rows, columns = type_of(q).shape[-2:]
    if rows == columns:
        return q
    _, vectors = ops.eigh(q.detach() @ q.detach().mH)
    further: Tensor = vectors[..., : rows - columns].detach()
    return ops.concatenate([q, further], -1)


def complete_qr(a: Tensor) -> tuple[Tensor, Tensor]:
    """``Q`` square and ``R`` of the shape of ``a``; for tall matrices without a derivative, as in torch."""
    rows, columns = type_of(a).shape[-2:]
    if rows <= columns:
        return ops.qr(a)
    q, r = ops.qr(a.detach())
    below = r.new_zeros((*type_of(r).shape[:-2], rows - columns, columns))
    return completed(q), ops.concatenate([r, below], -2)
