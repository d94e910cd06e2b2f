"""The device's memory: blocks between red zones, and of each byte whether it belongs to one and was written.

What is released stays unusable for as long as there is other memory, so that a late access finds no new owner.
"""

from __future__ import annotations

import ctypes
import mmap
import resource
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Iterator

import numpy as np

from autojit.core.errors import ArgumentError, OutOfMemoryError
from autojit.core.locks import new_lock
from autojit.ir.op import Ndarray
from autojit.runtime.gpu.emulator.accesses import AccessTable, places_of_entries
from autojit.runtime.gpu.emulator.address_space import AddressSpace, ZeroPages
from autojit.runtime.gpu.emulator.findings import EmulatedFault, FindingKind
from autojit.runtime.gpu.emulator.stamps import MOST_LAUNCHES, launch_stamp
from autojit.runtime.gpu.emulator.synchronisation import Synchronisation

ALIGNMENT = 256  # what cuMemAlloc promises
ALLOCATED, WRITTEN, RELEASED = 1, 2, 4
"""Bits of a byte's state; 0 is a red zone, or memory that nobody had yet."""

_LEAST_ZONE, _MOST_ZONE = 256, 4096  # bytes behind a block: a quarter of it within these
_HELD_BACK = 4096  # released blocks that wait before their memory may be used again


def _rounded(size_bytes: int) -> int:
    return -(-max(size_bytes, 1) // ALIGNMENT) * ALIGNMENT


_ADDRESSES_PER_BYTE = 40  # of the device: twice as content, as reserved, and eighteen times as tables about it
_LEFT_TO_OTHERS = 4  # the emulated device takes at most this part of what the process may still map


def that_fit(device_bytes: int, pinned_bytes: int) -> tuple[int, int]:
    """Memory of the device, and pinned; less where what the process may map is limited (``ulimit -v``, ``-d``)."""
    wanted, page = _ADDRESSES_PER_BYTE * (device_bytes + pinned_bytes), mmap.ALLOCATIONGRANULARITY
    most = min([wanted, *(left // _LEFT_TO_OTHERS for left in _left_to_map())])
    if most == wanted:
        return device_bytes, pinned_bytes
    device, pinned = (max(size * most // wanted // page, 1) * page for size in (device_bytes, pinned_bytes))
    return device, pinned


def _left_to_map() -> Iterator[int]:
    """Bytes that the process may still map, by each limit that it has."""
    with open("/proc/self/statm") as file:
        pages = list(map(int, file.read().split()))
    for limit, mapped in ((resource.RLIMIT_AS, pages[0]), (resource.RLIMIT_DATA, pages[5])):
        most, _ = resource.getrlimit(limit)
        if most != resource.RLIM_INFINITY:
            yield max(most - mapped * mmap.PAGESIZE, 0)


class EmulatedMemory:
    """Memory of the device and pinned memory of the host, at addresses of one range.

    Attributes:
        content: the bytes.
        state: what is known of each.
        table: who touched each byte last in this launch.
        reuses: how often released memory had to be used again before its time.
    """

    def __init__(self, device_bytes: int, pinned_bytes: int) -> None:
        page = mmap.ALLOCATIONGRANULARITY
        self.limit_bytes = device_bytes
        # Twice the memory as addresses: released blocks rest in one half while the other is used.
        self._pages = AddressSpace(2 * -(-device_bytes // page) * page, -(-pinned_bytes // page) * page)
        self.content = self._pages.content
        size = self._pages.size_bytes
        self._state, self._writers, self._readers = ZeroPages(size), ZeroPages(8 * size), ZeroPages(8 * size)
        self.state = self._state.content
        self.table = AccessTable(self._writers.content.view("i8"), self._readers.content.view("i8"))
        self.launch = self.reuses = 0
        self._used_bytes = 0
        self._lock = new_lock()
        self._owned: dict[int, int] = {}
        self._released: deque[tuple[int, int]] = deque()
        self._resting: deque[tuple[int, int]] = deque()
        self._free = [(ALIGNMENT, self._pages.device_bytes - ALIGNMENT)]
        self._free_pinned = [(self._pages.device_bytes + ALIGNMENT, size - ALIGNMENT)]

    # -- blocks

    def allocate(self, size_bytes: int) -> int:
        """The address of a fresh block, a multiple of 256.

        Raises:
            OutOfMemoryError: the device has not as much.
        """
        rounded = _rounded(size_bytes)
        with self._lock:
            self._take_back()
            if self._used_bytes + rounded > self.limit_bytes:
                raise self._exhausted("out of memory", size_bytes)
            begin = self._cut(self._free, rounded)
            if begin is None:
                self.reuses += 1
                while self._resting:
                    self._reuse(*self._resting.popleft())
                begin = self._cut(self._free, rounded)
            if begin is None:
                raise self._exhausted("its memory is in pieces", size_bytes)
            self._used_bytes += rounded
            self._own(begin, size_bytes, ALLOCATED)
        return self._pages.address(begin)

    def allocate_pinned(self, size_bytes: int) -> int:
        """The address of a fresh block of the host's memory, all of which counts as written.

        Raises:
            OutOfMemoryError: there is not as much.
        """
        with self._lock:
            self._take_back()
            begin = self._cut(self._free_pinned, _rounded(size_bytes))
            if begin is None:
                raise OutOfMemoryError("emulated device: no pinned memory is left", facts={"asked": size_bytes})
            self._own(begin, size_bytes, ALLOCATED | WRITTEN)
        return self._pages.address(begin)

    def _exhausted(self, what: str, size_bytes: int) -> OutOfMemoryError:
        facts = {"asked": size_bytes, "used": self._used_bytes, "all": self.limit_bytes}
        fix = "free tensors, or give the emulated device more memory"
        return OutOfMemoryError(f"emulated device: {what}", facts=facts, fix=fix)

    def release(self, address: int) -> None:
        """Take a block back, pinned or not.

        Takes no lock, because a finalizer may call it in the middle of anything.

        Raises:
            ArgumentError: no block begins there.
        """
        begin = self._pages.position(address)
        size = self._owned.pop(begin, None)
        if size is None:
            raise ArgumentError("emulated device: no block begins at this address", facts={"address": hex(address)})
        self.state[begin : begin + size] = RELEASED
        self._released.append((begin, size))

    @property
    def used_bytes(self) -> int:
        """In blocks of the device, each a multiple of 256."""
        with self._lock:
            self._take_back()
            return self._used_bytes

    def _take_back(self) -> None:
        """Do with released blocks what the lists of free ones are needed for."""
        while self._released:
            begin, size = self._released.popleft()
            if begin >= self._pages.device_bytes:
                self._give(self._free_pinned, begin, _rounded(size))
                continue
            self._used_bytes -= _rounded(size)
            self._pages.forget(begin, size)
            for first, length in places_of_entries(begin, size):
                self._writers.forget(first, length)
                self._readers.forget(first, length)
            self._resting.append((begin, _rounded(size)))
            if len(self._resting) > _HELD_BACK:
                self._reuse(*self._resting.popleft())

    def _own(self, begin: int, size: int, state: int) -> None:
        self._owned[begin] = size
        self.state[begin : begin + size] = state

    def _reuse(self, begin: int, rounded: int) -> None:
        self.state[begin : begin + rounded] = 0
        self._give(self._free, begin, rounded)

    @staticmethod
    def _zone(size: int) -> int:
        quarter = size // 4 // ALIGNMENT * ALIGNMENT
        return min(max(quarter, _LEAST_ZONE), _MOST_ZONE)

    def _cut(self, free: list[tuple[int, int]], size: int) -> int | None:
        """The first free part that is long enough, red zone included."""
        whole = size + self._zone(size)
        for k, (begin, end) in enumerate(free):
            if end - begin >= whole:
                if end - begin == whole:
                    del free[k]
                else:
                    free[k] = (begin + whole, end)
                return begin
        return None

    def _give(self, free: list[tuple[int, int]], begin: int, size: int) -> None:
        """Put a part back, joined with its neighbours."""
        part = (begin, begin + size + self._zone(size))
        insort(free, part)
        k = bisect_right(free, part) - 1
        if k + 1 < len(free) and free[k + 1][0] == part[1]:
            part = (part[0], free.pop(k + 1)[1])
            free[k] = part
        if k > 0 and free[k - 1][1] == part[0]:
            free[k - 1] = (free[k - 1][0], part[1])
            del free[k]

    # -- launches

    def begin_launch(self, order: Synchronisation | None) -> int:
        """The least stamp of a new launch; ``order`` knows which of its blocks wait for each other."""
        self.launch += 1
        if self.launch > MOST_LAUNCHES:
            self._writers.clear()
            self._readers.clear()
            self.launch = 1
        least = launch_stamp(self.launch)
        self.table.begin(least, order)
        return least

    # -- the host's side

    def holds(self, address: int) -> bool:
        """Whether an address is the device's or pinned."""
        return self._pages.position(address) >= 0

    def positions(self, addresses: Ndarray) -> Ndarray:
        """Where in the content the bytes of addresses are; -1 for those of no memory."""
        return self._pages.positions(addresses)

    def part(self, address: int, size_bytes: int, what: str) -> slice:
        """The positions of a block's bytes, for a copy.

        Raises:
            EmulatedFault: they are not all of one block.
        """
        if size_bytes == 0:
            return slice(0, 0)
        begin, last = self._pages.position(address), self._pages.position(address + size_bytes - 1)
        is_known = begin >= 0 and last == begin + size_bytes - 1
        states = self.state[begin : begin + size_bytes] if is_known else None
        if states is None or not (states & ALLOCATED).all():
            first = 0 if states is None else int(np.flatnonzero((states & ALLOCATED) == 0)[0])
            raise EmulatedFault(self.kind_of_fault(begin + first), f"{what} of {size_bytes} bytes", address=address)
        return slice(begin, begin + size_bytes)

    def kind_of_fault(self, position: int) -> FindingKind:
        """What an access to a byte that belongs to no block is."""
        known = 0 <= position < len(self.state)
        return "use after release" if known and self.state[position] & RELEASED else "out of bounds"

    def neighbours(self, address: int) -> str:
        """Where an address is, seen from the nearest blocks, for messages."""
        position = self._pages.position(address)
        before = max((begin for begin in self._owned if begin <= position), default=None)
        behind = min((begin for begin in self._owned if begin > position), default=None)
        words: list[str] = []
        if before is not None:
            distance, size = position - before, self._owned[before]
            place = f"byte {distance} of" if distance < size else f"{distance - size} bytes behind"
            words.append(f"{place} a block of {size} bytes")
        if behind is not None and (before is None or position - before >= self._owned[before]):
            words.append(f"{behind - position} bytes before one of {self._owned[behind]} bytes")
        return f", {', '.join(words)}" if words and position >= 0 else ", far from all blocks"

    def copy_in(self, target: int, source: int, size_bytes: int) -> None:
        """Bytes of the host."""
        part = self.part(target, size_bytes, "copy to the device")
        if size_bytes:
            ctypes.memmove(self.content[part].ctypes.data, self.host_address(source, size_bytes), size_bytes)
            self.state[part] |= WRITTEN

    def copy_out(self, target: int, source: int, size_bytes: int) -> None:
        """Bytes for the host; what was never written is whatever is there, as on hardware."""
        part = self.part(source, size_bytes, "copy from the device")
        if size_bytes:
            ctypes.memmove(self.host_address(target, size_bytes), self.content[part].ctypes.data, size_bytes)

    def host_address(self, address: int, size_bytes: int) -> int:
        """An address that a copy has the host read or write.

        Raises:
            EmulatedFault: it is of the device's memory.
        """
        if self._pages.is_device(address):
            raise EmulatedFault("out of bounds", f"{size_bytes} bytes of the host are the device's", address=address)
        return address

    def copy_within(self, target: int, source: int, size_bytes: int) -> None:
        """Bytes, with what is known of them."""
        there = self.part(target, size_bytes, "copy within the device")
        here = self.part(source, size_bytes, "copy within the device")
        self.content[there] = self.content[here].copy()
        self.state[there] = self.state[here].copy()

    def fill(self, target: int, byte: int, size_bytes: int) -> None:
        """One byte everywhere."""
        part = self.part(target, size_bytes, "fill")
        self.content[part] = byte
        self.state[part] |= WRITTEN

    def read(self, address: int, dtype: str, shape: tuple[int, ...]) -> Ndarray:
        """Elements of the device's memory, for tests."""
        kind = np.dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        return self.content[self.part(address, size, "read")].copy().view(kind).reshape(shape)

    def write(self, address: int, values: Ndarray) -> None:
        """Elements into the device's memory, for tests."""
        whole = np.ascontiguousarray(values)
        part = self.part(address, whole.nbytes, "write")
        self.content[part] = whole.reshape(-1).view("u1")
        self.state[part] |= WRITTEN

    def close(self) -> None:
        """Give all back; nobody may hold the arrays any more."""
        del self.content, self.state, self.table
        for pages in (self._pages, self._state, self._writers, self._readers):
            pages.content = np.empty(0, "u1")
            pages.close()
