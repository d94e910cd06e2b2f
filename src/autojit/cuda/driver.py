"""The NVIDIA driver's events as a clock, and libraries of ranges on a timeline.

The driver's library is `runtime.gpu.library`'s.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from autojit.core.errors import DeviceError, UsageError
from autojit.runtime.gpu.library import call, count, find_library, has_device, library, set_library

__all__ = [
    "EventClock", "RangeLibraryFinder", "call", "count", "has_device", "library", "set_library", "use_primary_context",
]  # fmt: skip

T = TypeVar("T")

_EVENTS_AHEAD = 1024  # made before they are needed, so that a mark costs one call of the driver


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


def use_primary_context(number: int = 0) -> None:
    """Make the device's primary context, which libraries share, current in this thread."""
    call("cuInit", 0)
    device = ctypes.c_int(0)
    call("cuDeviceGet", ctypes.byref(device), number)
    context = ctypes.c_void_p()
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)


class EventClock:
    """The device's clock: events in the stream that autojit's work for it goes to, or in its default stream.

    Raises:
        DeviceError: there is no driver or no device.
    """

    name = "cuda"

    def __init__(self) -> None:
        from autojit.runtime.gpu.devices import present_stream  # much that who has no device does without

        use_primary_context()
        self._record = library().cuEventRecord
        self._stream = present_stream
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
        if self._record(self._events[number], self._stream(0)):
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
