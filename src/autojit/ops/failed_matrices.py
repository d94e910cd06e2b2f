"""Routines of linear algebra that fail for some matrices, and the error that says for which one of a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.errors import AutojitError, Position

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LinAlgError"]

DIVERGED = "The algorithm failed to converge because the input matrix is ill-conditioned or has NaN."


class LinAlgError(AutojitError, RuntimeError):
    """A matrix has no inverse or no factorization (torch.linalg.LinAlgError)."""


def lapack(op: str, why: str, compute: Callable[[NDArray[Any]], Any], a: NDArray[Any]) -> Any:
    """Run a numpy.linalg routine on matrices; its failure becomes a LinAlgError saying why, and of which matrix."""
    try:
        return compute(a)
    except np.linalg.LinAlgError:
        raise failed_matrix(op, why, next((k for k in np.ndindex(a.shape[:-2]) if _fails(compute, a[k])), ())) from None


def _fails(compute: Callable[[NDArray[Any]], Any], matrix: NDArray[Any]) -> bool:
    try:
        compute(matrix)
    except np.linalg.LinAlgError:
        return True
    return False


def failed_matrix(op: str, why: str, place: tuple[int, ...]) -> LinAlgError:
    """The error about the matrix at a place of a batch."""
    batch = f"(Batch element {', '.join(map(str, place))}): " if place else ""
    return LinAlgError(f"linalg.{op}: {batch}{why}", {"position": Position(place, "the matrices")} if place else {})
