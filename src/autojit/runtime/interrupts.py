"""Signals during long native calls: Python handles them a few times a second, and what a handler raises ends the call.

The plan runner calls `aj_signals` between chunks and entries of a plan, as long as nothing that outlives the call was
written (`codegen.cpu.plan_ir`). What the handler raised waits in the words behind the step's error words until the call
has ended; the error word says that it was stopped, so that what is left of the plan is left out.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any

from autojit.codegen.cpu.control_ir import INTERRUPTED
from autojit.core.late_interrupts import late_interrupts
from autojit.core.locks import in_forked_child
from autojit.core.once import once
from autojit.runtime.host import cached_host_target
from autojit.runtime.loader import LoadedObject, load
from autojit.runtime.object_cache import default_cache

EXCEPTION_WORDS = ("type", "value", "traceback")  # behind the error word and the position

_IMPORTS = (
    "PyThread_get_thread_ident",
    "PyGILState_Ensure",
    "PyGILState_Release",
    "PyErr_CheckSignals",
    "PyErr_Fetch",
)

_SIGNALS_IR = f"""
declare i64 @PyThread_get_thread_ident()
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare i32 @PyErr_CheckSignals()
declare void @PyErr_Fetch(ptr, ptr, ptr)

; the thread that handles signals, and 1 while it handles those that came during a native call
@aj_main_thread = global i64 0
@aj_asking = global i64 0

define void @aj_signals(ptr %error) nounwind {{
entry:
  %me = call i64 @PyThread_get_thread_ident()
  %main = load i64, ptr @aj_main_thread
  %is.main = icmp eq i64 %me, %main
  br i1 %is.main, label %ask, label %out
ask:
  %state = call i32 @PyGILState_Ensure()
  store i64 1, ptr @aj_asking
  %found = call i32 @PyErr_CheckSignals()
  store i64 0, ptr @aj_asking
  %is.raised = icmp ne i32 %found, 0
  br i1 %is.raised, label %keep, label %release
keep:
  %type = getelementptr i64, ptr %error, i64 2
  %value = getelementptr i64, ptr %error, i64 3
  %traceback = getelementptr i64, ptr %error, i64 4
  call void @PyErr_Fetch(ptr %type, ptr %value, ptr %traceback)
  store atomic i64 {INTERRUPTED}, ptr %error monotonic, align 8
  br label %release
release:
  call void @PyGILState_Release(i32 %state)
  br label %out
out:
  ret void
}}
"""


@once
def _signals() -> LoadedObject:
    python = ctypes.pythonapi
    imports = {name: ctypes.cast(getattr(python, name), ctypes.c_void_p).value or 0 for name in _IMPORTS}
    return load(default_cache().object(_SIGNALS_IR, cached_host_target(), opt_level=0), imports)


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
