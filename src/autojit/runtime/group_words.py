"""The words by which compiled steps know a group of processes: they stay, and change when the group is joined again."""

from __future__ import annotations

from typing import Any

import numpy as np

from autojit.codegen.cpu.plan.records import GroupWords
from autojit.core.communicator import Communicator, joined, listen
from autojit.core.locks import new_lock

_words: dict[str, Any] = {}  # by name; steps hold their addresses, so none is dropped
_lock = new_lock()


def group_address(name: str) -> int:
    """The address of the words of a group; zeros while this process has not joined it."""
    with _lock:
        if name not in _words:
            _words[name] = np.zeros(len(GroupWords.fields), np.int64)
            _write(name, joined(name))
        return int(_words[name].ctypes.data)


def _write(name: str, communicator: Communicator | None) -> None:
    """Bring a group's words up to date. Between steps: whoever joins or leaves a group is in none."""
    words = _words.get(name)
    if words is None:
        return
    native = None if communicator is None else communicator.native()
    words[:] = 0
    if communicator is None or native is None:
        return
    known: dict[str, int] = {"rank": communicator.rank, "size": communicator.size}
    known |= {field: value for field, value in vars(native).items() if isinstance(value, int)}
    known |= native.datatypes
    known |= native.operations
    words[:] = [_signed(known.get(field, 0)) for field in GroupWords.fields]


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 == 1 else word


listen(_write)
