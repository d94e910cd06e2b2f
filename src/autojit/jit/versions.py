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


_Writers = weakref.WeakKeyDictionary[Storage, tuple[int, list[_Calls]]]

_writers: _Writers = weakref.WeakKeyDictionary()
"""Changes by steps that are gone, and the others. Replaced, never changed: other threads may be asking."""
_unseen: _Writers = weakref.WeakKeyDictionary()
"""Changes by way of ``x.data``, which no version shows: likewise."""
_own: Any = Storage.__dict__["version"]
_own_changes: Any = Storage.__dict__["changes"]


def _counted(storage: Storage, writers: _Writers) -> int:
    before, present = writers.get(storage, (0, ()))
    return before + sum(calls.total() for calls in present)


class WrittenStorage(Storage):
    """A storage that native steps write."""

    __slots__ = ()

    @property
    def version(self) -> int:
        """Changes by Python plus those by native steps."""
        own: int = _own.__get__(self)
        return own + _counted(self, _writers)

    @version.setter
    def version(self, value: int) -> None:
        _own.__set__(self, value - _counted(self, _writers))

    @property
    def changes(self) -> int:
        """Those that a version does not count, by Python and by native steps."""
        own: int = _own_changes.__get__(self)
        return own + _counted(self, _unseen)

    @changes.setter
    def changes(self, value: int) -> None:
        _own_changes.__set__(self, value - _counted(self, _unseen))


COUNTING = (Storage, WrittenStorage)  # not those whose changes are another storage's


def count_calls(storage: Storage, step: NativeStep, changes: int) -> None:
    """From now on each call of ``step`` counts as this many changes of ``storage``."""
    _count(storage.counter, step, changes, _writers)


def count_unseen(storage: Storage, step: NativeStep, changes: int) -> None:
    """From now on each call of ``step`` counts as this many changes of ``storage`` that its version does not show."""
    _count(storage, step, changes, _unseen)


def _count(storage: Storage, step: NativeStep, changes: int, writers: _Writers) -> None:
    if type(storage) is Storage:
        storage.__class__ = WrittenStorage
    before, known = writers.get(storage, (0, ()))
    present = [calls for calls in known if calls.entry() is not None]
    before += sum(calls.total() for calls in known if calls not in present)
    writers[storage] = before, [*present, _Calls(weakref.ref(step.entry), step.entry.calls, changes)]


def count_from_now(storage: Storage, step: NativeStep, changes: int) -> None:
    """``count_calls`` for a storage that has taken the place of another: calls before now have not changed it."""
    storage = storage.counter
    _, known = _writers.get(storage, (0, ()))
    if not any(calls.entry() is step.entry for calls in known):
        version = storage.version
        count_calls(storage, step, changes)
        storage.version = version
