"""Arrays that a captured step takes of its tensors (``t.numpy()``, ``np.asarray(t)``): in eager mode they share memory.

Of what the step has made, it is an array of the step (``observed_arrays.py``), if users' code asks. Any other is, in a
capture, a copy of what the tensor holds in the call at hand, and what follows holds for these numbers. That is all the
same as long as the array is read: no step is compiled where one of the two changes while the other can be looked at, or
where both can be looked at when the step is over.
"""

from __future__ import annotations

import gc
import sys
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.device import CPU
from autojit.core.device_array import share_memory
from autojit.dispatch.dispatch import value_of
from autojit.tensor.storage import Storage
from autojit.tensor.tensor import Tensor, layout_of, memory_of, storage_of, type_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from autojit.ir.graph import Value
    from autojit.jit.outside_arrays import ArraysMet
    from autojit.jit.trace_entries import GradEntry

_FIX = "a copy shares nothing: t.numpy().copy()"


@dataclass(eq=False, slots=True)
class _Taken:
    """An array that the function was given, and whose memory it has in eager mode."""

    owner: Any  # an array that has its memory: whatever looks at that refers to it
    shown: weakref.ref[Any]  # what was given
    held: Any  # what the owner held
    value: Value
    memory: weakref.ref[Storage]
    root: Any  # the memory of a tensor outside
    is_outside: bool  # whether others have the memory, too
    is_locked: bool  # whether what was given is read-only
    is_open: bool = True  # whether somebody may have changed it since it was looked at

    def is_of(self, memory: Storage) -> bool:
        """Whether this is the memory; tensors outside that share some may each have a storage."""
        if self.root is not None and memory.array is not None:
            return share_memory(self.root, memory.array)
        return self.memory() is memory

    def is_held(self) -> bool:
        return _references(self) > _OWN

    def is_changed(self) -> bool:
        """Whether NumPy has changed it, or how it is read."""
        is_same = self.owner.shape == self.held.shape and self.owner.dtype == self.held.dtype
        return not is_same or not np.array_equal(_bytes_of(self.owner), _bytes_of(self.held))

    def is_seen(self) -> bool:
        """Whether anybody may look at the tensor's memory later."""
        return self.is_outside or self.memory() is not None


class TraceTaken:
    """The part of a trace that hands out arrays, and knows when these would show what a step cannot."""

    runs_often: bool
    arrays: list[Any]
    arguments: list[Tensor]
    gradients_given: list[Tensor]
    grads: dict[int, GradEntry]
    uncompiled: str

    if TYPE_CHECKING:

        def concretize(self, value: Value) -> Any: ...

        def note_uncompiled(self, why: str) -> None: ...

    def __init__(self) -> None:
        self.taken: list[_Taken] = []
        self.arrays_met: ArraysMet | None = None

    def take(self, t: Tensor) -> Any:
        """The array of a tensor, for those who could change it."""
        value = value_of(t)
        found = self.concretize(value)
        if self.runs_often:
            return found
        memory = storage_of(t).memory
        for known in self.taken:
            if known.is_of(memory) and known.value is value and (shown := known.shown()) is not None:
                known.is_open = True
                return shown
        if any(known.is_of(memory) and known.is_held() for known in self.taken):
            self.note_uncompiled(f"several NumPy arrays of one tensor share memory; {_FIX}")
        shown, owner = _laid_as(layout_of(t), found)
        known = _Taken(owner, weakref.ref(shown), owner.copy(order="K"), value, weakref.ref(memory), memory.array,
                       self._is_outside(memory), not shown.flags.writeable)  # fmt: skip
        self.taken.append(known)
        return shown

    def is_fresh(self, t: Tensor) -> bool:
        """Whether a tensor shows all of some memory that the step has made, row by row."""
        shown, root = memory_of(t)
        is_whole = shown.flags.c_contiguous and shown.size == root.size
        memory = storage_of(t).memory
        gradients = [entry.current for entry in self.grads.values() if entry.current is not None]
        if any(grad._storage is not None and grad._storage.memory is memory for grad in gradients):
            return False  # others will see it
        return is_whole and type_of(t).device == CPU and not self._is_outside(memory)

    def _is_outside(self, memory: Storage) -> bool:
        given = (*self.arguments, *self.gradients_given, *self.arrays)
        return memory.array is not None or any(t._storage is not None and t._storage.memory is memory for t in given)

    def note_shown(self, array: object) -> None:
        """A tensor is made on the memory of an array: note it if that is the memory of another tensor."""
        if any(known.is_seen() and np.may_share_memory(known.owner, array) for known in self.taken):
            self.note_uncompiled(f"a tensor is made on a NumPy array that shares the memory of another; {_FIX}")

    def note_memory_asked(self) -> None:
        """The step asks which arrays share memory: those that it has taken share none in a capture."""
        if self.taken:
            self.note_uncompiled("the step asks whether NumPy arrays that it has taken of tensors share memory")

    def look_at_taken(self) -> None:
        """A tensor may be about to be read: note it if an array was changed that shares its memory."""
        for known in self.taken:
            if not known.is_open:
                continue
            known.is_open = known.is_held()
            if known.is_seen() and known.is_changed():
                self.note_uncompiled(f"the step changes a NumPy array that shares the memory of a tensor; {_FIX}")

    def note_taken_changed(self, storage: Storage) -> None:
        """Memory of a tensor changes: note it if an array shares it."""
        if not self.taken:
            return
        self.look_at_taken()
        if any(known.is_of(storage.memory) and known.is_held() for known in self.taken):
            self.note_uncompiled(f"the step changes a tensor in place whose memory a NumPy array shares; {_FIX}")

    def check_taken(self) -> None:
        """The function has run: note it if it leaves an array and a tensor that share memory."""
        if not self.taken or self.uncompiled:
            return
        if any(known.is_held() and known.is_seen() for known in self.taken):
            gc.collect()  # one may be left in a cycle
        self.look_at_taken()
        if any(known.is_held() and known.is_seen() for known in self.taken):
            self.note_uncompiled(f"the step leaves a NumPy array that shares the memory of a tensor; {_FIX}")
        if any(known.is_held() and known.is_locked for known in self.taken):
            self.note_uncompiled(f"the step leaves a NumPy array of an expanded tensor, which is read-only; {_FIX}")


def _laid_as(layout: NDArray[Any], found: NDArray[Any]) -> tuple[Any, Any]:
    """(a copy laid out in its memory like the tensor, an array that has that memory)."""
    used = [(n, *steps) for n, *steps in zip(found.shape, layout.strides, found.strides, strict=True) if n > 1]
    if not found.size or all(step == there for _, step, there in used):
        made = found.copy(order="K")
        return made, made
    reach = [(n - 1) * step for n, step, _ in used]
    first, last = sum(r for r in reach if r < 0), sum(r for r in reach if r > 0)
    owner = np.zeros((last - first) // found.itemsize + 1, found.dtype)
    shown: Any = np.ndarray(found.shape, found.dtype, owner, -first, layout.strides)
    shown[...] = found
    shown.flags.writeable = layout.flags.writeable
    return shown, owner


def _bytes_of(array: NDArray[Any]) -> Any:
    """The bytes of the elements of an array that has no gaps, in words if it can be."""
    return array.ravel(order="K").view(np.uint8 if array.nbytes % 8 else np.uint64)


def _own_references() -> int:
    """How many references there are to an array that nobody has but a record of it, when the record counts them."""
    nothing: Any = None
    found = _Taken(np.zeros(1), nothing, None, nothing, nothing, None, is_outside=False, is_locked=False)
    return _references(found)


def _references(known: _Taken) -> int:
    return sys.getrefcount(known.owner)


_OWN = _own_references()
