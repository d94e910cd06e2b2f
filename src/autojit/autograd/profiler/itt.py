"""ITT: ranges on the timeline of Intel VTune, through its shared library (``libittnotify``)."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from autojit.autograd.profiler.ranges import RangeLibrary, emit_nvtx
from autojit.cuda.driver import RangeLibraryFinder

LIBRARY_VARIABLE = "AUTOJIT_ITT_LIBRARY"
_NAMES = ("libittnotify.so", "libittnotify_collector.so", "libittnotify.dll")
_DOMAIN = b"autojit"


class Id(ctypes.Structure):
    """``__itt_id``, passed by value; all zeros is "no id"."""

    _fields_ = (("d1", ctypes.c_ulonglong), ("d2", ctypes.c_ulonglong), ("d3", ctypes.c_ulonglong))


class Itt:
    """Tasks of one domain, nested per thread. ``functions`` is the library, or an object with the same functions."""

    def __init__(self, functions: Any) -> None:
        # getattr, because Python gives names with two leading underscores another meaning in a class
        self.create = getattr(functions, "__itt_string_handle_create")
        self.begin = getattr(functions, "__itt_task_begin")
        self.end = getattr(functions, "__itt_task_end")
        create_domain = getattr(functions, "__itt_domain_create")
        if isinstance(functions, ctypes.CDLL):
            create_domain.restype = self.create.restype = ctypes.c_void_p
            create_domain.argtypes = self.create.argtypes = [ctypes.c_char_p]
            self.begin.argtypes = [ctypes.c_void_p, Id, Id, ctypes.c_void_p]
            self.end.argtypes = [ctypes.c_void_p]
            self.begin.restype = self.end.restype = None
        self.domain = create_domain(_DOMAIN)
        self.handles: dict[str, Any] = {}

    def range_push(self, name: str) -> None:
        handle = self.handles.get(name)
        if handle is None:
            handle = self.handles[name] = self.create(name.encode())
        self.begin(self.domain, Id(), Id(), handle)

    def range_pop(self) -> None:
        self.end(self.domain)


_library = RangeLibraryFinder(Itt, "ITT", LIBRARY_VARIABLE, _NAMES, "build Intel's ittapi as a shared library")
set_library = _library.set
library = _library.get
is_available = _library.is_available


def range_push(msg: str) -> None:
    """Open a range on this thread; ``range_pop`` closes the one opened last."""
    library().range_push(msg)


def range_pop() -> None:
    """Close the range that was opened last on this thread."""
    library().range_pop()


@contextmanager
def range(msg: str, *arguments: object, **named: object) -> Iterator[None]:
    """Context manager: a range named ``msg.format(*arguments, **named)``."""
    range_push(msg.format(*arguments, **named))
    try:
        yield
    finally:
        range_pop()


class emit_itt(emit_nvtx):
    """Like ``emit_nvtx``, for Intel VTune.

    Raises:
        UsageError: at entry, when there is no ITT library.

    Example:
        >>> import autojit as aj
        >>> with aj.autograd.profiler.emit_itt(enabled=False):
        ...     y = aj.ones(2) + 1
    """

    what = "emit_itt"

    def library(self) -> RangeLibrary:
        return library()
