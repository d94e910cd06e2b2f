"""``x.data = y`` in a step, for tensors from outside: the step writes ``y`` to the memory that ``x`` has.

Eagerly ``x`` looks at the memory of ``y`` from then on, and who holds its old memory goes on seeing what that held. In
a capture ``x`` does look at other memory: at a stand-in, which is state of the trace that begins with ``y``, or for a
while at that of another tensor (weights that are replaced for an evaluation and put back). Where it looks at the end at
what the step has made and nobody else sees, nobody can tell that memory from its own one with the same elements in it.
So the step writes them there, if nobody else holds that: what refers to it is looked at before each call through
Python, and native code compares the count. Where somebody does, the tensor is given memory of its own first; where the
step has changed the old memory, which the others are to see, the call runs line by line. So do all calls of a step that
leaves a tensor looking at memory of somebody else.
"""

from __future__ import annotations

import ctypes
import gc
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from autojit.core.own_references import OwnList, OwnTuple, releases, watched
from autojit.core.records import record
from autojit.core.source import here
from autojit.dispatch.dispatch import value_of
from autojit.functions.other_memory import look_at
from autojit.jit.failed_calls import may_change
from autojit.jit.line_by_line import GivenOtherMemory
from autojit.jit.trace_entries import StateEntry
from autojit.jit.trace_memory import HANDLES
from autojit.jit.trace_part import TracePart
from autojit.runtime.entry_spec import SlotGuard, WordGuard
from autojit.runtime.memory import owns_memory
from autojit.runtime.object_layout import layout_is_known, words_at
from autojit.tensor.state import state
from autojit.tensor.storage import Storage
from autojit.tensor.tensor import Tensor, layout_of, storage_chain, storage_of, type_of, wrap

if TYPE_CHECKING:
    from autojit.jit.step import CompiledStep
    from autojit.runtime.entry import Entry


NEVER = -1, -1
"""No counts."""


class _Slots(NamedTuple):
    """What a tensor looks at."""

    array: Any
    value: Any
    type: Any
    storage: Storage | None
    view: Any

    @staticmethod
    def of(t: Tensor) -> _Slots:
        return _Slots(t._array, t._value, t._type, t._storage, t._view)

    def put(self, t: Tensor) -> None:
        t._array, t._value, t._type, t._storage, t._view = self


class _StandIn(NamedTuple):
    """Memory that stands for what the step has made, at which a tensor from outside looks."""

    tensor: Tensor
    entry: StateEntry
    made: Storage  # what it stands for
    part: Any  # and the part of it, as an array of which nobody knows the elements


class TraceGiven(TracePart):
    """The part of a trace that knows which tensors outside look at other memory than before it."""

    def __init__(self) -> None:
        self.given_memory: list[GivenMemory] = []
        self._slots: dict[int, tuple[Tensor, _Slots]] = {}  # by id, as they were when the capture began
        self._stand_ins: list[_StandIn] = []

    def give_memory(self, t: Tensor, other: Tensor) -> None:
        """See `tensor.trace.Trace.give_memory`."""
        if not self._may_leave(t, other):
            self.give_up(GivenOtherMemory(t).always())
        if id(t) not in self._slots:
            self.lift(storage_of(t), t)
            self._slots[id(t)] = t, _Slots.of(t)
        if other._array is None:
            self._stand_in(t, other)
        else:
            self.lift(storage_of(other), other)
            look_at(t, other)

    def _may_leave(self, t: Tensor, other: Tensor) -> bool:
        """Whether what the tensor looks at from then on can be written to its own memory in the end."""
        array = t._array
        is_plain = type(array) is np.ndarray and array.flags.c_contiguous and array.flags.writeable
        is_plain = is_plain and not (self.runs_often or storage_chain(t) or t._grad_fn or storage_of(t).inference)
        if not is_plain or type_of(t) != type_of(other) or layout_of(other).strides != array.strides:
            return False
        memory = storage_of(other).memory
        given = [x._storage.memory for x in (*self.arguments, *self.gradients_given) if x._storage is not None]
        return other._array is not None or (type(memory) is Storage and all(memory is not own for own in given))

    def _stand_in(self, t: Tensor, other: Tensor) -> None:
        made, part, value = storage_of(other).memory, layout_of(other), value_of(other)
        for known in self._stand_ins:
            is_seen = known.tensor._array is known.entry.array and known.tensor is not t
            if is_seen and known.made is made and np.shares_memory(known.part, part):
                self.give_up(GivenOtherMemory(t).always())  # two tensors that look at one memory
        array = np.empty(t._array.shape, t._array.dtype)
        look_at(t, wrap(array))
        given = self.builder.input(value.type)
        entry = StateEntry(storage_of(t), array, given, value, here(is_inside=True))
        self.state[id(array)] = entry
        self._stand_ins.append(_StandIn(t, entry, made, part))

    def note_given_changed(self, storage: Storage) -> None:
        """Memory has changed, at which a tensor outside looks: where two are to show it, calls run line by line."""
        for known in self._stand_ins:
            if storage.memory is known.made:
                self.give_up(GivenOtherMemory(known.tensor).always())
            if storage.array is known.entry.array and type(known.made) is Storage:
                known.made.__class__ = _Outdated
                known.made.changes += 1  # who remembers what it held asks again

    def settle_given(self, outputs: Sequence[Any]) -> None:
        """The function has ended: tensors look at their own memory again, and what is to be there is known."""
        shown = [t for t in (*outputs, *(grad.current for grad in self.grads.values())) if isinstance(t, Tensor)]
        left = {id(t): self._left(t, before, shown) for t, before in self._slots.values()}
        inputs = {known.entry.input for known in self._stand_ins}
        for known in self._stand_ins:
            del self.state[id(known.entry.array)]
        self.builder.inputs = [v for v in self.builder.inputs if v not in inputs]
        tensors = [t for t, _ in self._slots.values()]
        self.put_slots_back()
        for t in tensors:
            if (found := left[id(t)]) is not None:
                entry = self.state[id(t._array)]
                self.given_memory.append(GivenMemory(t, entry, entry.is_modified))
                entry.value = found.entry.value

    def check_given(self, is_differentiable: bool) -> None:
        """What the caller differentiates may read a tensor as it is then: with what it has been given."""
        if self.given_memory and is_differentiable:
            self.give_up(GivenOtherMemory(self.given_memory[0].tensor).always())

    def _left(self, t: Tensor, before: _Slots, shown: Sequence[Tensor]) -> _StandIn | None:
        """What a tensor looks at in the end; None: the memory that it has."""
        if t._array is before.array and not storage_chain(t):
            return None
        known = next((known for known in self._stand_ins if known.entry.array is t._array), None)
        is_own = known is not None and known.tensor is t and not storage_chain(t)
        seen = [known.made, before.array, t._array] if is_own and known is not None else []
        if not is_own or any(_shows(other, seen) for other in shown if other is not t):
            self.give_up(GivenOtherMemory(t).always())
        return known

    def put_slots_back(self) -> None:
        """Let tensors look at the memory that they looked at when the capture began."""
        for t, before in self._slots.values():
            before.put(t)
        self._slots, self._stand_ins = {}, []


class _Outdated(Storage):
    """What the step has made, and given to a tensor outside that has changed it since: nobody else may look at it."""

    __slots__ = ()

    @property
    def value(self) -> Any:
        """The value that it had; a capture that asks for it ends."""
        trace: Any = state.trace
        if trace is not None:
            trace.give_up(GivenOtherMemory("made by the step").always())
        return _value.__get__(self)

    @value.setter
    def value(self, value: Any) -> None:
        _value.__set__(self, value)


_value: Any = Storage.__dict__["value"]


def _shows(t: Tensor, seen: Sequence[object]) -> bool:
    """Whether a tensor shows one of these storages and arrays."""
    memory = None if t._storage is None else t._storage.memory
    own = (t._array, memory, None if memory is None else memory.array)
    return any(x is y for x in own if x is not None for y in seen)


@record(eq=False, frozen=False)
class GivenMemory:
    """A tensor outside, to whose memory the step writes what the function has given it, and the state that it is.

    ``is_changed``: the step changes what the memory held before, which others are to see. ``held``: the array to which
    only the tensor and the compiler were found to refer; ``expected``: how often, and the count of releases then.
    """

    tensor: Tensor
    entry: StateEntry
    is_changed: bool
    held: OwnTuple = OwnTuple()
    expected: tuple[int, int] = NEVER

    def is_at_hand(self) -> bool:
        """Whether nothing has changed since nobody else held the memory."""
        is_same = bool(self.held) and self.tensor._array is self.held[0] is self.entry.array
        return is_same and self.expected == (self.references(), int(releases[0]))

    def may_be_alone(self) -> bool:
        """Whether references to the array are those to its memory."""
        return layout_is_known() and self.entry.owner is self.tensor and owns_memory(self.entry.array)

    def references(self) -> int:
        """References to the array."""
        return ctypes.c_int64.from_address(id(self.entry.array)).value

    def hold(self) -> None:
        """Nobody else holds the memory now."""
        self.held = OwnTuple((self.entry.array,))
        watched[id(self.held[0])] = self.held[0]
        self.expected = self.references(), int(releases[0])

    def forget(self) -> None:
        """Somebody may hold it."""
        self.held, self.expected = OwnTuple(), NEVER

    def kept(self) -> Callable[[], None]:
        """What puts back what the tensor looks at, after a call that fails."""
        return partial(_Slots.of(self.tensor).put, self.tensor)

    def guards(self) -> list[WordGuard]:
        """What native code compares with what is ``expected``. Others of its guards keep the array."""
        references = words_at(id(self.entry.array), 1)
        return [WordGuard(counter, k) for counter, k in zip((references, releases), NEVER, strict=True)]


def prepare(step: CompiledStep) -> None:
    """Before a call through Python: nobody else holds the memory that the step writes what tensors are given to.

    Raises:
        GivenOtherMemory: somebody does, who is to see what the step changes.
    """
    held = _held_by_others(step.trace.given_memory)
    for given in held:
        if given.is_changed or given.entry.owner is not given.tensor:
            raise GivenOtherMemory(given.tensor)
    for given in held:
        may_change(given)
        look_at(given.tensor, wrap(given.tensor._array.copy()))
    if held and (step.capture.following.failure(step.segment) is not None or _held_by_others(held)):
        raise GivenOtherMemory(held[0].tensor)


def count_for(entry: Entry, places: Mapping[int, GivenMemory]) -> None:
    """Tell a native entry how many references to given memory there are, itself among those who hold it.

    ``places``: of the guards that compare them, each the first of two.
    """
    _held_by_others([*places.values()])
    for place, given in places.items():
        for k, expected in enumerate(given.expected):
            entry.set_expected(place + k, expected)


def _held_by_others(memories: Sequence[GivenMemory]) -> list[GivenMemory]:
    """Those of which others than the tensor and the compiler hold the memory, or may hold it."""
    unknown = [given for given in memories if not given.is_at_hand()]
    for given in unknown:
        given.forget()
    asked = [given for given in unknown if given.may_be_alone()]
    arrays = OwnList(given.entry.array for given in asked)
    own = _own_references(arrays, [given.tensor for given in asked]) if asked else Counter[int]()
    alone = [given for given in asked if given.references() == own[id(given.entry.array)]]
    del arrays
    for given in alone:
        given.hold()
    return [given for given in unknown if not given.held]


def _own_references(arrays: OwnList, tensors: Sequence[Tensor]) -> Counter[int]:
    """How often these tensors, and what the compiler keeps, refer to arrays, by id; no user can look through the rest.

    Python's collector looks at all objects that there are, once: 15 ms for 317,000 of them on a core of 2.5 GHz.
    """
    found = gc.get_referrers(*arrays)
    entries = [holder for holder in found if isinstance(holder, StateEntry)]
    known = [*tensors, *(entry.shown for entry in entries if entry.shown is not None)]
    known += [t for t in found if isinstance(t, Tensor) and HANDLES.get(id(t)) is t]
    storages = [t._storage for t in known if t._storage is not None]
    storages += [storage for entry in entries for storage in (entry.storage, *entry.met)]
    own = {id(holder) for holder in (*known, *storages, *(storage.memory for storage in storages))}
    count = Counter[int]()
    for holder in found:
        if isinstance(holder, StateEntry) or (isinstance(holder, Storage) and id(holder) in own):
            count[id(holder.array)] += 1
        elif isinstance(holder, Tensor) and id(holder) in own:
            count[id(holder._array)] += 1
        elif isinstance(holder, SlotGuard):
            count[id(holder.expected)] += 1
        elif isinstance(holder, OwnList | OwnTuple):
            count.update(map(id, holder))
    return count
