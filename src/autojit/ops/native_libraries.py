"""``torch.ops.load_library``: operators in C++, of which there are none here."""

from __future__ import annotations

from typing import NoReturn

from autojit.core.errors import UnsupportedError

__all__ = ["NativeLibraryError", "load_library"]


class NativeLibraryError(UnsupportedError, OSError):
    """A shared library of operators is written for PyTorch's own C++: to whoever loads it, it cannot be loaded."""


def load_library(path: str) -> NoReturn:
    """Refused as a library that the system cannot load, after which packages go on without their operators in C++.

    Raises:
        OSError: always.

    Example:
        >>> import autojit as aj
        >>> try:
        ...     aj.ops.load_library("_C.so")
        ... except OSError as error:
        ...     str(error).splitlines()[0]
        'ops.load_library: operators in C++ are written for PyTorch itself'
    """
    raise NativeLibraryError(
        "ops.load_library: operators in C++ are written for PyTorch itself",
        {"library": str(path)},
        "aj.op makes an op of a Numba function, aj.library.custom_op one of Python",
    )
