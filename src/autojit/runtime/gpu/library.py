"""The NVIDIA driver's library (libcuda), looked for when a CUDA device is first asked for, and loaded with ctypes.

``set_library`` puts an object with the same functions in its place: tests do.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

from autojit.core.errors import DeviceError
from autojit.runtime.gpu.results import result_text

LIBRARY_VARIABLE = "AUTOJIT_CUDA_LIBRARY"
_NAMES = ("libcuda.so.1", "libcuda.so", "nvcuda.dll")

_library: Any = None
_was_looked_for = False


def find_library(variable: str, names: tuple[str, ...]) -> Any:
    """The first library that loads: the one the environment variable names, else one of ``names``; None without any."""
    chosen = os.environ.get(variable)
    for name in (chosen,) if chosen else names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def set_library(library: Any) -> Any:
    """Use this object's functions (``cuInit``, ...) from now on, or look for the library again (None).

    Returns what was used before.
    """
    global _library, _was_looked_for
    before, _library = _library, library
    _was_looked_for = library is not None
    return before


def installed_library() -> Any:
    """The driver's library, or None where it cannot be loaded."""
    global _library, _was_looked_for
    if not _was_looked_for:
        _library = find_library(LIBRARY_VARIABLE, _NAMES)
        _was_looked_for = True
    return _library


def library() -> Any:
    """The driver's library.

    Raises:
        DeviceError: it cannot be loaded.
    """
    found = installed_library()
    if found is None:
        raise DeviceError(
            "the NVIDIA driver's library is not installed",
            {"looked for": os.environ.get(LIBRARY_VARIABLE) or ", ".join(_NAMES)},
            f"install the driver, or name its library in the environment variable {LIBRARY_VARIABLE}",
        )
    return found


def call(name: str, *arguments: Any) -> None:
    """Call a function of the driver.

    Raises:
        DeviceError: there is no driver, or it reports an error.
    """
    result = getattr(library(), name)(*arguments)
    if result:
        raise DeviceError(f"{name} failed", {"CUDA error": result_text(result)}, "see what the error's name says")


def count() -> int:
    """How many devices the driver knows; 0 without a driver."""
    found = installed_library()
    if found is None or found.cuInit(0):
        return 0
    number = ctypes.c_int(0)
    return 0 if found.cuDeviceGetCount(ctypes.byref(number)) else number.value


def has_device() -> bool:
    """Whether the driver knows a device."""
    return count() > 0
