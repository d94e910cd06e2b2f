"""Version counters of storages that native steps write.

Native code does not touch Python integers, so such a storage computes its version when asked: its own count plus the
calls of the native steps that write it. A saved tensor that a step changed is thus noticed as after an eager change.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from autojit.core.locks import new_lock
from autojit.core.source import SourceLocation
from autojit.tensor.storage import Storage

if TYPE_CHECKING:
    from autojit.core.source import Place
    from autojit.jit.native import NativeStep
    from autojit.runtime.entry import Entry


class _Calls(NamedTuple):
    """Changes by native calls of one step, this many in each, also when the step is gone."""

    entry: weakref.ref[Entry]
    calls: Callable[[], int]
    changes: int


class _Written(NamedTuple):
    """Changes by steps that are gone, and the others; by way of ``x.data``, which no version shows, likewise.

    Replaced, never changed: other threads may be asking.
    """

    gone: int
    present: Sequence[_Calls]
    unseen_gone: int = 0
    unseen: Sequence[_Calls] = ()


MANY = 8
"""Steps of one storage, among which those that are gone are looked for: parameters that get other memory in every call
had 31 made for them, and asking each took 15 us.
"""

_own: Any = Storage.__dict__["version"]
_own_changes: Any = Storage.__dict__["changes"]


class WrittenStorage(Storage):
    """A storage that native steps write."""

    __slots__ = ()

    @property
    def version(self) -> int:
        """Changes by Python plus those by native steps."""
        written: _Written = self.writers
        if len(written.present) > MANY:
            written = _without_gone(self)
        own: int = _own.__get__(self)
        return own + written.gone + _total(written.present)

    @version.setter
    def version(self, value: int) -> None:
        written: _Written = self.writers
        _own.__set__(self, value - written.gone - _total(written.present))

    @property
    def changes(self) -> int:
        """Those that a version does not count, by Python and by native steps."""
        written: _Written = self.writers
        own: int = _own_changes.__get__(self)
        return own + written.unseen_gone + _total(written.unseen)

    @changes.setter
    def changes(self, value: int) -> None:
        written: _Written = self.writers
        _own_changes.__set__(self, value - written.unseen_gone - _total(written.unseen))

    def bump(self, op: str, source: Place | SourceLocation) -> None:
        """Count an in-place change by Python, without a look at what native steps have changed."""
        _own.__set__(self, _own.__get__(self) + 1)
        _own_changes.__set__(self, _own_changes.__get__(self) + 1)
        if self.origin is not None:
            self.origin.changes += 1
        self.changed_by, self.change = op, source


def _total(writers: Sequence[_Calls]) -> int:
    found = 0
    for calls in writers:
        found += calls.calls() * calls.changes
    return found


_replacing = new_lock()  # who writes a storage
COUNTING = (Storage, WrittenStorage)  # not those whose changes are another storage's


def count_calls(storage: Storage, step: NativeStep, changes: int) -> None:
    """From now on each call of ``step`` counts as this many changes of ``storage``."""
    storage = storage.counter
    with _replacing:
        written = _written(storage)
        gone, present = _with(written.gone, written.present, step, changes)
        storage.writers = written._replace(gone=gone, present=present)
        _become(storage)


def count_unseen(storage: Storage, step: NativeStep, changes: int) -> None:
    """From now on each call of ``step`` counts as this many changes of ``storage`` that its version does not show."""
    with _replacing:
        written = _written(storage)
        gone, unseen = _with(written.unseen_gone, written.unseen, step, changes)
        storage.writers = written._replace(unseen_gone=gone, unseen=unseen)
        _become(storage)


def count_from_now(storage: Storage, step: NativeStep, changes: int) -> None:
    """``count_calls`` for a storage that has taken the place of another: calls before now have not changed it."""
    storage = storage.counter
    if not any(calls.entry() is step.entry for calls in _written(storage).present):
        version = storage.version
        count_calls(storage, step, changes)
        storage.version = version


def _written(storage: Storage) -> _Written:
    return storage.writers if type(storage) is WrittenStorage else _Written(0, ())


def _with(gone: int, known: Sequence[_Calls], step: NativeStep, changes: int) -> tuple[int, list[_Calls]]:
    """One more step; those that are gone become a number."""
    gone, present = _folded(gone, known)
    return gone, [*present, _Calls(weakref.ref(step.entry), step.entry.calls, changes)]


def _folded(gone: int, known: Sequence[_Calls]) -> tuple[int, list[_Calls]]:
    present = [calls for calls in known if calls.entry() is not None]
    return gone + _total([calls for calls in known if calls not in present]), present


def _without_gone(storage: WrittenStorage) -> _Written:
    """Who writes a storage, those that are gone as a number."""
    written: _Written = storage.writers
    if all([calls.entry() is not None for calls in written.present]):  # noqa: C419  (a list is faster)
        return written
    with _replacing:
        written = storage.writers
        gone, present = _folded(written.gone, written.present)
        found = storage.writers = written._replace(gone=gone, present=present)
    return found


def _become(storage: Storage) -> None:
    if type(storage) is Storage:
        storage.__class__ = WrittenStorage
