"""Results that the caller can differentiate, of a step that native code runs: their history is recorded after the run.

That is possible where a step is one op of its caller's history and leaves nothing else: the same node is made of the
same operands as where the op itself computes them, whose results are those of native code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.history.lasting import make_lasting
from autojit.history.recording import record, wants_any
from autojit.jit.call_node import Recording
from autojit.tensor.state import grad_mode
from autojit.tensor.tensor import Tensor, made_in_inference, wrap

if TYPE_CHECKING:
    from autojit.jit.step import CompiledStep
    from autojit.jit.trace_entries import StateEntry


AGAIN = 4  # calls of a step that changes state, before what writes to that is compiled besides the op
MOST_NS = 2e6
"""An estimate of a step's time from which on its op is not compiled again: calls through Python take 0.2 ms more, and
compiling 0.1 to 2 s.
"""
MOST_KEPT = 1 << 12  # bytes of state that a call changes and its derivative reads, of which each call keeps a copy


def can_be_recorded(step: CompiledStep) -> bool:
    """Whether a step is one op of its caller's history, and changes nothing but state that no derivative is of."""
    call, capture, effects = step.call, step.capture, step.effects
    if call is None or len(call.stages) != 1 or call.views or call.others or call.moving_on:
        return False
    state = {id(entry.storage) for entry, _ in effects.written}
    if effects.writes or effects.gradients.all or effects.gradients.in_parts or effects.asked.passes or capture.rebased:
        return False
    if not all(id(storage) in state for storage, _ in effects.counted()):
        return False
    if capture.switched_on or step.trace.switched_on or step.trace.counted:
        return False
    if not call.are_plain([entry for entry, _ in effects.written]) or _bytes_of(_read_and_written(step)) > MOST_KEPT:
        return False
    op = call.stages[0].op
    return op.layouts is None and not op.extra and not any(step.results.orders) and not step.results.made_in_inference


def kept_before(step: CompiledStep) -> list[StateEntry]:
    """State that a step changes and the derivative of its results reads (of a generator, what it draws from): native
    code hands out what it was.
    """
    return _read_and_written(step) if step.effects.written and can_be_recorded(step) else []


def _read_and_written(step: CompiledStep) -> list[StateEntry]:
    assert step.call is not None
    behind = step.call.behind_results if step.effects.written else ()
    return [entry for entry, _ in step.effects.written if entry.input in behind]


def _bytes_of(entries: Sequence[StateEntry]) -> int:
    return sum([entry.array.nbytes for entry in entries])


def takes_long(step: CompiledStep) -> bool:
    """Whether a step that changes state takes so long that what Python does besides is no matter."""
    parts = step.parts if step.effects.written else ()
    return sum(entry.estimate_ns for part in parts for entry in part.lowered.entries) > MOST_NS


def has_code(step: CompiledStep) -> bool:
    """Whether native code of a step is at hand: if its op was compiled first, it is bound to the state's memory for
    those who call the step again; what changes state is compiled again, as it writes to that memory.
    """
    if step.call is None:
        return True
    if step.effects.written:
        return step.calls > AGAIN
    if step.calls > 1 and can_be_recorded(step):
        op = step.call.stages[0].op
        step.segment.adopt(op.compiled, op.graph)
    return step.calls > 1


class RecordedResults:
    """What a step's native results become: tensors with the history that the step's op leaves."""

    def __init__(self, step: CompiledStep, name: str, jitted: Callable[[Callable[..., Any]], Any]) -> None:
        assert step.call is not None
        self.call = step.call
        self.op = step.call.stages[0].op
        self.places = step.call.stages[0].places
        self.results, self.count = step.results, len(step.results.values)
        self.written, self.kept = [entry for entry, _ in step.effects.written], step.kept
        self.is_single = step.results.tree.kind is None
        arguments = step.capture.arguments
        self.given = [(k, leaf.value in self.call.read) for k, leaf in enumerate(arguments) if leaf.value is not None]
        self.recording = Recording(step, name, jitted) if Recording.is_possible(step) else None

    @property
    def is_current(self) -> bool:
        """Whether what is known of the history beforehand still holds."""
        return self.recording is None or self.recording.is_current

    @property
    def is_direct(self) -> bool:
        """Whether results are a tensor, or a flat tuple of tensors, that have the history of the call or none."""
        results = self.results
        is_told = all(p.spent is None and p.requires_grad == (p.index in self.call.live) for p in results.places)
        return self.recording is not None and results.is_plain and is_told

    def shown(self, native: Any, leaves: Sequence[Any]) -> Any:
        """What the function returns, where that `is_direct`."""
        made = None if self.recording is None else self.recording.results(native, leaves)
        made = self.of(native, leaves) if made is None else made
        places = self.results.places
        if self.is_single:
            return made[places[0].index]
        return tuple([place.what if place.kind == "constant" else made[place.index] for place in places])

    def of(self, native: Any, leaves: Sequence[Any]) -> list[Tensor]:
        """The results of a call, from the tensors that native code has filled."""
        recording = self.recording
        if recording is not None:
            found = recording.results(native, leaves)
            if found is not None:
                return found
        made = [wrap(t._array) for t in native[: self.count]]  # rings see by the arrays that these are in use
        operands: list[Tensor] = []
        for k, is_read in self.given:
            t = leaves[k]
            if not isinstance(t, Tensor):
                t = wrap(np.asarray(t))
            operands.append(t if is_read else wrap(t._array))  # results do not depend on it: its history may be gone
        before = dict(zip(map(id, self.kept), native[self.count :], strict=True))
        operands += [
            wrap(before[id(entry)]._array) if id(entry) in before else entry.root_owner() for entry in self.call.entries
        ]
        outputs = [*made, *(wrap(entry.array) for entry in self.written)]
        with grad_mode(True):  # of the body, whatever the caller's is
            if wants_any(operands) and not all(map(made_in_inference, operands)):
                record(self.op, operands, [outputs[k] for k in self.places])
        if self.call.is_lasting:
            make_lasting(made)
        for k in range(self.count):
            if k not in self.call.live:
                made[k]._requires_grad, made[k]._grad_fn = False, None
        self.call.count_anew(made)
        return made
