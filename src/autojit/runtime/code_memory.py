"""Pages for machine code: one reserved address range, pages handed out from it and given back.

All code of the process is within one range (a second is reserved when the first is full), so objects reach each other
by direct calls, and neighbouring pages of equal protection share one kernel mapping: thousands of kernels cost a few
mappings, not thousands. No page is ever writable and executable at once. The memory is private, so a forked child keeps
its parent's code and neither can change the other's.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections import deque
from typing import Any

from autojit.core.errors import CompileError
from autojit.core.locks import new_lock
from autojit.core.once import once

PAGE_BYTES = mmap.PAGESIZE
REGION_BYTES = 256 << 20  # below 2 GiB, the reach of a direct call
_NO_RESERVE = 0x4000  # MAP_NORESERVE on Linux: address space only, no memory is promised
_PROT_NONE = 0
_MADV_DONTNEED = 4
_READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE
_READ_EXECUTE = mmap.PROT_READ | mmap.PROT_EXEC


class CodePages:
    """A run of pages: filled once while writable, then sealed; given back with `release`."""

    __slots__ = ("_region", "address", "size_bytes")

    def __init__(self, region: _Region, address: int, size_bytes: int) -> None:
        self._region = region
        self.address = address
        self.size_bytes = size_bytes

    def fill(self, image: bytearray, code_bytes: int) -> None:
        """Copy `image` in; its first `code_bytes` (whole pages) become read-execute, the rest stays read-write."""
        _protect(self.address, self.size_bytes, _READ_WRITE)
        ctypes.memmove(self.address, (ctypes.c_char * len(image)).from_buffer(image), len(image))
        _protect(self.address, code_bytes, _READ_EXECUTE)

    def release(self) -> None:
        """Give the pages back; nobody may hold an address in them any more."""
        self._region.release(self.address, self.size_bytes)


def allocate_pages(size_bytes: int) -> CodePages:
    """A run of whole pages of at least `size_bytes`, not yet accessible.

    Raises:
        CompileError: the object is larger than a region.
        MemoryError: the system has no address space left.
    """
    rounded = -(-size_bytes // PAGE_BYTES) * PAGE_BYTES
    if rounded > REGION_BYTES:
        raise CompileError("an object is too large to load", facts={"bytes": size_bytes, "most": REGION_BYTES})
    with _lock:
        for region in _regions:
            address = region.take(rounded)
            if address:
                return CodePages(region, address, rounded)
        region = _Region()
        _regions.append(region)
        return CodePages(region, region.take(rounded), rounded)


def mapped_code_bytes() -> int:
    """Bytes of code and constants now loaded."""
    with _lock:
        return sum(region.used_bytes() for region in _regions)


class _Region:
    """One reserved range and the list of its free runs, sorted by address.

    A finaliser may give pages back in the middle of `take` (the garbage collector runs anywhere), so `release` only
    appends to a queue and `take` empties it first.
    """

    def __init__(self) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
        address = _libc().mmap(None, REGION_BYTES, _PROT_NONE, flags, -1, 0)
        if address is None or address == ctypes.c_void_p(-1).value:
            raise MemoryError("no address space for compiled code")
        self._free: list[tuple[int, int]] = [(address, REGION_BYTES)]
        self._returned: deque[tuple[int, int]] = deque()

    def take(self, size_bytes: int) -> int:
        """Address of the first free run that is long enough, or 0. The caller holds the lock."""
        self._collect_returned()
        for index, (address, free_bytes) in enumerate(self._free):
            if free_bytes >= size_bytes:
                rest = (address + size_bytes, free_bytes - size_bytes)
                self._free[index : index + 1] = [rest] if rest[1] else []
                return address
        return 0

    def release(self, address: int, size_bytes: int) -> None:
        """Empty the pages and put them back among the free ones."""
        _libc().madvise(address, size_bytes, _MADV_DONTNEED)
        _protect(address, size_bytes, _PROT_NONE)
        self._returned.append((address, size_bytes))

    def _collect_returned(self) -> None:
        if self._returned:
            runs = [self._returned.popleft() for _ in range(len(self._returned))]
            self._free = _merged(sorted([*self._free, *runs]))

    def used_bytes(self) -> int:
        """Bytes taken and not given back. The caller holds the lock."""
        self._collect_returned()
        return REGION_BYTES - sum(size for _, size in self._free)


def _merged(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join runs that touch; `runs` are sorted and do not overlap."""
    joined: list[tuple[int, int]] = []
    for address, size in runs:
        if joined and sum(joined[-1]) == address:
            joined[-1] = (joined[-1][0], joined[-1][1] + size)
        else:
            joined.append((address, size))
    return joined


def _protect(address: int, size_bytes: int, protection: int) -> None:
    if _libc().mprotect(address, size_bytes, protection) != 0:
        error = ctypes.get_errno()
        raise MemoryError(f"mprotect of {size_bytes} bytes of compiled code failed: {os.strerror(error)}")


@once
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_longlong)
    libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return libc


_lock = new_lock()
_regions: list[_Region] = []
