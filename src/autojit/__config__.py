"""How this autojit was made, under torch's names: libraries look in ``torch.__config__.show()`` for what is in it."""

from __future__ import annotations

import platform

import numpy as np

from autojit.backend import host_backend
from autojit.runtime.llvm import llvm_identity
from autojit.runtime.pool import get_num_threads
from autojit.version import __version__

__all__ = ["parallel_info", "show"]


def show() -> str:
    """The versions of what computes here, a line for each; none of PyTorch's libraries is among them.

    Example:
        >>> import autojit as aj
        >>> "NumPy" in aj.__config__.show(), "USE_MKL" in aj.__config__.show()
        (True, False)
    """
    parts = (
        f"Python {platform.python_version()}",
        f"NumPy {np.__version__}",
        f"LLVM: {llvm_identity()}",
        f"processor: {platform.machine()}, vector registers of {host_backend().target().vector_bytes} bytes",
    )
    return "\n".join([f"autojit {__version__} computes with:", *(f"  - {part}" for part in parts), ""])


def parallel_info() -> str:
    """How many threads compute.

    Example:
        >>> import autojit as aj
        >>> print(aj.__config__.parallel_info())
        threads of compiled steps: ...
    """
    return f"threads of compiled steps: {get_num_threads()}\n"
