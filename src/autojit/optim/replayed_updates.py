"""Updates of many parameters in a capture: one is recorded, those of the same kind are recorded again from it.

An algorithm of autojit's says the same about two parameters of a group with equal types and state, so the nodes of the
first are linked to the memory of the second. What an update reads besides its operands is the numbers that parameters
share (``arithmetic.shared``) and the group's own; one that reads or changes anything else runs every time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from autojit.core.source import SourceLocation, here
from autojit.dispatch.dispatch import value_of
from autojit.dispatch.replay import NEVER, identities_of
from autojit.ir.graph import Value
from autojit.ir.op import Op
from autojit.ops.formula import formulas
from autojit.optim.arithmetic import StepCall, stepping
from autojit.optim.param_group import ParamGroup
from autojit.tensor import Tensor
from autojit.tensor.state import State
from autojit.tensor.state import state as now_of_thread
from autojit.tensor.tensor import storage_of, type_of


class Write(NamedTuple):
    """What an update left in the memory of an operand: a value, changes of the version, the last method's name."""

    operand: int
    value: int
    changes: int
    method: str


class Update(NamedTuple):
    """Nodes on numbered values: the operands' (those in ``reads``), then ``others``, then the results of each node."""

    reads: list[int]
    others: list[Value]
    steps: list[tuple[Op, tuple[int, ...], tuple[Any, ...]]]
    writes: list[Write]


def update(optimizer: Any, p: Tensor, grad: Tensor, state: dict[str, Any], group: ParamGroup) -> None:
    """``optimizer._update(p, grad, state, group)``."""
    now = now_of_thread.__dict__
    call = stepping.call
    if (
        now["divert"] is not State.capture
        or now["grad_enabled"]
        or now["inference"]
        or now["mutation"] is not None
        or call is None
        or not type(optimizer).__module__.startswith("autojit.")
    ):
        optimizer._update(p, grad, state, group)
        return
    operands, key = _described(p, grad, state, call)
    trace = now["trace"]
    key = update, call, type(optimizer), id(group), key  # the call: what parameters share is made again in each
    if operands is None or trace.recordings.get(key) is NEVER:
        optimizer._update(p, grad, state, group)
        return
    known = trace.recordings.get(key)
    if known is not None:
        if call.place is None:
            call.place = here(is_inside=True)
        _again(known, operands, trace, call.place)
        return
    watched = _Watched(operands, state, call, trace)
    optimizer._update(p, grad, state, group)
    if watched.is_complete(state, call):
        learnt = watched.learnt(group, call)
        trace.recordings[key] = learnt or NEVER
        if learnt is not None and trace.forget(watched.since):
            _record(learnt, operands, watched.values_read(), trace, here(is_inside=True))


def _described(p: Tensor, grad: Tensor, state: dict[str, Any], call: StepCall) -> tuple[list[Tensor] | None, Any]:
    """The parameter's own tensors, or None if one is not plain memory; and what equal updates have in common."""
    operands, kinds = [grad, p], [type_of(grad), type_of(p)]
    rest: list[Any] = []
    for name, value in state.items():
        if not isinstance(value, Tensor):
            rest.append((name, type(value), repr(value)))
        elif id(value) in call.counts:
            rest.append((name, id(value)))  # a counter that the step has advanced
        else:
            rest.append(name)
            operands.append(value)
            kinds.append(type_of(value))
    for t in operands[1:]:
        if type(t._array) is not np.ndarray or t._view is not None:
            return None, None
    identities = identities_of(operands)
    if identities is None or len(set(identities)) != len(operands):
        return None, None
    return operands, (tuple(kinds), tuple(rest))


class _Watched:
    """An update while it runs for the first time of its kind."""

    def __init__(self, operands: list[Tensor], state: dict[str, Any], call: StepCall, trace: Any) -> None:
        self.trace = trace
        self.operands = operands
        self.state = dict(state)
        self.shared = len(call.counts), len(call.numbers)
        self.since = len(trace.builder.nodes)
        self.writes = trace.writes
        self.values = [trace.lifted(t._array) if t._array is not None else value_of(t) for t in operands]
        self.versions = [_version(t) for t in operands]

    def is_complete(self, state: dict[str, Any], call: StepCall) -> bool:
        """Whether it made no state and no numbers for others, so that the next one of its kind does the same."""
        same = list(state) == list(self.state) and all(state[name] is self.state[name] for name in state)
        return same and self.shared == (len(call.counts), len(call.numbers))

    def values_read(self) -> list[Any]:
        """The values that the operands had before."""
        return [
            self.trace.lifted(t._array, is_first=True) if value is None and t._array is not None else value
            for t, value in zip(self.operands, self.values, strict=True)
        ]

    def learnt(self, group: ParamGroup, call: StepCall) -> Update | None:
        """What was recorded, or None if it cannot be told from the operands."""
        trace, count = self.trace, len(self.operands)
        nodes = trace.builder.nodes[self.since :]
        values = self.values_read()
        numbers: dict[Value, int] = {value: place for place, value in enumerate(values) if value is not None}
        made = [v for node in nodes for v in node.outputs]
        others = list(dict.fromkeys(v for node in nodes for v in node.inputs if v not in numbers))
        others = [v for v in others if v not in set(made)]
        if not _values_of(group, call, trace).issuperset(others):
            return None
        numbers.update((v, count + k) for k, v in enumerate((*others, *made)))
        writes = self._changes(numbers)
        if writes is None:
            return None
        steps = [
            (node.op, tuple([numbers[v] for v in node.inputs]), tuple([v.type for v in node.outputs])) for node in nodes
        ]
        met = (*(place for _, places, _ in steps for place in places if place < count), *(w.operand for w in writes))
        types = [None if v is None else v.type for v in (*values, *others)]
        steps, kept = formulas(steps, types, [write.value for write in writes])
        writes = [write._replace(value=number) for write, number in zip(writes, kept, strict=True)]
        return Update(list(dict.fromkeys(met)), others, steps, writes)

    def _changes(self, numbers: dict[Value, int]) -> list[Write] | None:
        found = []
        for place, (t, version) in enumerate(zip(self.operands, self.versions, strict=True)):
            changes = _version(t) - version
            if not changes:
                continue
            value = None if t._array is None else numbers.get(self.trace.lifted(t._array))
            if value is None:
                return None
            found.append(Write(place, value, changes, storage_of(t).changed_by))
        is_all = sum(write.changes for write in found) == self.trace.writes - self.writes
        return found if is_all else None


def _version(t: Tensor) -> int:
    return 0 if t._storage is None else t._storage.version


def _values_of(group: ParamGroup, call: StepCall, trace: Any) -> set[Any]:
    """The values of what the parameters of a group share: its hyper-parameters, counters, numbers made of these."""
    shared: list[Any] = [*group._slots.values(), *(v for name, v in dict.items(group) if name != "params")]
    shared += [number for pair in (*call.counts.values(), *call.numbers.values()) for number in pair]
    tensors = [t for t in shared if isinstance(t, Tensor)]
    tensors += [n.as_operand() for n in shared if hasattr(type(n), "as_operand")]
    return {trace.lifted(t._array) if t._array is not None else value_of(t) for t in tensors}


def _again(known: Update, operands: list[Tensor], trace: Any, place: SourceLocation) -> None:
    values: list[Any] = [None] * len(operands)
    for number in known.reads:
        values[number] = value_of(operands[number])
    _record(known, operands, values, trace, place)
    for write in known.writes:
        storage = storage_of(operands[write.operand])
        storage.version += write.changes
        storage.changed_by, storage.changed_at = write.method, place


def _record(known: Update, operands: list[Tensor], values: list[Any], trace: Any, place: SourceLocation) -> None:
    """Append the nodes and give the operands that they change their new values; ``values`` are those read."""
    values += known.others
    trace.builder.repeat(known.steps, values, place)
    for write in known.writes:
        trace.in_place(storage_of(operands[write.operand]), values[write.value])
