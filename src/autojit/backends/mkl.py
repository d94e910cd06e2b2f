"""MKL: not used."""

from __future__ import annotations


def is_available() -> bool:
    """Whether MKL is used: never, matrix products are generated.

    Example:
        >>> import autojit as aj
        >>> aj.backends.mkl.is_available()
        False
    """
    return False


__all__ = ["is_available"]
