"""Names that torch has removed: calling one says what replaces it, as torch does."""

from __future__ import annotations

from typing import Any, NoReturn

from autojit.core.errors import UsageError
from autojit.tensor import Tensor

__all__ = ["eig", "lstsq", "matrix_rank", "solve", "symeig"]


def _gone(name: str, fix: str) -> NoReturn:
    raise UsageError("This function was deprecated since version 1.9 and is now removed.", {"function": name}, fix)


def eig(self: Tensor, eigenvectors: bool = False, *, e: Any = None, v: Any = None) -> NoReturn:
    """Removed.

    Raises:
        RuntimeError: always.
    """
    _gone("eig", "linalg.eig (complex results), or linalg.eigvals for the values alone")


def symeig(input: Tensor, eigenvectors: bool = False, upper: bool = True, *, out: Any = None) -> NoReturn:
    """Removed.

    Raises:
        RuntimeError: always.
    """
    _gone("symeig", 'linalg.eigh(A, UPLO="U" if upper else "L"), or linalg.eigvalsh for the values alone')


def lstsq(input: Tensor, A: Tensor, *, out: Any = None) -> NoReturn:
    """Removed.

    Raises:
        RuntimeError: always.
    """
    _gone("lstsq", "linalg.lstsq(A, B), whose arguments are in the other order")


def solve(input: Tensor, A: Tensor, *, out: Any = None) -> NoReturn:
    """Removed.

    Raises:
        RuntimeError: always.
    """
    _gone("solve", "linalg.solve(A, B), whose arguments are in the other order")


def matrix_rank(input: Tensor, tol: Any = None, symmetric: bool = False, *, out: Any = None) -> NoReturn:
    """Removed.

    Raises:
        RuntimeError: always.
    """
    _gone("matrix_rank", "linalg.matrix_rank, whose parameter symmetric is called hermitian")
