"""One range of addresses for a device's memory, which the host cannot touch, and its bytes elsewhere.

A forgotten read of device memory by the host is then a fault of the process, as on hardware, and never a number. The
range is in three parts: addresses of the device, which nobody can touch; the bytes that belong to them; and pinned
memory of the host, whose bytes are at its addresses. The second and third part are one array.
"""

from __future__ import annotations

import ctypes
import mmap
import os

import numpy as np

from autojit.core.errors import OutOfMemoryError
from autojit.core.once import once
from autojit.ir.op import Ndarray

_PROT_NONE = 0
_READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE
_MAP_FIXED = 0x10
_NO_RESERVE = 0x4000  # MAP_NORESERVE on Linux: address space only, no memory is promised
_MADV_DONTNEED = 4
_FAILED = ctypes.c_void_p(-1).value


@once
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return libc


def _map(address: int, size_bytes: int, protection: int, flags: int) -> int:
    found = _libc().mmap(address or None, size_bytes, protection, flags, -1, 0)
    if found in (None, _FAILED):
        raise OutOfMemoryError(
            "the emulated device's memory cannot be reserved",
            facts={"bytes of address space": size_bytes, "system's error": os.strerror(ctypes.get_errno())},
            fix="give the emulated device less memory, or raise the limit of the process (ulimit -v)",
        )
    return int(found)


def _bytes_at(address: int, size_bytes: int) -> Ndarray:
    return np.ctypeslib.as_array((ctypes.c_ubyte * size_bytes).from_address(address))


class ZeroPages:
    """A table of zeros, for which memory is taken only as it is written."""

    def __init__(self, size_bytes: int) -> None:
        self._size = size_bytes
        self._address = _map(0, size_bytes, _READ_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANON | _NO_RESERVE)
        self.content = _bytes_at(self._address, size_bytes)

    def forget(self, start: int, size_bytes: int) -> None:
        """Let the whole pages of a part be zero again, and give their memory back."""
        first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        last = (start + size_bytes) // mmap.PAGESIZE * mmap.PAGESIZE
        if last > first:
            _libc().madvise(self._address + first, last - first, _MADV_DONTNEED)

    def clear(self) -> None:
        """Let all be zero again."""
        self.forget(0, self._size)

    def close(self) -> None:
        """Give the address space back; nobody may hold the content any more."""
        _libc().munmap(self._address, self._size)


class AddressSpace:
    """The range, and ``content``: its bytes as an array, those of the device first.

    Args:
        device_bytes: addresses of the device; a multiple of the page size.
        pinned_bytes: memory of the host that the device reaches.
    """

    def __init__(self, device_bytes: int, pinned_bytes: int) -> None:
        self.size_bytes = device_bytes + pinned_bytes
        self.device_bytes = device_bytes
        private = mmap.MAP_PRIVATE | mmap.MAP_ANON | _NO_RESERVE
        self._mapped_bytes = device_bytes + self.size_bytes
        self.base = _map(0, self._mapped_bytes, _PROT_NONE, private)
        _map(self.base + device_bytes, self.size_bytes, _READ_WRITE, private | _MAP_FIXED)
        self.content = _bytes_at(self.base + device_bytes, self.size_bytes)

    def address(self, position: int) -> int:
        """Of a byte of the content."""
        return self.base + position + (self.device_bytes if position >= self.device_bytes else 0)

    def position(self, address: int) -> int:
        """Where in the content the byte of an address is; -1 for addresses that are not of the range."""
        offset = address - self.base
        if 0 <= offset < self.device_bytes:
            return offset
        return offset - self.device_bytes if 2 * self.device_bytes <= offset < self._mapped_bytes else -1

    def positions(self, addresses: Ndarray) -> Ndarray:
        """The same for many."""
        offsets: Ndarray = (addresses - np.uint64(self.base)).view("i8")
        if len(offsets) == 0 or (offsets.max() < self.device_bytes and offsets.min() >= 0):
            return offsets
        is_pinned = (offsets >= 2 * self.device_bytes) & (offsets < self._mapped_bytes)
        is_device = (offsets >= 0) & (offsets < self.device_bytes)
        return np.where(is_pinned, offsets - self.device_bytes, np.where(is_device, offsets, -1))

    def is_device(self, address: int) -> bool:
        """Whether an address is of the device's memory, which the host cannot reach."""
        return 0 <= address - self.base < self.device_bytes

    def forget(self, start: int, size_bytes: int) -> None:
        """Give back the memory of whole pages of a part of the device's content."""
        first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        last = (start + size_bytes) // mmap.PAGESIZE * mmap.PAGESIZE
        if last > first:
            _libc().madvise(self.base + self.device_bytes + first, last - first, _MADV_DONTNEED)

    def close(self) -> None:
        """Give the address space back; nobody may hold the content any more."""
        _libc().munmap(self.base, self._mapped_bytes)
