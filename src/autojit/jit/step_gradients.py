"""Gradients of leaves outside a step: what they are before and after it, and which memory they are written to.

This is the one place that decides whether memory of a ``.grad`` is written again; docs/design/recycled_memory.md states
the rule. A step owns the memory of the gradients it makes (``StepGradient``). It may write it again as long as nobody
has read the ``.grad`` (readers get a plain tensor in its place, and the step sees that it is gone), and only where the
step reads nothing else in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autojit.core.device_array import write_array
from autojit.core.records import record
from autojit.dispatch.dispatch import value_of
from autojit.ir.graph import Value
from autojit.jit.followed_tensors import Followed, follow, root_array
from autojit.jit.pytree import LEAF, TreeSpec, flatten
from autojit.jit.results import Results
from autojit.jit.segment import Segment, allocate
from autojit.jit.trace import Trace
from autojit.jit.trace_entries import GradEntry, StateEntry
from autojit.tensor.lent_gradients import is_lent, lent_gradient, step_gradient, taken_back
from autojit.tensor.tensor import StepGradient, Tensor, storage_of, type_of, wrap


@record(eq=False, frozen=False)
class GradResult:
    """A leaf's ``.grad`` after the step: ``tensor`` (None, or a concrete tensor), or a new one with ``value``.

    A new one is written to memory of the step, ``tensor``. If the caller sees it as a result or as another gradient
    too, or can differentiate it, it is graph output ``result``, a fresh tensor at every call.
    """

    leaf: Tensor
    entry: GradEntry
    tensor: Tensor | None
    value: Value | None = None
    result: int | None = None

    def read(self) -> Followed | None:
        """The gradient that the step reads: what the capture or the last call found, and what is there now."""
        entry = self.entry
        if not entry.was_read:
            return None
        if isinstance(self.before, StepGradient):
            taken_back(self.leaf, self.before)
        now = lent_gradient(self.leaf) if entry.is_kept else self.leaf._grad
        return Followed(".grad of a tensor that the step reads", entry.initial, now)

    def rename(self, renamed: dict[int, Tensor]) -> None:
        """Other tensors have taken the place of those that the step knows, by id."""
        self.entry.initial = renamed.get(id(self.entry.initial), self.entry.initial)
        if self.value is None:
            self.tensor = renamed.get(id(self.tensor), self.tensor)

    @property
    def is_stable(self) -> bool:
        """Whether the gradient is the same object before and after the step, so that native code need not set it."""
        return self.result is None and (not self.entry.was_read or self.entry.initial is self.tensor)

    @property
    def before(self) -> Tensor | None:
        """What the leaf's ``.grad`` is when a step begins that native code may run."""
        return self.entry.initial if self.entry.was_read else self.tensor

    @property
    def lent_before(self) -> str | None:
        """What the leaf's slot holds before a call for which native code looks after the gradient itself: see
        `LentGuard.before`; None where Python does.
        """
        if (
            not isinstance(self.tensor, StepGradient)
            or self.result is not None
            or type(self.tensor._array) is not np.ndarray
        ):
            return None
        if not self.entry.was_read:
            return "any"
        return "none" if self.entry.initial is None else "own" if self.entry.initial is self.tensor else None

    @property
    def is_at_hand(self) -> bool:
        """Whether the step may write the gradient's memory as it is: nobody has read what it left there."""
        return not isinstance(self.tensor, StepGradient) or not is_lent(self.tensor)

    def prepare(self, state: dict[int, StateEntry]) -> bool:
        """Get other memory if somebody may hold this, or it is state that the step reads; whether it did."""
        own = self.tensor
        assert isinstance(own, StepGradient)
        taken_back(self.leaf, own)
        if not is_lent(own) and id(own._array) not in state:
            return False
        self.tensor = step_gradient(allocate(type_of(own)))
        return True

    def shown(self, tensors: Sequence[Tensor]) -> Tensor | None:
        """What ``.grad`` is when the step has ended; ``tensors`` are its results, one per graph output."""
        return self.tensor if self.result is None else tensors[self.result]

    def moving(self) -> list[tuple[Value, Any]]:
        """Values whose memory may be another at every call, with that memory."""
        if self.value is None or self.result is not None:
            return []
        assert self.tensor is not None
        return [(self.value, self.tensor._array)]


@record(eq=False, frozen=False)
class ReplacedGradient(GradResult):
    """A gradient that the step reads and then replaces: the new one is written where the old one was.

    The compiler knows that it is the same memory (``state``). If somebody may hold the old gradient, the step gets a
    copy of it to begin with; what the function changes in the old one goes to the holder's memory, else to ``rest``.
    """

    state: StateEntry | None = None
    rest: Any = None  # memory for what nobody sees
    held: Tensor | None = None  # the old gradient of the present call, if somebody may hold it

    @property
    def is_changed(self) -> bool:
        """Whether the function changes the old gradient in place before it replaces it."""
        assert self.state is not None
        return self.state.is_modified

    @property
    def is_stable(self) -> bool:
        return True

    @property
    def lent_before(self) -> str | None:
        is_own = isinstance(self.tensor, StepGradient) and type(self.tensor._array) is np.ndarray
        return "own" if is_own and not self.is_changed else None

    @property
    def before(self) -> Tensor | None:
        return self.tensor

    def prepare(self, state: dict[int, StateEntry]) -> bool:
        if isinstance(self.tensor, StepGradient):
            taken_back(self.leaf, self.tensor)
        now, entry = self.leaf._grad, self.state
        assert entry is not None
        assert now is not None
        if isinstance(now, StepGradient) and not is_lent(now):
            self.tensor = now  # of this step, or of another that has left it here: only steps know it
            return False
        own = step_gradient(allocate(entry.input.type))
        write_array(own._array, now._array)
        _, renamed = follow([Followed("", self.entry.initial, own)], state)
        entry.array = own._array
        self.tensor, self.held = own, now
        self.rename(renamed)
        return True

    def moving(self) -> list[tuple[Value, Any]]:
        assert self.state is not None
        if not self.is_changed:
            return []
        held = self.held
        return [(self.state.value, held._array if held is not None and _is_plain(held) else self.rest)]

    def leave(self) -> bool:
        """After the step: the holder of the old gradient sees what was done to it; whether there is one."""
        held, self.held = self.held, None
        if held is None or not self.is_changed:
            return False
        if not _is_plain(held):
            write_array(held._array, self.rest)
        storage_of(held).version += 1
        return True


def _is_plain(t: Tensor) -> bool:
    return bool(t._array.flags.c_contiguous and t._array.flags.aligned)


@record(eq=False, frozen=False)
class GradInParts:
    """A ``.grad`` that is made of several tensors (a sparse one): a new one of new parts after every call."""

    leaf: Tensor
    entry: GradEntry
    tree: TreeSpec
    values: list[Value]

    def failure(self) -> str | None:
        """Why the gradient the step reads no longer fits, or None."""
        before, now = self.entry.initial, self.leaf._grad
        if not self.entry.was_read or now is before:
            return None
        return f".grad of a tensor {type_of(self.leaf)} that the step reads has changed"


class StepGradients:
    """The gradients of outside leaves that one capture reads or leaves."""

    def __init__(self, trace: Trace, results: Results, outputs: Sequence[Any]) -> None:
        returned = {id(t) for t in outputs}
        entries = [g for g in trace.grads.values() if id(g.leaf) in returned or not trace.has_begun(g.leaf)]
        entries = [g for g in entries if g.is_written or g.was_read]
        self.trace = trace
        self.in_parts = [_grad_in_parts(g) for g in entries if g.is_written and _is_in_parts(g.current)]
        whole = [g for g in entries if not (g.is_written and _is_in_parts(g.current))]
        _note_kept(whole, [t for t in outputs if isinstance(t, Tensor)])
        shared = Counter(id(g.current) for g in whole)
        arrays = Counter(
            id(root_array(t)) for g in whole for t in (g.initial, g.current) if t is not None and t._array is not None
        )
        self.all = [_grad_result(g, shared, arrays, trace, results) for g in whole]
        self.replaced = [g for g in self.all if isinstance(g, ReplacedGradient)]

    def failure(self) -> str | None:
        """Why gradients in parts no longer fit, or None."""
        return next((reason for made in self.in_parts if (reason := made.failure()) is not None), None)

    def read(self) -> list[Followed]:
        """The gradients that the step reads."""
        return [found for grad in self.all if (found := grad.read()) is not None]

    def rename(self, renamed: dict[int, Tensor]) -> None:
        """Other tensors have taken the place of those that the step knows, by id."""
        for grad in self.all:
            grad.rename(renamed)

    def moving(self) -> list[tuple[Value, Any]]:
        """Values whose memory may be another at every call, with that memory."""
        return [item for grad in self.all for item in grad.moving()]

    def prepare(self, segment: Segment) -> None:
        """Before a call through Python: every gradient gets memory that the step may write."""
        made = [g for g in self.all if g.value is not None and g.result is None and g not in self.replaced]
        has_moved = [grad.prepare(self.trace.state) for grad in (*self.replaced, *made)]
        if any(has_moved):
            if any(entry.array is not bound for entry, bound in zip(segment.entries, segment.bound, strict=True)):
                segment.rebind()
            self.bind(segment)

    def bind(self, segment: Segment) -> None:
        """Tell a segment where the gradients are."""
        for index, (_, array) in enumerate(self.moving()):
            segment.move(index, array)

    def commit(self, tensors: Sequence[Tensor], parts: Sequence[Any]) -> None:
        """Show the gradients; ``tensors`` are the step's results, ``parts`` the arrays of gradients in parts."""
        place = iter(parts)
        for made in self.in_parts:
            made.leaf._grad = made.tree.unflatten([wrap(next(place)) for _ in made.values])
        for grad in self.all:
            shown = grad.shown(tensors)
            if grad.entry.is_written and grad.leaf._grad is not shown:
                grad.leaf._grad = shown

    def abandon(self, segment: Segment) -> None:
        """A call has failed: the holders of old gradients have them as before."""
        held = [grad for grad in self.replaced if grad.held is not None]
        for grad in held:
            grad.held = None
        if held:
            self.bind(segment)

    def leave(self, segment: Segment) -> None:
        """Memory of others that a call was given is theirs alone from now on."""
        were_held = [grad.leave() for grad in self.replaced]
        if any(were_held):
            self.bind(segment)


def _note_kept(grads: Sequence[GradEntry], results: Sequence[Tensor]) -> None:
    """Mark gradients whose memory a result shows, or that became another leaf's gradient. Time O(all of them)."""
    shown = {id(t) for t in results} | {id(t._storage.memory) for t in results if t._storage is not None}
    shown |= {id(g.current) for g in grads if g.current is not None and g.current is not g.initial}
    for g in grads:
        storage = None if g.initial is None else g.initial._storage
        g.is_kept = id(g.initial) in shown or (storage is not None and id(storage.memory) in shown)


def _is_in_parts(grad: Tensor | None) -> bool:
    return grad is not None and flatten(grad)[1] is not LEAF


def _grad_in_parts(grad: GradEntry) -> GradInParts:
    parts, tree = flatten(grad.current)
    return GradInParts(grad.leaf, grad, tree, [value_of(p) for p in parts])


def _grad_result(
    grad: GradEntry, shared: Mapping[int, int], arrays: Mapping[int, int], trace: Trace, results: Results
) -> GradResult:
    """``shared``, ``arrays``: in how many gradients before or after the step a tensor, or an array, is found."""
    current = grad.current
    if current is None or current._array is not None:  # concrete: changed in place, its storage is state
        return GradResult(grad.leaf, grad, current)
    value = value_of(current)
    result = results.of_gradient(current, is_shared=shared[id(current)] > 1)
    if result is not None:
        return GradResult(grad.leaf, grad, None, value, result)
    state = _replaced_state(grad, arrays, trace)
    if state is None:
        return GradResult(grad.leaf, grad, step_gradient(allocate(value.type)), value)
    rest = allocate(value.type) if state.is_modified else None
    return ReplacedGradient(grad.leaf, grad, None, value, state=state, rest=rest)


def _replaced_state(grad: GradEntry, arrays: Mapping[int, int], trace: Trace) -> StateEntry | None:
    """The memory of the gradient that the step reads and replaces, if nothing else in the step shows it."""
    before, current = grad.initial, grad.current
    if not grad.was_read or grad.is_kept or before is None or current is None:
        return None
    if before._view is not None or before._grad_fn is not None:
        return None
    key = id(root_array(before))
    entry = trace.state.get(key)
    if entry is None or entry.left is not None or entry.input.type != type_of(current):
        return None
    return entry if arrays[key] == 1 else None
