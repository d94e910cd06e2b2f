"""Memory that a function makes while it is captured: every call begins with the values that it began with then.

What the function makes of numbers is a constant of the capture. A tensor on the memory of an array that the function
has made (``from_numpy(np.zeros(3))``) begins with what the array holds; from then on a capture cannot let one show the
changes of the other, and refuses where somebody could see that.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from autojit.core.device_array import Array, host_copy
from autojit.core.errors import TraceError
from autojit.core.source import UNKNOWN, SourceLocation, here
from autojit.ir.graph import Node, Value
from autojit.ir.op import Ndarray, Op
from autojit.jit.places import is_a
from autojit.jit.trace_part import TracePart
from autojit.ops.sources import Constant, Full
from autojit.tensor.node import Node as HistoryNode
from autojit.tensor.storage import Storage
from autojit.tensor.tensor import Tensor, array_type, storage_of, wrap_value

HANDLES: weakref.WeakValueDictionary[int, Tensor] = weakref.WeakValueDictionary()
"""By id: what captures have made of tensors from outside (``detach()``, ``.data``). Users have none of them."""


class _Shared(NamedTuple):
    """An array that the function has made, and a tensor shows."""

    owner: Any  # of its memory: the array, or what the array looks at
    array: Any  # the same elements
    held: Any  # what they were
    storage: weakref.ref[Storage]  # the tensor's
    source: SourceLocation


class TraceMemory(TracePart):
    """The part of a trace that knows what memory the function has made."""

    def __init__(self) -> None:
        self.constants: set[Value] = set()  # inputs that are the same at every call
        self.lent: dict[int, tuple[weakref.ref[Any], Any]] = {}  # by id of the array: whose memory it is, the array
        self.met_outside: Callable[[], Iterable[Any]] | None = None  # gives what the function has met that existed
        self.begun: dict[int, weakref.ref[Tensor]] = {}  # concrete tensors made during the capture
        self._shown: dict[int, weakref.ref[Tensor]] = {}  # by id: of which tensors they show the memory
        self._shared: list[_Shared] = []
        self.detached_in_place: list[Tensor] = []  # made in the capture, or standing for arguments
        self._detached: list[tuple[Tensor, tuple[Any, ...]]] = []  # with the histories that they had
        self._used: list[tuple[HistoryNode, Any]] = []  # nodes outside that passes met

    def begin(self, tensor: Tensor, of: Tensor | None = None) -> None:
        self.begun[id(tensor)] = weakref.ref(tensor)
        if of is not None:
            self._shown[id(tensor)] = weakref.ref(self.origin(of))
            HANDLES[id(tensor)] = tensor

    def note_detached(self, tensor: Tensor) -> None:
        if tensor._array is None:
            self.detached_in_place.append(tensor)
            return
        if tensor._grad_fn is None:
            self.note_flag(tensor, tensor._requires_grad, False)
        had = tensor._requires_grad, tensor._grad_fn, tensor._output_nr, tensor._accumulator
        self._detached.append((tensor, had))

    def note_used(self, nodes: Iterable[HistoryNode]) -> None:
        self._used += [(node, node._kept()) for node in nodes]

    def attach_again(self) -> None:
        """Give tensors the histories that a capture that is discarded, or made again, took from them."""
        for t, had in reversed(self._detached):
            t._requires_grad, t._grad_fn, t._output_nr, t._accumulator = had
        for node, kept in reversed(self._used):
            node._keep_again(kept)

    def forget_histories(self) -> None:
        """The call is over: what its capture took from histories stays taken."""
        self._detached.clear()
        self._used.clear()

    def has_begun(self, tensor: Tensor) -> bool:
        """Whether a concrete tensor was made during the capture."""
        ref = self.begun.get(id(tensor))
        return ref is not None and ref() is tensor

    def origin(self, tensor: Tensor) -> Tensor:
        """The tensor from outside that the step has made a concrete one of (``detach``, ``data``); others themselves.

        That may get other memory before the next call, or another tensor may take its place.
        """
        found = self._shown[id(tensor)]() if self.has_begun(tensor) and id(tensor) in self._shown else None
        return tensor if found is None or found._array is not tensor._array else found

    def begins(self, array: Array) -> bool:
        """Whether the function has made an array, so that every call makes one like it."""
        if self.met_outside is None:
            return False
        met, owner = [*self.met_outside()], owner_of(array)
        arrays = [x._array if is_a(x, Tensor) else x for x in met]
        shares = any(np.may_share_memory(array, x) for x in arrays if is_a(x, np.ndarray))
        return not shares and not any(x is owner for x in met)

    def begin_on(self, array: Any) -> Tensor:
        """A tensor on the memory of an array that the function has made."""
        self.note_shown(array)
        held = _copied(array)
        made = wrap_value(self.begin_with(held))
        self._shared.append(_Shared(owner_of(array), array.view(), held, weakref.ref(storage_of(made)), here()))
        return made

    def note_written(self, storage: Storage) -> None:
        """TraceError if the elements of a traced storage have changed, and somebody may look at them by an array."""
        memory = storage.memory
        for shared in () if self.uncompiled else self._shared:
            if shared.storage() is memory:
                is_alone = sum(other.owner is shared.owner for other in self._shared) == 1
                if not is_alone or _holders(shared) > _OWN:
                    raise _seen_by_another(shared)

    def check_shared(self) -> None:
        """TraceError if an array was changed by NumPy after a tensor was made to show it."""
        for shared in () if self.uncompiled else self._shared:
            if shared.array.tobytes() != shared.held.tobytes():
                raise _seen_by_another(shared)

    def begin_with(self, array: Any) -> Value:
        value = self.lift(Storage(array, None))
        self.known[value] = array
        self.constants.add(value)
        return value

    def lend(self, tensor: Tensor, owner: object) -> None:
        array = storage_of(tensor).array
        self.lent[id(array)] = weakref.ref(owner), array

    def settle(self) -> None:
        """Take memory whose owner is gone out of the state: every call begins with the values that it began with."""
        if any(owner() is not None for owner, _ in self.lent.values()):
            gc.collect()  # an owner may be left in a cycle
        lost = [self.state.pop(key) for key, (owner, _) in self.lent.items() if key in self.state and owner() is None]
        if not lost:
            return
        inputs = {entry.input for entry in lost}
        self.builder.inputs = [v for v in self.builder.inputs if v not in inputs]
        self.builder.nodes[:0] = [Node(_begun_with(e.array), (), (e.input,), e.source) for e in lost]
        self.splits = [replace(split, position=split.position + len(lost)) for split in self.splits]
        self.definition.clear()
        self.indexed = 0


def owner_of(array: object) -> Any:
    """What has the memory that an array shows: an array, or what offers its buffer."""
    found = array
    while True:
        below = found.obj if isinstance(found, memoryview) else getattr(found, "base", None)
        if below is None:
            return found
        found = below


def _copied(array: Ndarray) -> Ndarray:
    """A copy of an array, laid out in its memory as that is."""
    owner = owner_of(array)
    if not isinstance(owner, np.ndarray) or not (owner.flags.c_contiguous or owner.flags.f_contiguous):
        return array.copy(order="K")
    flat = owner.ravel(order="K").view(np.uint8).copy()
    offset = array.ctypes.data - owner.ctypes.data
    return np.ndarray(array.shape, array.dtype, flat, offset, array.strides)


def _holders(shared: _Shared) -> int:
    return sys.getrefcount(shared.owner)


def _own_references() -> int:
    """How many references there are to an array that nobody has but a record of it."""
    owner = np.zeros(1)
    record = _Shared(owner, owner.view(), None, weakref.ref(Storage(owner, None)), UNKNOWN)
    del owner
    return _holders(record)


_OWN = _own_references()


def _seen_by_another(shared: _Shared) -> TraceError:
    return TraceError(
        "jit: a tensor and a NumPy array that the step makes share memory, and one is changed while the other can be "
        "looked at",
        {"array": f"{shared.array.dtype}{list(shared.array.shape)}", "at": shared.source},
        "give the tensor memory of its own: aj.tensor(array)",
    )


def _begun_with(array: Array) -> Op:
    """A source of what an array holds: one number for all elements, or a table."""
    kind, elements = array_type(array), host_copy(array)
    first = elements.flat[0] if array.size else elements.dtype.type(0)
    if bool((elements == first).all()):
        return Full(first.item(), kind.dtype, kind.shape, kind.device)
    return Constant(np.ascontiguousarray(elements).tobytes().hex(), kind.dtype, kind.shape, kind.device)
