"""Version counters of storages that native steps write.

Native code does not touch Python integers, so such a storage computes its version when asked: its own count plus the
calls of the native steps that write it. A saved tensor that a step changed is thus noticed as after an eager change.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from autojit.tensor.storage import Storage

if TYPE_CHECKING:
    from autojit.jit.native import NativeStep
    from autojit.runtime.entry import Entry


class _Calls(NamedTuple):
    """Changes by native calls of one step, this many in each, also when the step is gone."""

    entry: weakref.ref[Entry]
    calls: Callable[[], int]
    changes: int

    def total(self) -> int:
        return self.calls() * self.changes


_writers: weakref.WeakKeyDictionary[Storage, tuple[int, list[_Calls]]] = weakref.WeakKeyDictionary()
"""Changes by steps that are gone, and the others. Replaced, never changed: other threads may be asking."""
_own: Any = Storage.__dict__["version"]


def _changes(storage: Storage) -> int:
    before, present = _writers.get(storage, (0, ()))
    return before + sum(calls.total() for calls in present)


class WrittenStorage(Storage):
    """A storage that native steps write."""

    __slots__ = ()

    @property
    def version(self) -> int:
        """Changes by Python plus those by native steps."""
        own: int = _own.__get__(self)
        return own + _changes(self)

    @version.setter
    def version(self, value: int) -> None:
        _own.__set__(self, value - _changes(self))


def count_calls(storage: Storage, step: NativeStep, changes: int) -> None:
    """From now on each call of ``step`` counts as this many changes of ``storage``."""
    storage = storage.counter
    if type(storage) is Storage:
        storage.__class__ = WrittenStorage
    before, known = _writers.get(storage, (0, ()))
    present = [calls for calls in known if calls.entry() is not None]
    before += sum(calls.total() for calls in known if calls not in present)
    _writers[storage] = before, [*present, _Calls(weakref.ref(step.entry), step.entry.calls, changes)]


def count_from_now(storage: Storage, step: NativeStep, changes: int) -> None:
    """``count_calls`` for a storage that has taken the place of another: calls before now have not changed it."""
    storage = storage.counter
    _, known = _writers.get(storage, (0, ()))
    if not any(calls.entry() is step.entry for calls in known):
        version = storage.version
        count_calls(storage, step, changes)
        storage.version = version
