"""Version counters: which a captured function has moved, and those of storages that native steps write.

Native code does not touch Python integers, so such a storage computes its version when asked: its own count plus the
calls of the native steps that write it. A saved tensor that a step changed is thus noticed as after an eager change.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from autojit.tensor.storage import Storage
from autojit.tensor.tensor import Tensor

if TYPE_CHECKING:
    from autojit.jit.native import NativeStep
    from autojit.runtime.entry import Entry


class TraceVersions:
    """The part of a trace that knows which versions the function has moved on, and who may not ask for them."""

    arguments: list[Tensor]
    _before: dict[int, Any]

    if TYPE_CHECKING:

        def cannot(self, why: str) -> None: ...

    def asked_version(self, t: Tensor) -> None:
        """The version of a tensor from outside is another one in other calls of the step: they run line by line."""
        is_given = any(t is x or (x._storage is not None and t._storage is x._storage) for x in self.arguments)
        if is_given or t._array is not None:
            self.cannot("the step asks for the version of a tensor from outside")

    def moved(self) -> list[tuple[Storage, int]]:
        """The storages outside whose versions the function has moved on, and by how much."""
        known = [(before.target, before.slots[0]) for before in self._before.values()]
        return [(t, t.version - version) for t, version in known if isinstance(t, Storage) and t.version != version]


class _Calls(NamedTuple):
    """Changes by native calls of one step, this many in each, also when the step is gone."""

    entry: weakref.ref[Entry]
    calls: Callable[[], int]
    changes: int

    def total(self) -> int:
        return self.calls() * self.changes


class _Before(NamedTuple):
    """Changes by native calls of steps that are gone."""

    changes: int

    def total(self) -> int:
        return self.changes


_writers: weakref.WeakKeyDictionary[Storage, list[_Calls | _Before]] = weakref.WeakKeyDictionary()
"""Lists are replaced, never changed: other threads may be asking."""
_own: Any = Storage.__dict__["version"]


class WrittenStorage(Storage):
    """A storage that native steps write."""

    __slots__ = ()

    @property
    def version(self) -> int:
        """Changes by Python plus those by native steps."""
        own: int = _own.__get__(self)
        return own + sum(calls.total() for calls in _writers.get(self, ()))

    @version.setter
    def version(self, value: int) -> None:
        _own.__set__(self, value - sum(calls.total() for calls in _writers.get(self, ())))


def count_calls(storage: Storage, step: NativeStep, changes: int) -> None:
    """From now on each call of ``step`` counts as this many changes of ``storage``."""
    storage = storage.counter
    if type(storage) is Storage:
        storage.__class__ = WrittenStorage
    before, present = 0, []
    for calls in _writers.get(storage, ()):
        if isinstance(calls, _Before) or calls.entry() is None:
            before += calls.total()
        else:
            present.append(calls)
    added = _Calls(weakref.ref(step.entry), step.entry.calls, changes)
    _writers[storage] = [_Before(before), *present, added]
