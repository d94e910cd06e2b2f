"""Version counters: which a captured function has moved, and those of storages that native steps write.

Native code does not touch Python integers, so such a storage computes its version when asked: its own count plus the
calls of the native steps that write it. A saved tensor that a step changed is thus noticed as after an eager change.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from autojit.core.errors import TraceError
from autojit.core.source import here
from autojit.tensor.other_memory import TwinStorage
from autojit.tensor.storage import Storage
from autojit.tensor.tensor import Tensor, storage_of

if TYPE_CHECKING:
    from autojit.jit.native import NativeStep
    from autojit.jit.trace_entries import StateEntry
    from autojit.runtime.entry import Entry


class TraceVersions:
    """The part of a trace that knows which changes of memory count."""

    _before: dict[int, Any]
    state: dict[int, StateEntry]
    begun: dict[int, weakref.ref[Tensor]]
    reached: list[Tensor]
    flags: list[tuple[Tensor, bool]]

    if TYPE_CHECKING:

        def begin(self, tensor: Tensor) -> None: ...
        def has_begun(self, tensor: Tensor) -> bool: ...

    def __init__(self) -> None:
        self.arguments: list[Tensor] = []  # what stands for the tensors that the step is given
        self.gradients_given: list[Tensor] = []  # and for their gradients
        self._copied: list[tuple[Any, weakref.ref[Storage]]] = []  # arrays that got a copy of what they should share
        self._handles: dict[int, weakref.ref[Tensor]] = {}  # made in the step, by id, at memory from outside

    def is_given(self, t: Tensor) -> bool:
        return any(t is x for x in (*self.arguments, *self.gradients_given))

    def is_given_memory(self, storage: Storage) -> bool:
        given = [x._storage for x in (*self.arguments, *self.gradients_given)]
        return any(s is not None and s.memory is storage.memory for s in given)

    def leave_memory(self, t: Tensor) -> None:
        left = None if t._storage is None else self._other_at(t)
        if left is not None:
            raise TraceError(
                "data: a step gives a tensor from outside other values in the memory that it has, at which another "
                "tensor looks that should keep the old ones",
                {"tensor": t, "other": left, "at": here()},
                "copy_() if both are to change; else clone() the old values instead of a view, detach() or .data",
            )

    def begin_handle(self, made: Tensor, of: Tensor) -> None:
        self.begin(made)
        if self._is_outside(of):
            self._handles[id(made)] = weakref.ref(made)

    def _is_outside(self, t: Tensor) -> bool:
        handle = self._handles.get(id(t))
        return t._array is not None and (not self.has_begun(t) or (handle is not None and handle() is t))

    def require_made(self, t: Tensor, other: Tensor) -> None:
        if self._is_outside(other):
            raise _shared(t, "a tensor from outside")

    def note_copy(self, t: Tensor, other: Tensor) -> None:
        self.require_made(t, other)
        memory = storage_of(other).memory
        if self.is_given_memory(memory):
            raise _shared(t, "an argument")
        array = storage_of(t).array
        self._copied = [(kept, of) for kept, of in self._copied if kept is not array]
        self._copied.append((array, weakref.ref(memory)))

    def note_change(self, storage: Storage) -> None:
        for array, of in self._copied:
            memory = of()
            if memory is not None and (storage.array is array or storage.memory is memory):
                raise _shared(None, "a tensor that the step changes, or changes it, later")

    def check_copied(self, outputs: Sequence[Any]) -> None:
        """TraceError if the caller gets a tensor whose memory another one from outside should share."""
        shown = {id(t._storage.memory) for t in outputs if isinstance(t, Tensor) and t._storage is not None}
        if any(id(of()) in shown for _, of in self._copied):
            raise _shared(None, "a result")

    def _other_at(self, t: Tensor) -> Tensor | None:
        """Another tensor, held by the user, that looks at the memory of ``t``."""
        array = storage_of(t).array
        for is_last in (False, True):
            found = [made for made in (ref() for ref in self.begun.values()) if made is not None and made is not t]
            found = [made for made in found if made._storage is not None and made._storage.array is array]
            kept = 1 + sum(s is t._storage for s in (*self._targets(), *(e.storage for e in self.state.values())))
            if _holders([t._storage], 0) > kept:  # to look at everything that there is takes long
                others = (x for x in gc.get_referrers(t._storage) if isinstance(x, Tensor) and x is not t)
                found += [x for x in others if x._storage is t._storage and not self.has_begun(x)]
            mine = [
                *self._targets(),
                *self.reached,
                *(t for t, _ in self.flags),
                *(e.owner for e in self.state.values()),
            ]
            counts = Counter(map(id, mine))
            del mine
            places = [k for k in range(len(found)) if _holders(found, k) > counts[id(found[k])]]
            if not places or is_last:
                return found[places[0]] if places else None
            del found
            gc.collect()  # some may be left in cycles
        return None

    def _targets(self) -> Iterator[Any]:
        return (before.target for before in self._before.values())

    def asked_version(self, t: Tensor) -> None:
        """TraceError for a tensor from outside: other calls of the step find another version."""
        is_given = any(t is x or (x._storage is not None and t._storage is x._storage) for x in self.arguments)
        if is_given or t._array is not None:
            raise TraceError(
                "jit: the version of a tensor from outside the step, which hangs on how often it has been changed",
                {"tensor": t, "at": here()},
                "ask for it outside the step and pass it as an argument",
            )

    def moved(self) -> list[tuple[Storage, int]]:
        """The storages outside whose versions the function has moved on, and by how much."""
        known = [(before.target, before.slots[0]) for before in self._before.values()]
        return [(t, t.version - version) for t, version in known if isinstance(t, Storage) and t.version != version]


def _holders(found: Sequence[Any], place: int) -> int:
    """How many references there are to what a list holds, besides the list's."""
    return sys.getrefcount(found[place]) - _ALONE


_ALONE = 0
_ALONE = _holders([object()], 0)


def _shared(t: Tensor | None, whose: str) -> TraceError:
    return TraceError(
        "data: a step gives a tensor from outside the values of other memory and cannot give it the memory, which is "
        f"also that of {whose}",
        {"tensor": t, "at": here()},
        "give it memory of its own: x.data = y.clone()",
    )


class _Calls(NamedTuple):
    """Changes by native calls of one step, so many in each, also when the step is gone."""

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
    """From now on each call of ``step`` counts as so many changes of ``storage``."""
    while isinstance(storage, TwinStorage):
        storage = storage.twin  # which has the counter
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
