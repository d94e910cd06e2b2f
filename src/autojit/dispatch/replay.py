"""Replaying: what a derivative rule recorded into a trace is recorded again, on other operands of the same kinds.

A deep model repeats itself. A rule says the same about equal ops on operands of equal types: it asks of its operands
nothing but types and computes with ops alone. So its nodes are kept for the capture, and the next time they are only
linked to other values. Rules whose nodes read anything but their operands run every time.

How to read: ``Rules`` decides, ``Recording`` is what is kept, ``_learnt`` makes one and ``_again`` uses it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from autojit.core.program_parts import PLAIN, Part
from autojit.core.sizes import is_symbolic
from autojit.core.source import Entering, SourceLocation, enter, leave
from autojit.core.structure import structure
from autojit.core.types import TensorType
from autojit.dispatch.dispatch import attach_view, value_of
from autojit.history.op_node import NotImplementedNode, OpNode
from autojit.history.saved import Packed, TypeOnly
from autojit.ir.graph import Node, Value
from autojit.ir.op import Op
from autojit.ir.result_types import is_plain
from autojit.ops.cotangent_masks import masking
from autojit.tensor.node import FREED, ZERO, type_of_meta
from autojit.tensor.state import State, state
from autojit.tensor.storage import ElsewhereArray
from autojit.tensor.tensor import Tensor, type_of, wrap_value
from autojit.transforms.adjoint import accumulate

NEVER: Any = object()  # in the place of a recording: what was recorded depends on more than the operands' kinds
_WHOLE = frozenset(
    {"int", "bool", "str", "DType", "Shape", "Integers", "tuple[int, ...]", "tuple[str, ...]", "tuple[bool, ...]"}
)
"""Annotations of parameters that are just the same if they are equal; -0.0 equals 0.0."""
_is_whole: dict[type[Op], bool] = {}


class Rules:
    """Runs the nodes of a capture's backward pass; a derivative rule is run once per kinds of operands.

    ``place`` is the user's line that started the pass.
    """

    def __init__(self, place: SourceLocation) -> None:
        self.place = place
        self._places: dict[Part, SourceLocation] = {}

    def run(self, node: Any, grads: list[Any], wanted: tuple[bool, ...]) -> Sequence[Any]:
        """``node.run(grads, wanted)``; what it records belongs to the module whose call recorded the node."""
        part = node.source.part.backward
        place = self.place = self._places.get(part) or self._place_in(part)
        before = enter(sys._getframe(), part, place)
        try:
            return self._run(node, grads, wanted) if isinstance(node, OpNode) else node.run(grads, wanted)
        finally:
            leave(before)

    def enter(self) -> Entering:
        """Until `leave` is given what is returned, what is recorded beside the rules belongs to the pass."""
        return enter(sys._getframe(1), PLAIN.backward, self._place_in(PLAIN.backward))

    def _place_in(self, part: Part) -> SourceLocation:
        place = SourceLocation(self.place.code, self.place.instruction, self.place.called).in_part(part)
        self._places[part] = place
        return place

    def _run(self, node: OpNode, grads: list[Any], wanted: tuple[bool, ...]) -> Sequence[Any]:
        if _is_replaying() and type(node) is not NotImplementedNode:
            given = _saved(node)
            described = None if given is None else _described(node.op, [*given, *grads], wanted)
            if described is not None:
                assert state.trace is not None
                known = state.trace.recordings.get(described[0])
                if known is not None and known is not NEVER:
                    found = _again(known, described[1], self.place)
                    nothing = None if node.op.is_call else ZERO
                    return [nothing if x_bar is None and want else x_bar for x_bar, want in zip(found, wanted)]
        return node.run(grads, wanted, self.first)

    def first(
        self, op: Op, primals: Sequence[Any], results: Sequence[Any], y_bars: Sequence[Any], wanted: Sequence[bool]
    ) -> list[Any]:
        """``adjoint.accumulate``, whose nodes are kept for the next rule of this kind."""
        given = (*primals, *results, *y_bars)
        described = _described(op, given, tuple(wanted)) if _is_replaying() else None
        if described is None:
            return accumulate(op, primals, results, y_bars, wanted)
        trace = state.trace
        assert trace is not None
        nodes = trace.builder.nodes
        since = len(nodes)
        found = accumulate(op, primals, results, y_bars, wanted)
        trace.recordings.setdefault(described[0], _learnt(described[1], nodes[since:], found, self.place) or NEVER)
        return found


def _is_replaying() -> bool:
    """Whether ops go straight into a trace, without a history."""
    now = state.__dict__
    return now["divert"] is State.capture and not now["grad_enabled"] and not now["inference"]


def _saved(node: OpNode) -> list[Any] | None:
    """What a node keeps, as its rule gets it; None if that needs a closer look."""
    found: list[Any] = []
    for entry, version in zip((*node.primals, *node.results), node.versions):
        kind = type(entry)
        if kind is not TensorType and kind is not tuple:
            if entry is FREED or kind is Packed or (entry._storage is not None and entry._storage.version != version):
                return None
            if entry._grad_fn is None and not entry._requires_grad and len(found) < len(node.primals):
                node.check_not_detached(entry, len(found))
        found.append(entry)
    return found


def named(op: Op) -> Any:
    """What tells an op from others that are not just the same; None if nothing does."""
    cls = type(op)
    is_whole = _is_whole.get(cls)
    if is_whole is None:
        fields = [getattr(cls, "__dataclass_fields__", {}).get(name) for name in cls.__match_args__]
        has_other = any(name not in cls.__match_args__ and not name.startswith("_") for name in vars(op))
        is_whole = not has_other and all(field is not None and field.type in _WHOLE for field in fields)
        _is_whole[cls] = is_whole
    if is_whole:
        return op
    return _told_apart(op) if is_plain(op) else None


def _told_apart(value: object) -> Any:
    """What is equal for plain parameters that are just the same: 1 is not 1.0, -0.0 is not 0.0, NaN is NaN."""
    if isinstance(value, Op):
        return type(value), *[_told_apart(getattr(value, name)) for name in value.__match_args__]
    if type(value) is tuple:
        return tuple(map(_told_apart, value))
    is_one = type(value) is TensorType or is_symbolic(value)
    return structure(value) if is_one else (type(value), repr(value))


def _described(op: Op, given: Sequence[Any], wanted: tuple[bool, ...]) -> tuple[Any, list[Tensor | None]] | None:
    """What rules that record the same nodes have in common, and the operands that they read."""
    name = named(op)
    if name is None:
        return None
    kinds: list[Any] = []
    operands: list[Tensor | None] = []
    for entry in given:
        kind = type(entry)
        if entry is None or entry is ZERO:
            kinds.append(None)
            operands.append(None)
        elif kind is TypeOnly or kind is TensorType or kind is tuple:
            kinds.append((entry.spec if kind is TypeOnly else type_of_meta(entry),))
            operands.append(None)
        else:
            kinds.append(entry._type or type_of(entry))
            operands.append(entry)
    identities = identities_of([t for t in operands if t is not None])
    if identities is None:
        return None
    if len(set(identities)) != len(identities):  # an operand that is given twice is one value
        kinds.append(tuple([identities.index(i) for i in identities]))
    return (name, wanted, masking.is_on, *kinds), operands


def identities_of(operands: Sequence[Tensor]) -> list[int] | None:
    """Per operand what its value depends on; None if the value of one is not simply its own."""
    found = []
    for t in operands:
        storage, view, array = t._storage, t._view, t._array
        if array is None:
            if storage is None:
                found.append(id(t._value))
            elif view is None:
                found.append(id(storage.array if storage.value is None else storage.value))
            elif view.value_changes == storage.changes and t._value is not None:
                found.append(id(t._value))
            else:
                return None
        elif view is not None or type(array) is ElsewhereArray:
            return None
        else:
            found.append(id(array))
    return found


class Recording(NamedTuple):
    """Nodes on numbered values: first those of the operands, then the results of each node.

    ``results`` are the numbers of what the rule returned (None stays None). ``tensors`` are the numbers of the values
    that become tensors, results and what results are views of, each with its view op and what that looks at.
    """

    steps: list[tuple[Op, tuple[int, ...], tuple[Any, ...]]]
    reads: list[int]
    tensors: list[tuple[int, Op | None, int]]
    results: list[int | None]


def _learnt(
    operands: Sequence[Tensor | None], nodes: Sequence[Node], found: Sequence[Any], here: SourceLocation
) -> Recording | None:
    """What was recorded, or None if it cannot be told from the operands and the user's line."""
    numbers: dict[Value, int] = {}
    made_by: dict[int, tuple[Op, int]] = {}
    for place, t in enumerate(operands):
        value = None if t is None else _value_read(t)
        if value is not None:
            numbers.setdefault(value, place)
    steps, count = [], len(operands)
    for node in nodes:
        places = tuple([numbers.get(v, -1) for v in node.inputs])
        if -1 in places or node.source.code is not here.code:  # a rule of the user's own has lines of its own
            return None
        steps.append((node.op, places, tuple([v.type for v in node.outputs])))
        for value in node.outputs:
            numbers[value] = count
            made_by[count] = node.op, places[0] if places else -1
            count += 1
    results: list[int | None] = []
    shown: dict[int, Any] = {}
    for t in found:
        number = None if t is None else next((k for k, operand in enumerate(operands) if operand is t), -1)
        if number == -1:
            number = numbers.get(t._value, -1)
            if number < len(operands) or type(t) is not Tensor or shown.setdefault(number, t) is not t:
                return None
        results.append(number)
    reads = [p for p in dict.fromkeys(p for _, places, _ in steps for p in places) if p < len(operands)]
    return Recording(steps, reads, _to_show(list(shown), made_by, len(operands)), results)


def _value_read(t: Tensor) -> Value | None:
    """The value of an operand; None for memory that the rule has not read."""
    assert state.trace is not None
    return value_of(t) if t._array is None else state.trace.lifted(t._array)


def _to_show(waiting: list[int], made_by: dict[int, tuple[Op, int]], first: int) -> list[tuple[int, Op | None, int]]:
    """The values that become tensors, in the order in which they were made, and of which value each is a view."""
    wanted: dict[int, tuple[int, Op | None, int]] = {}
    while waiting:
        number = waiting.pop()
        if number < first or number in wanted:
            continue
        op, base = made_by[number]
        wanted[number] = (number, op, base) if op.is_view else (number, None, -1)
        if op.is_view:
            waiting.append(base)
    return [wanted[number] for number in sorted(wanted)]


def _again(known: Recording, operands: Sequence[Tensor | None], place: SourceLocation) -> list[Any]:
    trace = state.trace
    assert trace is not None
    values: list[Any] = [None] * len(operands)
    for number in known.reads:
        t: Any = operands[number]
        values[number] = t._value if t._array is None and t._storage is None else value_of(t)
    trace.builder.repeat(known.steps, values, place)
    tensors: dict[int | None, Any] = {None: None}
    for number, view, base in known.tensors:
        made = tensors[number] = wrap_value(values[number])
        if view is not None:
            shown: Any = operands[base] if base < len(operands) else tensors[base]
            attach_view(view, shown, made)
    return [tensors[r] if r in tensors else operands[r] for r in known.results]  # type: ignore[index]


__all__ = ["NEVER", "Recording", "Rules", "identities_of", "named"]
