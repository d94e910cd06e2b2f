"""Functions of other libraries that native code calls: the loops behind NumPy's linear algebra, and C's library.

A generalised ufunc of NumPy is a C function, ``void loop(char **args, intp *dimensions, intp *steps, void *data)``, for
each combination of types; it asks nothing of Python, and the interpreter's lock is not needed. Its address is in the
ufunc object, whose layout is confirmed on the object itself. So a step runs the LAPACK of eager mode, with its bits,
without a line of Python. A matrix for which LAPACK fails gets NaN, and the thread's floating-point state "invalid".
"""

from __future__ import annotations

import ctypes
import platform
import sys
from functools import cache

import numpy as np
from numpy.linalg import _umath_linalg

from autojit.core.records import record

FE_INVALID = 1  # of x86 and ARM, in C's <fenv.h>
_MACHINES = ("x86_64", "amd64", "arm64", "aarch64")

# Offsets in PyUFuncObject, which is part of NumPy's public C interface.
_COUNTS, _FUNCTIONS, _DATA, _N_TYPES, _NAME, _TYPES = 16, 32, 40, 48, 56, 64


@record
class ForeignFunction:
    """An address by name: a loop of a ufunc for some types (``eigh_lo``, ``d->dd``), its data, or C's library's."""

    name: str
    types: str = ""
    is_data: bool = False

    def address(self) -> int:
        """Where it is in this process; `is_there` has been asked."""
        if not self.types:
            return _c_address(self.name)
        found = _loop(self.name, self.types)
        assert found is not None
        return found[self.is_data]

    def is_there(self) -> bool:
        """Whether this process has it, where native code can call it."""
        if not self.types:
            return platform.machine().lower() in _MACHINES and _c_address(self.name) != 0
        return _loop(self.name, self.types) is not None


@cache
def _c_address(name: str) -> int:
    """0 where the C library has no such function."""
    for library in (None, "libm.so.6", "ucrtbase.dll"):
        try:
            function = getattr(ctypes.CDLL(library), name)
        except (OSError, AttributeError, TypeError):
            continue
        return ctypes.cast(function, ctypes.c_void_p).value or 0
    return 0


@cache
def _loop(name: str, types: str) -> tuple[int, int] | None:
    """(the loop, its data) of a ufunc; None where NumPy has none, or another layout."""
    ufunc = getattr(_umath_linalg, name, None)
    if not isinstance(ufunc, np.ufunc) or types not in ufunc.types or not _fits(ufunc):
        return None
    number = ufunc.types.index(types)
    functions, data = _word(ufunc, _FUNCTIONS), _word(ufunc, _DATA)
    loop = ctypes.c_uint64.from_address(functions + 8 * number).value
    return loop, ctypes.c_uint64.from_address(data + 8 * number).value if data else 0


def _fits(ufunc: np.ufunc) -> bool:
    """Whether all that the object says of itself stands where it is looked for."""
    if sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    counts = tuple(ctypes.c_int.from_address(id(ufunc) + _COUNTS + 4 * k).value for k in range(3))
    if counts != (ufunc.nin, ufunc.nout, ufunc.nargs):
        return False
    if ctypes.c_int.from_address(id(ufunc) + _N_TYPES).value != ufunc.ntypes:
        return False
    name, types = _word(ufunc, _NAME), _word(ufunc, _TYPES)
    if not (name and types) or ctypes.string_at(name, len(ufunc.__name__) + 1) != ufunc.__name__.encode() + b"\0":
        return False
    numbers = bytes(np.dtype(code).num for text in ufunc.types for code in text.replace("->", ""))
    return ctypes.string_at(types, len(numbers)) == numbers


def _word(ufunc: np.ufunc, offset: int) -> int:
    return ctypes.c_uint64.from_address(id(ufunc) + offset).value
