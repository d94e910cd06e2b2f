"""NVTX: ranges and marks on the timeline of nsys and nvprof.

``set_library`` puts an object with the functions ``nvtxRangePushA``, ``nvtxRangePop``, ``nvtxMarkA``,
``nvtxRangeStartA`` and ``nvtxRangeEnd`` in the library's place: tests do.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from autojit.cuda.driver import RangeLibraryFinder

LIBRARY_VARIABLE = "AUTOJIT_NVTX_LIBRARY"
_NAMES = (
    "libnvToolsExt.so.1", "libnvToolsExt.so", "libnvtx3interop.so.1", "libnvtx3interop.so", "nvToolsExt64_1.dll",
)  # fmt: skip


class Nvtx:
    """The library's functions with Python's texts and numbers."""

    def __init__(self, functions: Any) -> None:
        self.functions = functions
        if isinstance(functions, ctypes.CDLL):
            functions.nvtxRangePushA.argtypes = functions.nvtxMarkA.argtypes = [ctypes.c_char_p]
            functions.nvtxRangeStartA.argtypes = [ctypes.c_char_p]
            functions.nvtxRangeStartA.restype = ctypes.c_uint64
            functions.nvtxRangeEnd.argtypes = [ctypes.c_uint64]
            functions.nvtxRangeEnd.restype = functions.nvtxMarkA.restype = None

    def range_push(self, name: str) -> int:
        return int(self.functions.nvtxRangePushA(name.encode()))

    def range_pop(self) -> int:
        return int(self.functions.nvtxRangePop())

    def range_start(self, name: str) -> int:
        return int(self.functions.nvtxRangeStartA(name.encode()))

    def range_end(self, number: int) -> None:
        self.functions.nvtxRangeEnd(number)

    def mark(self, name: str) -> None:
        self.functions.nvtxMarkA(name.encode())


_library = RangeLibraryFinder(Nvtx, "NVTX", LIBRARY_VARIABLE, _NAMES, "pip install nvidia-nvtx-cu12,")
set_library = _library.set
library = _library.get


def range_push(name: str) -> int:
    """Open a range inside the thread's innermost one; its depth, from 0."""
    return library().range_push(name)


def range_pop() -> int:
    """Close the innermost range; its depth."""
    return library().range_pop()


def range_start(name: str) -> int:
    """Open a range that any thread may close; its number."""
    return library().range_start(name)


def range_end(number: int) -> None:
    """Close a range that ``range_start`` opened."""
    library().range_end(number)


def mark(name: str) -> None:
    """Mark a moment."""
    library().mark(name)


@contextmanager
def range(name: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """A range around a block; further arguments are put into the name as by ``str.format``."""
    range_push(name.format(*args, **kwargs) if args or kwargs else name)
    try:
        yield
    finally:
        range_pop()
