"""``x.data = y`` in a step: who looks at the memory that a tensor leaves, and whose memory it gets.

Eager mode lets the tensor look at other memory (``tensor.other_memory``). A step does so with what it makes itself. A
tensor from outside keeps its memory and gets the values: that is the same as long as nobody holds both memories, or
either of them under another name, which is what is asked here. Whatever somebody could tell from eager mode is refused.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from autojit.core.errors import TraceError
from autojit.core.source import here
from autojit.tensor.storage import Storage
from autojit.tensor.tensor import Tensor, storage_of

if TYPE_CHECKING:
    from autojit.jit.trace_entries import StateEntry


class TraceData:
    """The part of a trace that decides what ``x.data = y`` may do."""

    _before: dict[int, Any]
    state: dict[int, StateEntry]
    begun: dict[int, weakref.ref[Tensor]]
    reached: list[Tensor]
    flags: list[tuple[Tensor, bool]]

    if TYPE_CHECKING:

        def has_begun(self, tensor: Tensor) -> bool: ...

    def __init__(self) -> None:
        self.arguments: list[Tensor] = []  # what stands for the tensors that the step is given
        self.gradients_given: list[Tensor] = []  # and for their gradients
        self.switched_on: list[Tensor] = []  # leaves outside that require gradients from somewhere in the step on
        self._copied: list[tuple[Any, weakref.ref[Storage]]] = []  # arrays that got a copy of what they should share

    def is_given(self, t: Tensor) -> bool:
        return any(t is x for x in (*self.arguments, *self.gradients_given))

    def is_given_memory(self, storage: Storage) -> bool:
        given = [x._storage for x in (*self.arguments, *self.gradients_given)]
        return any(s is not None and s.memory is storage.memory for s in given)

    def note_flag(self, t: Tensor, flag: bool, wanted: bool) -> None:
        """The step tells a leaf outside whether it requires gradients: that it did, or did not, is a guard."""
        if wanted and not flag:
            self.switched_on.append(t)
        if not any(known is t for known, _ in self.flags):
            self.flags.append((t, flag))

    def leave_memory(self, t: Tensor) -> None:
        left = None if t._storage is None else self._other_at(t)
        if left is not None:
            raise TraceError(
                "data: a step gives a tensor from outside other values in the memory that it has, at which another "
                "tensor looks that should keep the old ones",
                {"tensor": t, "other": left, "at": here()},
                "copy_() if both are to change; else clone() the old values instead of a view, detach() or .data",
            )

    def require_made(self, t: Tensor, other: Tensor) -> None:
        if other._array is not None:  # from outside, or a handle
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
            found = [made for made in (ref() for ref in self.begun.values()) if made is not None]
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
