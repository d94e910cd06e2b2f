"""Replaying: what a function recorded into a trace is recorded again, on other operands of the same kinds.

A deep model repeats itself. A derivative rule says the same about equal ops on operands of equal types, so its nodes are
kept for the capture, and only linked to other values the next time. That holds for functions that ask of their operands
nothing but types, compute with ops alone, and have no history: the rules of ops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from autojit.core.sizes import SymbolicSize
from autojit.core.source import SourceLocation
from autojit.ir.graph import Node, Value
from autojit.ir.op import Op
from autojit.ir.result_types import holds_plain
from autojit.tensor.dispatch import attach_view, value_of
from autojit.tensor.saved import TypeOnly
from autojit.tensor.state import State, state
from autojit.tensor.storage import ElsewhereArray
from autojit.tensor.tensor import Tensor, wrap_value
from autojit.transforms.adjoint import accumulate

NEVER: Any = object()  # in the place of a recording: what was recorded depends on more than the operands' kinds


class Recording(NamedTuple):
    """Nodes on numbered values: first those of the operands, then the results of each node.

    ``results`` are the numbers of what the function returned (None stays None). ``tensors`` are the numbers of the
    values, and the view ops that gave them, that become tensors: results, and what results are views of.
    """

    steps: list[tuple[Op, tuple[int, ...], tuple[Any, ...]]]
    reads: list[int]
    tensors: list[tuple[int, Op | None, int]]
    results: list[int | None]


class Rules:
    """``adjoint.accumulate`` for a capture's backward pass: a derivative rule is run once per kinds of operands.

    ``place`` is the user's line that started the pass.
    """

    def __init__(self, place: SourceLocation) -> None:
        self.place = place

    def __call__(
        self, op: Op, primals: Sequence[Any], results: Sequence[Any], y_bars: Sequence[Any], wanted: Sequence[bool]
    ) -> list[Any]:
        now = state.__dict__
        name = None if now["divert"] is not State.capture or now["grad_enabled"] else named(op)
        if name is None:
            return accumulate(op, primals, results, y_bars, wanted)
        given = (*primals, *results, *y_bars)
        operands = [None if type(t) is TypeOnly else t for t in given]
        kinds = tuple([None if t is None else t.spec for t in given])
        key = name, wanted, kinds, tuple([t is None for t in operands])
        return replayed(key, operands, lambda: accumulate(op, primals, results, y_bars, wanted), self.place)


def replayed(
    key: Any, operands: Sequence[Tensor | None], compute: Callable[[], list[Any]], place: SourceLocation
) -> list[Any]:
    """``compute()``, a list of tensors and None, recorded by hand if it was recorded before under ``key``.

    ``key`` names the function and the types of its operands; None stands for one of which only the type matters.
    """
    trace = state.trace
    assert trace is not None
    identities = identities_of(operands)
    if identities is None:
        return compute()
    if len(set(identities)) != len(operands):  # an operand that is given twice is one value
        key = key, tuple([identities.index(i) for i in identities])
    known = trace.recordings.get(key)
    if known is None:
        nodes = trace.builder.nodes
        since = len(nodes)
        found = compute()
        trace.recordings[key] = _learnt(operands, nodes[since:], found) or NEVER
        return found
    return compute() if known is NEVER else _again(known, operands, place)


def named(op: Op) -> Any:
    """What tells an op from others that are not just the same: 0.0 from -0.0, 1 from 1.0; None if nothing does."""
    known = op.__dict__.get("_named")
    if known is None:
        parameters = [getattr(op, name) for name in op.__match_args__]
        known = (type(op), repr(parameters)) if holds_plain(op, SymbolicSize) else NEVER
        object.__setattr__(op, "_named", known)
    return None if known is NEVER else known


def identities_of(operands: Sequence[Tensor | None]) -> list[int] | None:
    """Per operand what its value depends on; None if the value of one is not simply its own."""
    found = []
    for place, t in enumerate(operands):
        if t is None:
            found.append(place)
            continue
        storage, view, array = t._storage, t._view, t._array
        if array is None:
            if storage is None:
                found.append(id(t._value))
            elif view is None:
                found.append(id(storage.array if storage.value is None else storage.value))
            elif view.value_version == storage.version and t._value is not None:
                found.append(id(t._value))
            else:
                return None
        elif view is not None or type(array) is ElsewhereArray:
            return None
        else:
            found.append(id(array))
    return found


def _learnt(operands: Sequence[Tensor | None], nodes: Sequence[Node], found: Sequence[Any]) -> Recording | None:
    """What was recorded, or None if it cannot be told from the operands."""
    numbers: dict[Value, int] = {}
    made_by: dict[int, tuple[Op, int]] = {}
    for place, t in enumerate(operands):
        value = None if t is None else _value_read(t)
        if value is not None:
            numbers.setdefault(value, place)
    steps, count = [], len(operands)
    for node in nodes:
        places = tuple([numbers.get(v, -1) for v in node.inputs])
        if -1 in places:
            return None
        steps.append((node.op, places, tuple([v.type for v in node.outputs])))
        for value in node.outputs:
            numbers[value] = count
            made_by[count] = node.op, places[0] if places else -1
            count += 1
    results: list[int | None] = []
    shown: dict[int, Any] = {}
    for t in found:
        if t is None:
            results.append(None)
            continue
        number = next((k for k, operand in enumerate(operands) if operand is t), -1)
        if number < 0:
            number = numbers.get(t._value, -1)
            if number < len(operands) or type(t) is not Tensor or shown.setdefault(number, t) is not t:
                return None
        results.append(number)
    reads = sorted({p for _, places, _ in steps for p in places if p < len(operands)})
    return Recording(steps, reads, _to_show(shown, made_by, len(operands)), results)


def _value_read(t: Tensor) -> Value | None:
    """The value of an operand; None for memory that the function has not read."""
    assert state.trace is not None
    if t._array is not None:
        return state.trace.lifted(t._array)  # type: ignore[no-any-return]
    return value_of(t)


def _to_show(shown: Sequence[int] | dict[int, Any], made_by: dict[int, tuple[Op, int]], first: int) -> Any:
    """The values that become tensors, in the order in which they were made, and of which value each is a view."""
    wanted: dict[int, tuple[int, Op | None, int]] = {}
    waiting = list(shown)
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
    tensors: dict[int | None, Any] = {}
    for number, view, base in known.tensors:
        made = tensors[number] = wrap_value(values[number])
        if view is not None:
            shown: Any = operands[base] if base < len(operands) else tensors[base]
            attach_view(view, shown, made)
    return [tensors[r] if r in tensors else None if r is None else operands[r] for r in known.results]
