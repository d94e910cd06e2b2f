"""Memory of a device: blocks that are kept and used again, and what an emulated device gets instead.

The driver's own allocation takes as long as a hundred launches and waits for the device. So freed blocks are kept per
stream (`runtime.memory.BlockCache`): work queued later in that stream comes after all that was queued before, so a
block can be given away again while kernels that use it still run. Blocks below 1 MiB are cut out of slabs.

An emulated device gets every block from its driver, as long as was asked for and not used twice: so it finds accesses
past the end of a tensor and reads of what nobody has written.
"""

from __future__ import annotations

import gc
import os
import sys
from collections import deque
from contextlib import suppress

from autojit.core.errors import DeviceError, OutOfMemoryError
from autojit.core.locks import new_lock
from autojit.core.records import record
from autojit.runtime.gpu.driver import Driver
from autojit.runtime.memory import BlockCache, bucket_size

ALIGNMENT_BYTES = 256
"""Of every block; the driver's own allocations have no less."""

SLAB_BYTES = 2 << 20  # a page of the device
CUT_BELOW_BYTES = 1 << 20
CUT_BYTES = 512  # sizes of cuts are multiples of it, as torch's are


@record
class DeviceMemoryStats:
    """Bytes of a device's memory.

    Args:
        allocated: in blocks that somebody holds.
        reserved: that the driver has given.
        most_allocated: the most at a time since `DeviceMemory.forget_peaks`.
        most_reserved: the same.
    """

    allocated: int
    reserved: int
    most_allocated: int
    most_reserved: int


class Reservation:
    """Memory that the driver has given, given back with this object."""

    __slots__ = ("_memory", "address", "size_bytes")

    def __init__(self, memory: DeviceMemory, size_bytes: int) -> None:
        self.address = memory.driver.allocate(size_bytes)
        self.size_bytes = size_bytes
        self._memory = memory

    def __del__(self) -> None:
        if hasattr(self, "_memory"):
            self._memory.release(self)


class Block:
    """Memory that one user has, in the order of one stream."""

    __slots__ = ("_reservation", "address", "size_bytes", "stream")

    def __init__(self, reservation: Reservation, address: int, size_bytes: int, stream: int) -> None:
        self._reservation = reservation  # alive as long as anything that was cut out of it
        self.address = address
        self.size_bytes = size_bytes
        self.stream = stream


class Held:
    """A block that goes back to its memory with this object: an arena, a table, scratch."""

    __slots__ = ("_block", "_memory", "address", "size_bytes")

    def __init__(self, memory: DeviceMemory, size_bytes: int, stream: int) -> None:
        self._block = memory.take(size_bytes, stream)
        self._memory = memory
        self.address = self._block.address
        self.size_bytes = size_bytes

    def __del__(self) -> None:
        if hasattr(self, "_memory") and not is_at_its_end():
            self._memory.give_back(self._block)


class _Queue:
    """The blocks of one stream: a cache, and the slab that the next small block is cut out of."""

    def __init__(self, memory: DeviceMemory, stream: int) -> None:
        self._memory = memory
        self._stream = stream
        self._slab: Reservation | None = None
        self._used_bytes = 0  # of the slab
        self._lock = new_lock()
        exact = memory.driver.is_emulated
        self.blocks = BlockCache(0 if exact else sys.maxsize, self._make, _exactly if exact else rounded_size)

    def _make(self, size_bytes: int) -> Block:
        if self._memory.driver.is_emulated or size_bytes >= CUT_BELOW_BYTES:
            made = self._memory.reserve(size_bytes)
            return Block(made, made.address, size_bytes, self._stream)
        with self._lock:
            if self._slab is None or self._used_bytes + size_bytes > SLAB_BYTES:
                self._slab, self._used_bytes = self._memory.reserve(SLAB_BYTES), 0
            start = self._used_bytes
            self._used_bytes += size_bytes
            return Block(self._slab, self._slab.address + start, size_bytes, self._stream)

    def clear(self) -> None:
        """Give free blocks back, and the slab with its last cut."""
        self.blocks.clear()
        with self._lock:
            self._slab = None


class DeviceMemory:
    """The memory of one device.

    Args:
        driver: of the device.
        number: of the device.
    """

    def __init__(self, driver: Driver, number: int) -> None:
        self.driver = driver
        self.number = number
        self._queues: dict[int, _Queue] = {}
        self._taken: dict[int, Block] = {}  # by address
        self._lock = new_lock()
        self._reserved_bytes = 0
        self._released: deque[int] = deque()  # bytes given back and not yet counted: finalisers wait for nobody
        self._most_allocated = self._most_reserved = 0
        self._process = os.getpid()

    # -- blocks

    def take(self, size_bytes: int, stream: int) -> Block:
        """A block of at least so many bytes, for work in a stream; its content is arbitrary.

        It is held here, too: of a circle that Python's collector finds, every object is finalised, and a block that was
        reached from there alone would be given back to be used again and to the driver at once.

        Raises:
            OutOfMemoryError: the device has no more.
        """
        block = self._queue(stream).blocks.take(max(size_bytes, 1))
        self._taken[block.address] = block
        used_bytes = sum([queue.blocks.used_bytes for queue in tuple(self._queues.values())])
        if used_bytes > self._most_allocated:
            with self._lock:
                self._most_allocated = max(self._most_allocated, self._allocated_bytes())
        return block

    def give_back(self, block: Block) -> None:
        """Let work that is queued from now on in the block's stream have it."""
        self._taken.pop(block.address, None)
        self._queue(block.stream).blocks.give_back(block)

    def hold(self, size_bytes: int, stream: int) -> Held:
        """A block that is given back when the object goes.

        Raises:
            OutOfMemoryError: the device has no more.
        """
        return Held(self, size_bytes, stream)

    def _queue(self, stream: int) -> _Queue:
        found = self._queues.get(stream)
        if found is None:
            with self._lock:
                found = self._queues.setdefault(stream, _Queue(self, stream))
        return found

    # -- the driver's memory

    def reserve(self, size_bytes: int) -> Reservation:
        """Memory from the driver, which gets all free blocks back first if it has none.

        So it does those of compiled steps that nobody has any more: they refer to themselves, and Python's collector
        does not know how much of a device they hold.

        Raises:
            OutOfMemoryError: that was not enough.
        """
        self.driver.use(self.number)
        try:
            made = Reservation(self, size_bytes)
        except MemoryError:
            gc.collect()
            self.empty_cache()
            try:
                made = Reservation(self, size_bytes)
            except MemoryError:
                raise self._exhausted(size_bytes) from None
        with self._lock:
            self._reserved_bytes += size_bytes
            self._most_reserved = max(self._most_reserved, self._count_reserved())
        return made

    def release(self, reservation: Reservation) -> None:
        """Give memory back to the driver. Finalisers call this: it waits for nobody and raises nothing."""
        self._released.append(reservation.size_bytes)
        if is_at_its_end() or (os.getpid() != self._process):
            return  # the system takes it; or it is the parent process's
        with suppress(DeviceError):  # the process or the device is at its end
            self.driver.use(self.number)
            self.driver.release(reservation.address)

    def empty_cache(self) -> None:
        """Give all free blocks back to the driver, which waits until the device uses them no more."""
        for queue in tuple(self._queues.values()):
            queue.clear()

    def _exhausted(self, size_bytes: int) -> OutOfMemoryError:
        free, total = self.driver.free_and_total()
        stats = self.stats()
        unused = stats.reserved - stats.allocated
        return OutOfMemoryError(
            f"CUDA out of memory. Tried to allocate {_shown(size_bytes)}. GPU {self.number} has a total capacity of "
            f"{_shown(total)} of which {_shown(free)} is free. Of the allocated memory {_shown(stats.allocated)} is "
            f"allocated by autojit, and {_shown(unused)} is reserved by autojit but unallocated."
        )

    # -- counts

    def _count_reserved(self) -> int:
        while self._released:
            with suppress(IndexError):  # a finaliser ran in between
                self._reserved_bytes -= self._released.popleft()
        return self._reserved_bytes

    def _allocated_bytes(self) -> int:
        return sum(queue.blocks.stats().used_bytes for queue in tuple(self._queues.values()))

    def stats(self) -> DeviceMemoryStats:
        """Bytes now, and the most there were."""
        with self._lock:
            allocated, reserved = self._allocated_bytes(), self._count_reserved()
            return DeviceMemoryStats(allocated, reserved, self._most_allocated, self._most_reserved)

    def forget_peaks(self) -> None:
        """Count the most from now on."""
        with self._lock:
            self._most_allocated, self._most_reserved = self._allocated_bytes(), self._count_reserved()


class PinnedMemory:
    """Memory of the host that a device reaches, given back with this object; copies of it need not be waited for."""

    __slots__ = ("_driver", "_number", "address", "size_bytes")

    def __init__(self, driver: Driver, number: int, size_bytes: int) -> None:
        driver.use(number)
        try:
            self.address = driver.allocate_pinned(size_bytes)
        except MemoryError as error:
            raise OutOfMemoryError(f"pinned memory: out of memory, {_shown(size_bytes)}: {error}") from None
        self.size_bytes = size_bytes
        self._driver = driver
        self._number = number

    def __del__(self) -> None:
        if hasattr(self, "_number") and not is_at_its_end():
            with suppress(DeviceError):
                self._driver.use(self._number)
                self._driver.release_pinned(self.address)


def is_at_its_end() -> bool:
    """Whether the interpreter is, so that nothing can be asked of a driver any more."""
    return sys.is_finalizing()


def rounded_size(size_bytes: int) -> int:
    """The size of the block for so many bytes: a quarter of a power of two, from `CUT_BYTES` on."""
    if size_bytes >= CUT_BELOW_BYTES:
        return bucket_size(size_bytes)
    step = max(1 << max((size_bytes - 1).bit_length() - 3, 0), CUT_BYTES)
    return -(-size_bytes // step) * step


def _exactly(size_bytes: int) -> int:
    return size_bytes


def _shown(size_bytes: int) -> str:
    """Bytes as torch's messages show them."""
    if size_bytes >= 1 << 30:
        return f"{size_bytes / (1 << 30):.2f} GiB"
    return f"{size_bytes / (1 << 20):.2f} MiB" if size_bytes >= 1 << 20 else f"{size_bytes / 1024:.2f} KiB"
