"""The streams that threads put work in: a table per thread, which native code reads at every call.

The table is the value of one key of the system's threads, words that a place of each device chooses. A thread without a
table, or whose table ends before the place or holds `HOME` there, uses the device's own stream. So threads start
with that, as in torch; the system frees a table when its thread ends, whether or not Python knows the thread.
"""

from __future__ import annotations

import ctypes
import itertools

from autojit.core.errors import DeviceError
from autojit.core.once import once

HOME = (1 << 64) - 1
"""In place of a stream: the device's own. No stream has this number; 0, 1 and 2 are streams of NVIDIA's driver."""

_WORD_BYTES = 8
_places = itertools.count(1)  # the first word of a table is the number of its words


def new_place() -> int:
    """The place of one more device in the tables."""
    return next(_places)


class _Threads:
    """The system's functions, and the key of the tables."""

    def __init__(self) -> None:
        system = ctypes.PyDLL(None)  # these are short: nobody else need run
        self.get = system.pthread_getspecific
        self.get.argtypes, self.get.restype = [ctypes.c_uint], ctypes.c_void_p
        self.set = system.pthread_setspecific
        self.set.argtypes = [ctypes.c_uint, ctypes.c_void_p]
        self.resized = system.realloc
        self.resized.argtypes, self.resized.restype = [ctypes.c_void_p, ctypes.c_size_t], ctypes.c_void_p
        made = ctypes.c_uint()
        create = system.pthread_key_create
        create.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        if create(ctypes.byref(made), ctypes.cast(system.free, ctypes.c_void_p)):
            raise DeviceError("the system has no place for the streams of threads", fix="release keys of threads")
        self.key = int(made.value)

    def table(self) -> ctypes.Array[ctypes.c_uint64] | None:
        """The one of this thread."""
        address = self.get(self.key)
        if not address:
            return None
        count = ctypes.c_uint64.from_address(address).value
        return (ctypes.c_uint64 * count).from_address(address)

    def table_with(self, place: int) -> ctypes.Array[ctypes.c_uint64]:
        """The one of this thread, made or made longer if it has no such place."""
        found = self.table()
        count = 1 if found is None else len(found)
        if found is not None and place < count:
            return found
        address = self.resized(self.get(self.key), _WORD_BYTES * (place + 1))
        if not address:
            raise MemoryError("streams of threads")
        made = (ctypes.c_uint64 * (place + 1)).from_address(address)
        made[count : place + 1] = [HOME] * (place + 1 - count)
        made[0] = place + 1
        self.set(self.key, address)
        return made


@once
def _threads() -> _Threads:
    return _Threads()


def key() -> int:
    """What native code asks the system with for the table of its thread."""
    return _threads().key


def present(place: int) -> int:
    """The stream that this thread uses on a device, or `HOME`."""
    table = _threads().table()
    return HOME if table is None or place >= len(table) else int(table[place])


def set_present(place: int, stream: int) -> None:
    """Use another stream in this thread from now on; `HOME`: the device's own."""
    _threads().table_with(place)[place] = stream
