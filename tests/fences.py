"""Memory with unreadable pages around it: who touches more than an array is ended by the system."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Fence:
    """Room for one array that begins where unreadable memory ends, or ends where such memory begins."""

    def __init__(self, size_bytes: int) -> None:
        page = mmap.PAGESIZE
        pages = -(-max(size_bytes, 1) // page)
        self.area = mmap.mmap(-1, (pages + 2) * page)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.area))
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        for place in (start, start + (pages + 1) * page):
            assert protect(ctypes.c_void_p(place), ctypes.c_size_t(page), 0) == 0
        self.begin, self.end = page, (pages + 1) * page

    def array(self, values: NDArray[Any], *, is_first: bool = False) -> NDArray[Any]:
        """A copy of ``values`` at the end of the room, or at its beginning."""
        place = self.begin if is_first else self.end - values.nbytes
        x = np.frombuffer(self.area, values.dtype, values.size, place).reshape(values.shape)
        x[...] = values
        return x
