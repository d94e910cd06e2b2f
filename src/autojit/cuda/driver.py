"""The NVIDIA driver's library (libcuda), loaded with ctypes: devices, profiler control, events.

``set_library`` puts an object with the same functions in its place: tests do.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from autojit.core.errors import DeviceError, UsageError

T = TypeVar("T")

LIBRARY_VARIABLE = "AUTOJIT_CUDA_LIBRARY"
_NAMES = ("libcuda.so.1", "libcuda.so", "nvcuda.dll")
_EVENTS_AHEAD = 1024  # made before they are needed, so that a mark costs one call of the driver

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


class RangeLibraryFinder(Generic[T]):
    """A library of ranges on a timeline, looked for when it is first used.

    ``make`` gives its functions Python's texts and numbers, ``title`` is its name in messages, ``fix`` says how it is
    installed.
    """

    def __init__(self, make: Callable[[Any], T], title: str, variable: str, names: tuple[str, ...], fix: str) -> None:
        self.make = make
        self.title = title
        self.variable = variable
        self.names = names
        self.fix = fix
        self.found: T | None = None
        self.functions: Any = None

    def set(self, functions: Any) -> Any:
        """Use this object's functions from now on, or look for the library again (None). Returns those before."""
        before, self.functions = self.functions, functions
        self.found = None if functions is None else self.make(functions)
        return before

    def get(self) -> T:
        """The library.

        Raises:
            UsageError: it cannot be loaded.
        """
        if self.found is None:
            functions = find_library(self.variable, self.names)
            if functions is None:
                raise UsageError(
                    f"{self.title} functions not installed",
                    {"looked for": os.environ.get(self.variable) or ", ".join(self.names)},
                    f"{self.fix} and name it in the environment variable {self.variable}",
                )
            self.set(functions)
        assert self.found is not None
        return self.found

    def is_available(self) -> bool:
        """Whether there is one."""
        return self.found is not None or find_library(self.variable, self.names) is not None


def set_library(library: Any) -> Any:
    """Use this object's functions (``cuInit``, ...) from now on, or look for the library again (None).

    Returns what was used before.
    """
    global _library, _was_looked_for
    before, _library = _library, library
    _was_looked_for = library is not None
    return before


def _find() -> Any:
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
    found = _find()
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
        raise DeviceError(f"{name} failed", {"CUDA error": result}, "see CUresult in the CUDA driver API reference")


def count() -> int:
    """How many devices the driver knows; 0 without a driver."""
    found = _find()
    if found is None or found.cuInit(0):
        return 0
    number = ctypes.c_int(0)
    return 0 if found.cuDeviceGetCount(ctypes.byref(number)) else number.value


def has_device() -> bool:
    """Whether the driver knows a device."""
    return count() > 0


def use_primary_context(number: int = 0) -> None:
    """Make the device's primary context, which libraries share, current in this thread."""
    call("cuInit", 0)
    device = ctypes.c_int(0)
    call("cuDeviceGet", ctypes.byref(device), number)
    context = ctypes.c_void_p()
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)


class EventClock:
    """The device's clock: events in its default stream.

    Raises:
        DeviceError: there is no driver or no device.
    """

    name = "cuda"

    def __init__(self) -> None:
        use_primary_context()
        self._record = library().cuEventRecord
        self._events: list[ctypes.c_void_p] = []
        self._made = 0
        self._make()

    def _make(self) -> None:
        create, byref = library().cuEventCreate, ctypes.byref
        for _ in range(_EVENTS_AHEAD):
            event = ctypes.c_void_p()
            if create(byref(event), 0):
                raise DeviceError("cuEventCreate failed", {"events": len(self._events)})
            self._events.append(event)

    def mark(self) -> int:
        """Put a mark in the queue; its number."""
        number = self._made
        self._made = number + 1
        if self._record(self._events[number], None):
            raise DeviceError("cuEventRecord failed", {"event": number}, "look at the error that CUDA met before")
        if number + 1 == len(self._events):
            self._make()
        return number

    def wait(self) -> None:
        """Wait until every mark is reached."""
        call("cuCtxSynchronize")

    def elapsed_us(self, start: int, end: int) -> float:
        """Microseconds from one mark to another (resolution about 0.5 us)."""
        elapsed_ms = ctypes.c_float(0.0)
        call("cuEventElapsedTime", ctypes.byref(elapsed_ms), self._events[start], self._events[end])
        return elapsed_ms.value * 1e3

    def close(self) -> None:
        """Free the events."""
        while self._events:
            call("cuEventDestroy_v2", self._events.pop())
