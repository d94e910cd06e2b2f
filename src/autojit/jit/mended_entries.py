"""Native entries that have refused a call because a ``.grad`` is not what they know, made to fit with the gate.

Gradients that a step makes get other memory where somebody holds what it has left there. Those that it only finds
(an optimiser's step that is compiled by itself, after ``backward`` and ``zero_grad`` outside) are other tensors in
every turn: the step follows them, and so does its entry, which would have to be made again otherwise. So does one that
accumulates into what another step has left (a function that updates, or logs, in some of its calls): the memory is its
own from then on, as nobody but steps has seen it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autojit.jit.followed_tensors import root_array
from autojit.jit.versions import count_from_now
from autojit.runtime.entry_spec import LentGuard, SlotGuard
from autojit.tensor.lent_gradients import is_lent
from autojit.tensor.tensor import StepGradient, Tensor

if TYPE_CHECKING:
    from autojit.jit.native import NativeStep

BINDINGS, COUNT = 1, 2  # the guards that compare how often a step was bound to other memory, and has followed others


def mend(native: NativeStep, place: int) -> bool:
    """Whether that has helped the guard ``place``. With the gate."""
    if not isinstance(native.entry._spec.guards[place], LentGuard):
        return _follows(native)
    gradients, state = native.step.effects.gradients, native.step.trace.state
    is_moved = False
    for number, grad in native.grad_places.items():
        if grad.lent_before in ("any", "none") and grad.value is not None and grad.prepare(state):
            native.entry.set_expected(number, grad.tensor)
            is_moved = is_moved or number == place
    gradients.bind(native.step.segment)
    return is_moved or _follows(native)


def _follows(native: NativeStep) -> bool:
    """Let the step and its entry follow all gradients that were replaced by others of their kind.

    What another step has left and nobody has read since, is this step's from then on.
    """
    step = native.step
    gradients, state = step.effects.gradients, step.trace.state
    found = [place for place in gradients.read() if place.before is not place.now]
    replaced = {id(place.before): place.now for place in found}
    if None in replaced.values() or id(None) in replaced or native.recorded is not None:
        return False
    for grad in gradients.all:
        now = replaced.get(id(grad.before))
        if (
            now is not None
            and isinstance(grad.tensor, StepGradient)
            and not (type(now) is StepGradient and not is_lent(now))
        ):
            return False  # a reader may hold it
    if any(id(place.what) in replaced for place in step.results.places if place.kind == "constant"):
        return False
    known = {id(entry) for _, entry in step.capture.following.shown}
    is_changed = False
    for place in found:
        assert place.before is not None
        entry = state.get(id(root_array(place.before)))
        if entry is not None and (entry.owner is not place.before or id(entry) in known):
            return False  # the step knows the memory by another tensor, too
        is_changed = is_changed or (entry is not None and entry.is_modified)
    if not found or not step.capture.following.follow_gradients(found, step.segment):
        return False
    for taken in gradients.replaced:
        taken.prepare(state)
    gradients.bind(step.segment)
    if is_changed:
        native.entry.set_written(step.overlaps.written.ranges)
    _aim(native, replaced)
    for storage, changes in step.effects.counted() if is_changed else ():
        count_from_now(storage, native, changes)
    return True


def _aim(native: NativeStep, replaced: dict[int, Tensor | None]) -> None:
    """Let the entry's guards look at the gradients that are there now, by the ids of those before."""
    entry = native.entry
    guards = entry._spec.guards
    rows: dict[int, list[int]] = native.rows_of_owners
    if not rows:
        for row, guard in enumerate(guards):
            if isinstance(guard, SlotGuard):
                rows.setdefault(id(guard.owner), []).append(row)
    moved: dict[int, SlotGuard] = {}
    known: list[Any] = [(rows.pop(old, []), now) for old, now in replaced.items()]
    for places, now in known:
        rows[id(now)] = places
        for row in places:
            guard = guards[row]
            assert isinstance(guard, SlotGuard)
            moved[row] = SlotGuard(now, guard.slot, getattr(now, guard.slot))
    entry.replace_guards(moved)
    for place, grad in native.grad_places.items():
        entry.set_expected(place, grad.tensor if isinstance(guards[place], LentGuard) else grad.before)
    native.note_present()
    entry.set_expected(BINDINGS, native.made_for[0])
    entry.set_expected(COUNT, native.made_for[1])
