"""Names that torch has removed: calling one says what replaces it, as torch does."""

from __future__ import annotations

from typing import NoReturn

from autojit.core.errors import UsageError
from autojit.dispatch.declared import declared
from autojit.tensor import Tensor


def _gone(name: str, fix: str) -> NoReturn:
    raise UsageError("This function was deprecated since version 1.9 and is now removed.", {"function": name}, fix)


@declared()
def eig(self: Tensor, eigenvectors: bool = False, *, e: object = None, v: object = None) -> NoReturn:
    """Removed.

    Raises:
        RuntimeError: always.
    """
    _gone("eig", "linalg.eig (complex results), or linalg.eigvals for the values alone")


@declared()
def symeig(input: Tensor, eigenvectors: bool = False, upper: bool = True, *, out: object = None) -> NoReturn:
    """Removed.

    Raises:
        RuntimeError: always.
    """
    _gone("symeig", 'linalg.eigh(A, UPLO="U" if upper else "L"), or linalg.eigvalsh for the values alone')


def _lstsq_method(self: Tensor, other: Tensor, *, out: object = None) -> NoReturn:
    """Removed.

    Raises:
        RuntimeError: always.
    """
    lstsq(self, other)


@declared(method=_lstsq_method)
def lstsq(input: Tensor, A: Tensor, *, out: object = None) -> NoReturn:
    """Removed.

    Raises:
        RuntimeError: always.
    """
    _gone("lstsq", "linalg.lstsq(A, B), whose arguments are in the other order")


def _solve_method(self: Tensor, other: Tensor, *, out: object = None) -> NoReturn:
    """Removed.

    Raises:
        RuntimeError: always.
    """
    solve(self, other)


@declared(method=_solve_method)
def solve(input: Tensor, A: Tensor, *, out: object = None) -> NoReturn:
    """Removed.

    Raises:
        RuntimeError: always.
    """
    _gone("solve", "linalg.solve(A, B), whose arguments are in the other order")


@declared(method=False)
def matrix_rank(input: Tensor, tol: object = None, symmetric: bool = False, *, out: object = None) -> NoReturn:
    """Removed.

    Raises:
        RuntimeError: always.
    """
    _gone("matrix_rank", "linalg.matrix_rank, whose parameter symmetric is called hermitian")
