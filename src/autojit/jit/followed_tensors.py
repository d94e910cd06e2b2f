"""Following: tensors that a step finds in a place (a ``.grad``, an optimiser's state) may be replaced by others.

Another tensor of the same type in the same place is followed: it takes the place of the one before in everything that
the capture refers to it by. That is all or nothing: what were two tensors must be two tensors, what was one must be
one, and none may be a tensor that the step also reaches by another way. Tensors from outside that a capture has only
met keep their form (type, layout, whether they require gradients): the function may have asked for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import is_
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from autojit.core.device_array import has_layout
from autojit.core.memory_ranges import Range, range_of
from autojit.core.own_references import OwnList, OwnTuple, let_go
from autojit.jit.failed_calls import may_change
from autojit.jit.guards import same
from autojit.jit.results import Results
from autojit.jit.segment import Segment, overlapping
from autojit.jit.trace import Trace
from autojit.jit.trace_entries import StateEntry
from autojit.tensor.state import guard_epoch
from autojit.tensor.tensor import Tensor, made_in_inference, storage_chain, storage_of, type_of

if TYPE_CHECKING:
    from autojit.jit.step_gradients import StepGradients


class Followed(NamedTuple):
    """A place: what the capture or the last call found there, and what is there now."""

    name: str
    before: Tensor | None
    now: Tensor | None


class Holder:
    """An optimiser that a capture has read: what it kept at the end of the capture, or of the last call looked at.

    The places must be the same later. Where the state of parameters was cleared, the optimiser makes it as its own
    ``step`` would at this point: steps that were captured with state are for such calls as well.
    """

    def __init__(self, holder: Any, moves: Iterable[frozenset[int]]) -> None:
        self.holder = holder
        self.moves = list(moves)
        self.tensors, self.others = holder.followed()

    def places(self, may_begin: bool) -> list[Followed] | str:
        """What the places hold now, or why they are others."""
        tensors, others = self.holder.followed()
        reason = self._difference(tensors, others)
        if reason is not None and may_begin:
            may_change(self.holder)
            self.holder.catch_up([key for key in self.tensors if key not in tensors], self.moves)
            tensors, others = self.holder.followed()
            reason = self._difference(tensors, others)
        if reason is not None:
            return reason
        name = type(self.holder).__name__
        return [Followed(f"{name}: {_of_place(key)}", t, tensors[key]) for key, t in self.tensors.items()]

    def _difference(self, tensors: Mapping[Any, Tensor], others: Mapping[Any, Any]) -> str | None:
        name = type(self.holder).__name__
        gone = next((key for key in self.tensors if key not in tensors), None)
        if gone is not None:
            return f"{name}: {_of_place(gone)} is gone"
        more = next((key for key in tensors if key not in self.tensors and isinstance(key[1], int)), None)
        if more is not None:
            return f"{name}: {_of_place(more)} is new"
        for key in (*self.others, *others):
            if key not in others or key not in self.others or not same(self.others[key], others[key]):
                return f"{name}: {_of_place(key)} has changed"
        return None

    def rename(self, renamed: Mapping[int, Tensor]) -> None:
        """Other tensors have taken the place of those that the step knows, by id."""
        self.tensors = {key: renamed.get(id(t), t) for key, t in self.tensors.items()}

    def is_read(self, entries: Iterable[StateEntry]) -> bool:
        """Whether some of these show what the holder kept."""
        arrays = {id(entry.array) for entry in entries}
        return any(id(root_array(t)) in arrays for t in self.tensors.values())


class Following:
    """What one capture follows: gradients that it reads, and what optimisers keep.

    ``count`` (a word that native entries compare) says how often tensors were replaced by others.
    """

    def __init__(self, trace: Trace, gradients: StepGradients, results: Results) -> None:
        self.trace = trace
        self.gradients = gradients
        self.results = results
        self.holders = [Holder(held, moves) for held, moves in trace.holders.values()]
        self.count = np.zeros(1, np.int64)
        self.flags = [
            (t, flag)
            for t, flag in trace.flags
            # one that gets a history begins the next call with it, where a pass of the step would go on through it
            if (t._requires_grad == flag if t._grad_fn is None else trace.has_passes)
        ]
        known = {id(t) for t, _ in trace.flags}
        met = () if trace.met_outside is None else trace.met_outside()
        outside = [t for t in met if isinstance(t, Tensor) and has_layout(t._array)]
        self.flags += [(t, t._requires_grad) for t in outside if id(t) not in known]
        self.forms = [OwnTuple((t, t._array, _form(t))) for t in outside]
        self.shown = _sharing(trace)
        self.chains = [(t, storage_chain(t)) for t in trace.reached if t._array is not None and storage_chain(t)]
        self._arrays = OwnList()  # of the state, when it was looked at last
        self._ranges: dict[int, Range] = {}  # their addresses, by id
        self._epoch = -1  # the guard epoch at which holders were looked at last

    def failure(self, segment: Segment, is_decision: bool = False) -> str | None:
        """Let the capture follow what has been replaced outside by something of the same kind; why it cannot, or None.

        Before anything of it runs, decisions included; ``segment`` is what runs next.
        """
        epoch = int(guard_epoch[0])
        reason = (
            self._other_flag()
            or self._other_form()
            or self._follow(self.gradients.read())
            or self.gradients.failure()
            or segment.failure()
            or self._shared_otherwise()
        )
        if reason is not None or not self.holders or self._epoch == epoch:
            return reason
        holders = [h for h in self.holders if h.is_read(segment.entries)] if is_decision else self.holders
        places: list[Followed] = []
        for holder in holders:
            found = holder.places(may_begin=True)
            if isinstance(found, str):
                return found
            places += found
        count = int(self.count[0])
        reason = self._follow([*places, *self.gradients.read()])
        if reason is None and int(self.count[0]) != count:
            reason = segment.failure() or self._shared_otherwise()
        if reason is None and not is_decision:
            self._epoch = epoch
        return reason

    def follow_gradients(self, replaced: Sequence[Followed], segment: Segment) -> bool:
        """With the gate of ``segment``, which runs next: ``failure`` for gradients alone; whether there is none."""
        reason = self._follow(replaced) or self.gradients.failure() or segment.failure(has_gate=True)
        return (reason or self._shared_otherwise()) is None

    def _other_flag(self) -> str | None:
        """Which leaf requires gradients now or no longer; its values may be nothing that the step reads."""
        other = next(((t, flag) for t, flag in self.flags if t._requires_grad != flag), None)
        return other and f"requires_grad of a tensor {type_of(other[0])}: {other[1]} -> {other[0]._requires_grad}"

    def _other_form(self) -> str | None:
        """Which tensor has another shape, dtype or layout, whether or not the step reads its values."""
        for k, (t, array, form) in enumerate(self.forms):
            if t._array is not array:
                if _form(t) != form:
                    return f"a tensor {form[0]} has become {type_of(t)}, or is laid out differently in memory"
                let_go([array])
                self.forms[k] = OwnTuple((t, t._array, form))
                self.count[0] += 1
        return None

    def _shared_otherwise(self) -> str | None:
        """Which tensors share memory that did not when they were captured, or no longer do."""
        for t, entry in self.shown:
            owner = entry.owner
            if root_array(t) is not (entry.array if owner is None or owner._array is None else root_array(owner)):
                return f"a tensor {type_of(t)} shares memory with another one no longer"
        for t, chain in self.chains:
            if t._array is not None and storage_chain(t) != chain:
                return f"a tensor {type_of(t)} shows another part of its memory"
        entries = list(self.trace.state.values())
        arrays = [entry.array for entry in entries]
        if len(arrays) != len(self._arrays) or not all(map(is_, arrays, self._arrays)):
            known = self._ranges
            ranges = {id(array): known.get(id(array)) or range_of(array) for array in arrays}
            if overlapping([(entry.array, entry.is_modified) for entry in entries], ranges):
                return "tensors the step uses now share memory"
            let_go(self._arrays)
            self._arrays, self._ranges = OwnList(arrays), ranges
        return None

    def _follow(self, places: Sequence[Followed]) -> str | None:
        reason, renamed = follow(places, self.trace.state)
        if renamed:
            self.flags = [
                pair if id(pair[0]) not in renamed else (renamed[id(pair[0])], pair[1]) for pair in self.flags
            ]
            for k, (t, _, form) in enumerate(self.forms):
                if id(t) in renamed:
                    self.forms[k] = OwnTuple((new := renamed[id(t)], new._array, form))
            self.shown = [(renamed.get(id(t), t), entry) for t, entry in self.shown]
            self.chains = [(renamed.get(id(t), t), chain) for t, chain in self.chains]
            self.gradients.rename(renamed)
            self.results.rename(renamed)
            for holder in self.holders:
                holder.rename(renamed)
            self.count[0] += 1
        return reason


def _sharing(trace: Trace) -> list[tuple[Tensor, StateEntry]]:
    """The tensors from outside that show state by which a step knows another tensor, and that state."""
    found = []
    for t in trace.reached:
        entry = trace.state.get(id(root_array(t))) if t._array is not None and not trace.has_begun(t) else None
        if entry is not None and entry.owner is not t:
            found.append((t, entry))
    return found


def _form(t: Tensor) -> tuple[Any, ...]:
    """What Python can ask of a concrete tensor besides its values."""
    return type_of(t), t._array.strides


def _of_place(key: tuple[object, ...]) -> str:
    if len(key) == 3 and isinstance(key[1], int):
        return f"state {key[2]!r} of parameter {key[1]} in group {key[0]}"
    return " ".join(map(str, key))


def root_array(t: Tensor) -> Any:
    """The array of the memory that a concrete tensor shows, by which a trace knows its state."""
    return t._array if t._storage is None else t._storage.array


def follow(places: Sequence[Followed], state: dict[int, StateEntry]) -> tuple[str | None, dict[int, Tensor]]:
    """Let state follow what the places hold: why that is impossible, or the new tensors by the ids of the old.

    ``state`` is changed only if all can be followed.
    """
    renamed: dict[int, Tensor] = {}
    found: dict[int, Any] = {}  # by id of the old array
    taken: dict[int, Any] = {}  # by id of the new one
    for place in places:
        before, now = place.before, place.now
        if before is None or now is None:
            if before is not now:
                return f"{place.name}: {_shown(before)} -> {_shown(now)}", {}
            continue
        if before is not now and not _is_alike(before, now):
            return f"{place.name}: {_shown(before)} -> {_shown(now)}, of another kind", {}
        old, new = root_array(before), root_array(now)
        if found.setdefault(id(old), new) is not new or taken.setdefault(id(new), old) is not old:
            return f"{place.name}: tensors the step reads are the same, or no longer", {}
        if before is not now:
            renamed[id(before)] = now
    if not renamed:
        return None, renamed
    strange = next((state[key] for key in taken if key in state and key not in found), None)
    if strange is not None:  # state that is not a followed one, whose memory a followed tensor now shows
        return f"a tensor {strange.input.type} of the step has come to another place of it", {}
    _rename(places, state)
    return None, renamed


def _is_alike(before: Tensor, now: Tensor) -> bool:
    """Whether a step cannot tell two concrete tensors apart but by their values."""
    return (
        type_of(before) == type_of(now)
        and storage_chain(before) == storage_chain(now)
        and before._requires_grad == now._requires_grad
        and (before._grad_fn is None) == (now._grad_fn is None)
        and made_in_inference(before) == made_in_inference(now)
    )


def _rename(places: Sequence[Followed], state: dict[int, StateEntry]) -> None:
    moved: dict[int, StateEntry] = {}
    gone: set[int] = set()
    for _, before, now in places:
        if before is None or now is None or before is now:
            continue
        key = id(root_array(before))
        entry = state.get(key)
        if entry is None or key in gone:
            continue
        gone.add(key)
        entry.owner, entry.storage, entry.requires_grad = now, storage_of(now), now._requires_grad
        moved[id(root_array(now))] = entry
    for key in gone:
        del state[key]
    state.update(moved)


def _shown(t: Tensor | None) -> str:
    return "None" if t is None else f"a tensor {type_of(t)} at {id(t):#x}"
