"""The native entry point as a method of CPython: compiled and loaded once, bound to a descriptor for every step."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from autojit.core.once import once
from autojit.runtime.entry_ir import entry_ir
from autojit.runtime.host import cached_host_target
from autojit.runtime.loader import LoadedObject, load
from autojit.runtime.object_cache import default_cache

_PASS_LEVEL = 0  # a third of the compile time of 2 for 0.02 us more a call
_METH_FASTCALL_KEYWORDS = 0x0080 | 0x0002


class _MethodDef(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


def entry_request() -> tuple[str, int, int]:
    """The entry point's module and LLVM's levels for it."""
    return entry_ir(), 2, _PASS_LEVEL


@once
def _method() -> tuple[_MethodDef, LoadedObject]:
    """The one native entry point of the process; never freed, because builtins point to it until they die."""
    text, *levels = entry_request()
    code = load(default_cache().object(text, cached_host_target(), *levels))
    method = _MethodDef(b"compiled_step", code.address("aj_entry"), _METH_FASTCALL_KEYWORDS, None)
    _immortal.append(method)
    return method, code


_immortal: list[object] = []


def new_builtin(owner: tuple[object, ...]) -> Callable[..., Any]:
    """A builtin of the entry point; ``owner`` starts with a capsule of its descriptor and keeps what that points to."""
    create = ctypes.pythonapi.PyCFunction_NewEx
    create.restype = ctypes.py_object
    create.argtypes = (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    builtin: Callable[..., Any] = create(ctypes.addressof(_method()[0]), owner, None)
    return builtin
