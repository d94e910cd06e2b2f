"""Signals during long native calls: Python handles them a few times a second, and what a handler raises ends the call.

The plan runner calls `aj_signals` between chunks and entries of a plan, as long as nothing that outlives the call was
written (`codegen.cpu.plan.runner`). What the handler raised waits in the words behind the step's error words until the
call has ended; the error word says that it was stopped, so that what is left of the plan is left out.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any

from autojit.codegen.cpu.plan.records import INTERRUPTED
from autojit.codegen.module_text import ModuleText, Signature
from autojit.codegen.native_function import NativeFunction
from autojit.core.late_interrupts import late_interrupts
from autojit.core.locks import in_forked_child
from autojit.core.once import once
from autojit.runtime.host import cached_host_target
from autojit.runtime.loader import LoadedObject, load
from autojit.runtime.object_cache import default_cache

ERROR_WORDS = ("error", "position")
EXCEPTION_WORDS = ("type", "value", "traceback")  # after those

_THIS_THREAD = Signature("PyThread_get_thread_ident", "", "i64")
_TAKE_GIL = Signature("PyGILState_Ensure", "", "i32")
_LEAVE_GIL = Signature("PyGILState_Release", "i32 state")
_HANDLE = Signature("PyErr_CheckSignals", "", "i32")
_FETCH = Signature("PyErr_Fetch", "ptr type, ptr value, ptr traceback")

_GLOBALS = """
; the thread that handles signals, and 1 while it handles those that came during a native call
@aj_main_thread = global i64 0
@aj_asking = global i64 0
"""


@once
def signals_ir() -> str:
    """``aj_signals``: handle signals in the thread that does; what a handler raises is put behind the error word."""
    module = ModuleText()
    module.definitions["aj_main_thread"] = _GLOBALS
    f = NativeFunction(module, Signature("aj_signals", "ptr error"))
    (error,) = f.parameters
    f.return_unless(f.test("eq", f.call(_THIS_THREAD), f.load("i64", "@aj_main_thread")))
    state = f.call(_TAKE_GIL)
    f.store("i64", 1, "@aj_asking")
    found = f.call(_HANDLE)
    f.store("i64", 0, "@aj_asking")
    with f.when(f.is_set(found, "i32")):
        first = len(ERROR_WORDS)
        f.call(_FETCH, *(f.element(error, "i64", first + k) for k in range(len(EXCEPTION_WORDS))))
        f.store("i64", INTERRUPTED, error, "monotonic")
    f.call(_LEAVE_GIL, state)
    f.finish()
    return module.text()


@once
def _signals() -> LoadedObject:
    return load(default_cache().object(signals_ir(), cached_host_target(), opt_level=0))


def _word(name: str) -> ctypes.c_int64:
    return ctypes.c_int64.from_address(_signals().address(name))


def signals_address() -> int:
    """Address of ``void aj_signals(i64 *error)``: does nothing in threads that do not handle signals."""
    _word("aj_main_thread").value = threading.main_thread().ident or 0
    _is_loaded.append(True)
    return _signals().address("aj_signals")


def is_asked() -> bool:
    """For signal handlers: whether a native call asks, which what they raise may end."""
    return bool(_is_loaded) and bool(_word("aj_asking").value)


def raise_again(exception: Sequence[int]) -> None:
    """Raise what a handler raised: the words that `aj_signals` left."""
    restore: Any = ctypes.pythonapi.PyErr_Restore
    restore.argtypes, restore.restype = [ctypes.c_void_p] * len(EXCEPTION_WORDS), None
    restore(*exception)  # ctypes raises what it finds set


_is_loaded: list[bool] = []
late_interrupts.is_asked = is_asked


@in_forked_child
def _new_main_thread() -> None:
    if _is_loaded:
        _word("aj_main_thread").value = threading.get_ident()
        _word("aj_asking").value = 0
