"""The words by which compiled steps know a group of processes: they stay, and change when the group is joined again.

Beside them are the requests of what steps have begun. A step that fails does not come to its waits: `settle` does, as
the buffers may be somebody else's memory afterwards.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from autojit.codegen.cpu.plan.records import BEGUN, GroupWords, Request
from autojit.core.communicator import Communicator, joined, listen
from autojit.core.locks import new_lock

_words: dict[str, Any] = {}  # by name; steps hold their addresses, so none is dropped
_requests: dict[str, Any] = {}  # likewise: `Request` by row
_lock = new_lock()
_WAIT = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)


def group_address(name: str) -> int:
    """The address of the words of a group; zeros while this process has not joined it."""
    with _lock:
        if name not in _words:
            _words[name] = np.zeros(len(GroupWords.fields), np.int64)
            _requests[name] = np.zeros((BEGUN, len(Request.fields)), np.int64)
            _write(name, joined(name))
        return int(_words[name].ctypes.data)


def _write(name: str, communicator: Communicator | None) -> None:
    """Bring a group's words up to date. Between steps: whoever joins or leaves a group is in none."""
    words = _words.get(name)
    if words is None:
        return
    native = None if communicator is None else communicator.native()
    words[:] = 0
    _requests[name][:] = 0  # those of a group that was left end with it
    if communicator is None or native is None:
        return
    known: dict[str, int] = {"rank": communicator.rank, "size": communicator.size}
    known |= {field: value for field, value in vars(native).items() if isinstance(value, int)}
    known["requests"] = int(_requests[name].ctypes.data)
    known |= native.datatypes
    known |= native.operations
    words[:] = [_signed(known.get(field, 0)) for field in GroupWords.fields]


def settle() -> None:
    """Wait for what failed steps have begun: it reads and writes their memory. What goes wrong has been told before."""
    for name, requests in list(_requests.items()):
        (begun,) = requests[:, 0].nonzero()
        group = joined(name) if len(begun) else None
        native = None if group is None else group.native()
        for place in begun if native is not None else ():
            assert native is not None
            _WAIT(native.wait)(int(requests[place, 1:].ctypes.data), native.no_status)
        requests[begun, 0] = 0


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 == 1 else word


listen(_write)
