"""Arithmetic of large dense matrices that NumPy has no LAPACK routine for, with most of the work in matrix products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["cofactors", "substituted"]

_WIDE = 32  # rows; below, the way does not matter
_FEW_ROWS = 24
_SAFE_SHARE = 0.01  # of a result's digits that the condition of a matrix may cost


def substituted(a: NDArray[Any], b: NDArray[Any], upper: bool) -> NDArray[Any]:
    """The solution of triangular systems ``a x = b``, half after half: ``(..., n, n), (..., n, k) -> (..., n, k)``.

    Raises:
        numpy.linalg.LinAlgError: a zero on the diagonal.
    """
    half = a.shape[-1] // 2
    if half < _FEW_ROWS:
        return np.linalg.solve(a, b)
    first, last = slice(0, half), slice(half, None)
    known, rest = (last, first) if upper else (first, last)
    found = np.empty((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), *b.shape[-2:]), b.dtype)
    found[..., known, :] = substituted(a[..., known, known], b[..., known, :], upper)
    left = b[..., rest, :] - a[..., rest, known] @ found[..., known, :]
    found[..., rest, :] = substituted(a[..., rest, rest], left, upper)
    return found


def cofactors(a: NDArray[Any]) -> NDArray[Any]:
    """``det(a) * inv(a).T``: so as it stands of large matrices that are far from singular.

    Else from ``a = u s vh``, by the products of all singular values but one.
    """
    found = _by_inverse(a)
    if found is not None:
        return found
    u, s, vh = np.linalg.svd(a)
    ones = np.ones((*s.shape[:-1], 1), s.dtype)
    before = np.cumprod(np.concatenate((ones, s[..., :-1]), -1), -1)
    after = np.cumprod(np.concatenate((ones, s[..., :0:-1]), -1), -1)[..., ::-1]
    sign = np.linalg.det(u) * np.linalg.det(vh)
    product = (u.conj() * (before * after)[..., None, :]) @ vh.conj()
    return np.asarray(sign[..., None, None] * product).astype(a.dtype)


def _by_inverse(a: NDArray[Any]) -> NDArray[Any] | None:
    """None where a matrix is small, or so near to singular that rounding would spoil the result."""
    if a.shape[-1] < _WIDE or not a.size:
        return None
    found = np.empty_like(a)
    for place in np.ndindex(*a.shape[:-2]):
        one = _of_one_matrix(a[place])
        if one is None:
            return None
        found[place] = one
    return found


def _of_one_matrix(a: NDArray[Any]) -> NDArray[Any] | None:
    determinant = np.linalg.det(a)
    if determinant == 0 or not np.isfinite(determinant):
        return None
    inverse = np.linalg.inv(a)
    spread = np.linalg.norm(a, 1) * np.linalg.norm(inverse, 1)
    if not spread * np.finfo(a.dtype).eps < _SAFE_SHARE:
        return None
    return np.asarray(determinant * inverse.T).astype(a.dtype)
