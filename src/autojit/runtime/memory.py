"""Memory that stays mapped: arenas for temporaries, recycled arrays for outputs that escape.

A fresh page costs more than the arithmetic that fills it, small pages most of all. So large blocks are mapped once, in
huge pages where the system has them, and kept: an arena for the life of its executable, an array's block until the
array and every view of it are gone, and then in a bounded cache from which the next array of that size is served.
"""

from __future__ import annotations

import ctypes
import functools
import math
import mmap
import os
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np

from autojit.core.device import CPU, Device, space_at
from autojit.core.errors import ArgumentError
from autojit.core.locks import new_lock

if TYPE_CHECKING:
    import numpy.typing as npt

HUGE_PAGE_BYTES = 2 << 20
ALIGNMENT_BYTES = 64
CACHED_FROM_BYTES = 256 << 10
"""Smaller arrays come from NumPy: the C library recycles blocks of that size by itself."""

ALIGNED_FROM_BYTES = 16 << 10
"""Arrays that users make of their data, and parameters: smaller ones stay in the cache, where it does not matter."""

LAZY_FROM_BYTES = 16 << 20

_DEFAULT_CACHE_LIMIT_BYTES = 1 << 30
_WITHOUT_WAITING = (False,)


class Mapping:
    """Zeroed private memory straight from the system, unmapped when this object goes.

    From one huge page up it is aligned to huge pages and asks for them; below it is aligned to a page.
    """

    __slots__ = ("_map", "address", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        slack_bytes = HUGE_PAGE_BYTES if size_bytes >= HUGE_PAGE_BYTES else 0
        try:
            self._map = mmap.mmap(-1, max(size_bytes, 1) + slack_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, ValueError, OverflowError):
            raise MemoryError(f"cannot allocate {size_bytes} bytes") from None
        if slack_bytes and hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):  # a kernel built without huge pages: ordinary ones serve, only slower
                self._map.madvise(mmap.MADV_HUGEPAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self.address = -(-start // slack_bytes) * slack_bytes if slack_bytes else start
        self.size_bytes = size_bytes


class Arena:
    """The temporaries of one executable: one block at a fixed address for its whole life.

    Args:
        size_bytes: as planned by the schedule; offsets into it are aligned to 64 bytes.
    """

    __slots__ = ("_mapping", "address", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        if size_bytes < 0:
            raise ArgumentError("an arena has a negative size", facts={"bytes": size_bytes})
        self._mapping = Mapping(size_bytes)
        self.address = self._mapping.address
        self.size_bytes = size_bytes

    def view(self) -> npt.NDArray[np.uint8]:
        """The arena's bytes, for tests and poisoning; keeps the arena alive."""
        return np.asarray(_Block(self._mapping, (self.size_bytes,), np.dtype(np.uint8), None))


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """Blocks of escaping arrays. Bytes are those of the mappings, not of the arrays in them.

    Args:
        hits: arrays served from the cache.
        misses: arrays that needed a fresh mapping.
        used_bytes: in blocks that an array or a view holds.
        cached_bytes: in blocks waiting for the next array.
    """

    hits: int
    misses: int
    used_bytes: int
    cached_bytes: int


class HasSize(Protocol):
    """Memory of a size, freed with the object."""

    size_bytes: int


Block = TypeVar("Block", bound=HasSize)


class BlockCache(Generic[Block]):
    """Free blocks by size, in memory of any kind.

    Args:
        limit_bytes: of blocks kept free; a block that would pass it goes back to the system.
        make: gives a fresh block of a size, or raises MemoryError.
        rounded: the size of the block for so many bytes.
    """

    def __init__(
        self, limit_bytes: int, make: Callable[[int], Block], rounded: Callable[[int], int] | None = None
    ) -> None:
        self.limit_bytes = limit_bytes
        self._make = make
        self._rounded = rounded or bucket_size
        self._free: dict[int, list[Block]] = {}
        self._returned: deque[Block] = deque()  # given back and not yet looked at
        self._hits = 0
        self._misses = 0
        self._used_bytes = 0
        self._cached_bytes = 0
        self._lock = new_lock()  # re-entrant: the collector may free an array while this thread allocates one

    def take(self, size_bytes: int) -> Block:
        """A block of at least `size_bytes`; its content is arbitrary.

        Raises:
            MemoryError: neither the cache nor the system has one.
        """
        bucket_bytes = self._rounded(size_bytes)
        with self._lock:
            self._collect_returned()
            free = self._free.pop(bucket_bytes, None)
            if free:
                block = free.pop()
                self._free[bucket_bytes] = free  # last in the dictionary: asked for most recently
                self._hits += 1
                self._cached_bytes -= bucket_bytes
                self._used_bytes += bucket_bytes
                return block
        block = self._map(bucket_bytes)
        with self._lock:
            self._misses += 1
            self._used_bytes += bucket_bytes
        return block

    def give_back(self, block: Block) -> None:
        """Keep `block` for the next array, or unmap it when the cache is full.

        Finalisers call this, so it waits for nobody: at the end of the process nobody is left to open the lock that a
        daemon thread had. Whoever has the lock now, or takes it next, does the work.
        """
        self._returned.append(block)
        while self._returned:
            taken: list[bool] = []
            try:
                taken.extend(map(self._lock.acquire, _WITHOUT_WAITING))  # in one call, which no interrupt cuts in two
                if not taken[0]:
                    return
                self._collect_returned()
            finally:
                if True in taken:
                    self._lock.release()

    def _collect_returned(self) -> None:
        """Count and keep, or drop, what was given back. The caller holds the lock."""
        while self._returned:
            try:
                block = self._returned.popleft()
            except IndexError:  # a finaliser ran in between, and took it
                return
            self._used_bytes -= block.size_bytes
            self._make_room(block.size_bytes)
            if self._cached_bytes + block.size_bytes <= self.limit_bytes:
                self._cached_bytes += block.size_bytes
                self._free.setdefault(block.size_bytes, []).append(block)

    def _make_room(self, size_bytes: int) -> None:
        """Drop free blocks of other sizes, those asked for longest ago first. The caller holds the lock."""
        for bucket_bytes in list(self._free):
            while self._free[bucket_bytes] and bucket_bytes != size_bytes <= self.limit_bytes < (
                self._cached_bytes + size_bytes
            ):
                self._free[bucket_bytes].pop()
                self._cached_bytes -= bucket_bytes

    def clear(self) -> None:
        """Return all free blocks to the system."""
        with self._lock:
            self._collect_returned()
            self._free = {}
            self._cached_bytes = 0

    @property
    def used_bytes(self) -> int:
        """Bytes of blocks that somebody holds, or has just given back."""
        return self._used_bytes

    def stats(self) -> MemoryStats:
        """Counts since the process started."""
        with self._lock:
            self._collect_returned()
            return MemoryStats(self._hits, self._misses, self._used_bytes, self._cached_bytes)

    def _map(self, bucket_bytes: int) -> Block:
        try:
            return self._make(bucket_bytes)
        except MemoryError:
            self.clear()  # other sizes may hold what this one needs
        return self._make(bucket_bytes)


class _Block:
    """Owner of one array's memory: the array's base, and so alive as long as the array or any view.

    It is no array itself, so NumPy lets views of the array refer to the array: who counts references to that sees them.
    """

    __slots__ = ("__array_interface__", "_cache", "_mapping")

    def __init__(
        self,
        mapping: Mapping,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        cache: BlockCache[Mapping] | None,
        strides: tuple[int, ...] | None = None,
    ) -> None:
        self._mapping = mapping
        self._cache = cache
        self.__array_interface__ = {
            "version": 3,
            "shape": shape,
            "typestr": dtype.str,
            "data": (mapping.address, False),
            "strides": strides,
        }

    @property
    def is_recycled(self) -> bool:
        """Whether it is one array's, and not a part of an arena."""
        return self._cache is not None

    def __del__(self) -> None:
        if self._cache is not None:
            self._cache.give_back(self._mapping)


def allocate_array(
    shape: tuple[int, ...], dtype: npt.DTypeLike, order: Sequence[int] | None = None
) -> npt.NDArray[Any]:
    """An uninitialised array whose memory is recycled when it and all its views are gone.

    ``order``: its axes as they are in memory, the outermost first; row-major by default.

    Raises:
        MemoryError: the memory is not there.
    """
    element = np.dtype(dtype)
    size_bytes = math.prod(shape) * element.itemsize
    strides = None if order is None else _strides(shape, element.itemsize, order)
    if size_bytes < CACHED_FROM_BYTES:
        if strides is None:
            return np.empty(shape, element)
        return np.ndarray(shape, element, bytearray(max(size_bytes, 1)), strides=strides)
    mapping = block_cache.take(size_bytes)
    if element.isbuiltin == 1:
        return np.asarray(_Block(mapping, shape, element, block_cache, strides))
    memory: Any = (ctypes.c_char * size_bytes).from_address(
        mapping.address
    )  # dtypes that the interface has no name for
    memory.owner = _Block(mapping, (size_bytes,), np.dtype(np.uint8), block_cache)
    return np.ndarray(shape, element, memory, strides=strides)


class _Aligned(np.ndarray[Any, Any]):
    """The bytes of one array, which begins within them where vectors do: views of the array refer to the array."""


def aligned_array(shape: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """An uninitialised row-major array that begins at a multiple of `ALIGNMENT_BYTES` unless it is small.

    NumPy's large arrays begin 16 bytes behind a page, so that every vector of 64 bytes is in two lines of the cache: a
    step of logistic regression by Newton took 940 us on such a matrix, 760 on an aligned one (AVX-512, one thread).

    Example:
        >>> from autojit.runtime.memory import aligned_array
        >>> aligned_array((1000, 1000), "f4").ctypes.data % 64
        0
    """
    element = np.dtype(dtype)
    size_bytes = math.prod(shape) * element.itemsize
    if size_bytes < ALIGNED_FROM_BYTES:
        return np.empty(shape, element)
    memory = _Aligned(size_bytes + ALIGNMENT_BYTES, np.uint8)
    return np.ndarray(shape, element, memory, -memory.__array_interface__["data"][0] % ALIGNMENT_BYTES)


def zeros_array(shape: Sequence[int], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Zeros, an `aligned_array` of few megabytes; of more those of the system, whose pages come when they are used."""
    if not ALIGNED_FROM_BYTES <= math.prod(shape) * dtype.itemsize <= LAZY_FROM_BYTES:
        return np.zeros(shape, dtype)
    made = aligned_array(shape, dtype)
    made.fill(0)
    return made


def aligned_copy(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A copy in the same order; a row-major one is an `aligned_array`."""
    if array.nbytes < ALIGNED_FROM_BYTES or not array.flags.c_contiguous:
        return array.copy("K")
    made = aligned_array(array.shape, array.dtype)
    made[...] = array
    return made


def owns_memory(array: npt.NDArray[Any]) -> bool:
    """Whether what else shows an array's memory refers to the array: it has the memory, or it alone was given it."""
    base = array.base
    return base is None or type(base) is _Aligned or (isinstance(base, _Block) and base.is_recycled)


class _Place:
    """Memory of an owner, as NumPy is told of it: the array's base, which keeps the owner."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, interface: dict[str, object], owner: object) -> None:
        self.__array_interface__ = interface
        self.owner = owner


def array_at(
    address: int, shape: tuple[int, ...], dtype: npt.DTypeLike, owner: object, order: Sequence[int] | None = None
) -> npt.NDArray[Any]:
    """An array over memory that is not read here, and that lives as long as ``owner``; ``order`` as in others."""
    element = np.dtype(dtype)
    strides = None if order is None else _strides(shape, element.itemsize, order)
    if element.isbuiltin == 1:
        interface = {"version": 3, "shape": shape, "typestr": element.str, "data": (address, False), "strides": strides}
        return np.asarray(_Place(interface, owner))
    memory: Any = (ctypes.c_char * (math.prod(shape) * element.itemsize)).from_address(address)
    memory.owner = owner
    return np.ndarray(shape, element, memory, strides=strides)


def allocate_at(place: Device, shape: tuple[int, ...], dtype: npt.DTypeLike, order: Sequence[int] | None = None) -> Any:
    """`allocate_array` in the memory of a device.

    Raises:
        MemoryError: the memory is not there.
    """
    return allocate_array(shape, dtype, order) if place == CPU else space_at(place).allocate(shape, dtype, order)


def allocator_at(
    place: Device, shape: tuple[int, ...], dtype: npt.DTypeLike, order: Sequence[int] | None = None
) -> Callable[[], Any]:
    """What gives another array like ``allocate_at``'s at every call; quick for small ones."""
    element = np.dtype(dtype)
    if place == CPU and order is None and math.prod(shape) * element.itemsize < CACHED_FROM_BYTES:
        return functools.partial(np.empty, shape, element)
    return functools.partial(allocate_at, place, shape, element, order)


def arena_at(place: Device, size_bytes: int) -> Any:
    """An `Arena` in the memory of a device."""
    return Arena(size_bytes) if place == CPU else space_at(place).arena(size_bytes)


def _strides(shape: tuple[int, ...], itemsize: int, order: Sequence[int]) -> tuple[int, ...]:
    steps, step = [0] * len(shape), itemsize
    for axis in reversed(order):
        steps[axis] = step
        step *= max(shape[axis], 1)
    return tuple(steps)


def bucket_size(size_bytes: int) -> int:
    """`size_bytes` rounded up to a quarter of a power of two, so at most a fifth of a block is unused."""
    step = max(1 << max((size_bytes - 1).bit_length() - 3, 0), mmap.PAGESIZE)
    return -(-size_bytes // step) * step


def _limit_from_environment() -> int:
    text = os.environ.get("AUTOJIT_MEMORY_CACHE_BYTES", "").strip()
    if not text:
        return _DEFAULT_CACHE_LIMIT_BYTES
    if not text.isdigit():
        raise ArgumentError("AUTOJIT_MEMORY_CACHE_BYTES is no number of bytes", facts={"value": text})
    return int(text)


block_cache = BlockCache(_limit_from_environment(), Mapping)
