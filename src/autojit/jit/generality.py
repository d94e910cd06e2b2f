"""Whether a capture with open sizes is general: recorded with other sizes, it must come out the same.

Sizes carry their expressions through Python's arithmetic, but C code (``range``, ``len``, ``float``) reads the hint
alone. So the function is recorded a second time with other hints; where the two records differ, something was baked in
that depends on a size, and the size cannot stay open. Its effects are held back in both, until the step has run: the
second recording shows nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from autojit.core.device_array import host_copy
from autojit.core.errors import AutojitError, DifferentiationError, ShapeError, SpecializeSize
from autojit.core.size_expressions import LEAST
from autojit.core.size_recorder import SizeGuard
from autojit.core.source import SourceLocation, is_own
from autojit.ir.graph import Value
from autojit.jit.assigned_places import Assigned, Ordered
from autojit.jit.calls import Call
from autojit.jit.guards import same
from autojit.jit.line_by_line import LineByLine
from autojit.jit.muted_prints import unheard
from autojit.jit.open_sizes import OpenSizes
from autojit.jit.outcomes import BeginsAgain, Outcome, Turned, again_with
from autojit.jit.result_places import Place
from autojit.jit.step import Capture
from autojit.jit.trace_entries import StateEntry
from autojit.jit.users_backward import foresee_backward


def general_capture(
    call: Call, record: Callable[[Call, int], Capture], open_sizes: OpenSizes, note: Callable[[str], None]
) -> Capture | Outcome:
    """A capture that holds for all values of its open sizes; ``record`` makes one, given a shift for counts' hints.

    If there is none, the reason has been noted.
    """
    try:
        capture = record(call, 0)
    except LineByLine:
        raise
    except Exception as error:  # the same without open sizes tells whether it is the user's
        trace = call.trace
        if trace is None or not (call.sizes or trace.counted) or _is_defect(error):
            open_sizes.are_counts_fixed = open_sizes.are_counts_fixed and not call.is_fixed
            for call_told in () if trace is None else trace.tell:
                call_told()
            raise
        note(f"sizes were fixed: {type(error).__name__}: {error}")
        call.is_fixed, open_sizes.are_counts_fixed = True, not call.sizes
        return again_with(call.drawn, BeginsAgain(is_fixed=True))
    trace = capture.trace
    if not trace.sizes and not trace.counted:
        foresee_backward(capture)
        return capture
    if trace.pinned:
        return open_sizes.pin(trace, note)
    if trace.counted and trace.has_failed:
        reason = "an error that the function caught may not come up for all"
        return open_sizes.give_up(trace, trace.counted, reason, note)
    guards = trace.size_guards
    # where the function asked for one value of a size in particular and got it
    pinned = next((f"{guard} at {at}" for guard, at in guards if guard.relation == "==" and guard.outcome), None)
    others = other_sizes(call.sizes, guards)
    if pinned is not None or others is None:
        note(f"sizes were fixed: {pinned or 'no others take the same way'}")
        return BeginsAgain(is_fixed=True)
    try:
        difference = _difference(capture, partial(record, call.with_sizes(others, trace.splits), 5))
    except SpecializeSize as error:  # the results cannot be differentiated with these sizes open
        return open_sizes.give_up(trace, error.symbols, str(error), note)
    if difference is not None:
        return open_sizes.give_up(trace, (), f"other sizes change {difference}", note)
    return capture


def _difference(capture: Capture, again: Callable[[], Capture]) -> str | None:
    """What is another for other sizes, with which ``again`` makes the capture.

    Raises:
        SpecializeSize: the derivative cannot be looked at.
    """
    try:
        with unheard():
            twin = again()
    except Turned as turned:
        if not isinstance(turned.outcome, BeginsAgain) or not turned.outcome.is_lost:
            raise
        return "what Python decides on"
    except Exception as error:
        if _is_defect(error):
            raise
        return f"the course of the function: {type(error).__name__}: {error}"
    return first_difference(capture, twin) or _different_derivative(capture, twin)


_DEFECTS = (AssertionError, AttributeError, IndexError, KeyError, MemoryError, NameError, RecursionError)


def _is_defect(error: Exception) -> bool:
    """Whether an error cannot be due to sizes that are open: it came up by itself in autojit's own code."""
    if not isinstance(error, _DEFECTS) or isinstance(error, AutojitError):
        return False
    innermost = error.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    return innermost is not None and is_own(innermost.tb_frame.f_code)


_CHANGES = ((1, 2, 1), (1, 1, 1), (2, 1, 3), (1, 1, -1), (1, 1, 64))


def other_sizes(sizes: Mapping[str, int], guards: Sequence[tuple[SizeGuard, SourceLocation]]) -> dict[str, int] | None:
    """Other values of every symbol under which the same capture is made, or None if there seem to be none."""
    for factor, divisor, more in _CHANGES:
        found = {name: factor * n // divisor + more + k for k, (name, n) in enumerate(sizes.items())}
        differ = all(found[name] != n and found[name] >= LEAST for name, n in sizes.items())
        if differ and all(guard.holds(found) for guard, _ in guards):
            return found
    return None


def first_difference(a: Capture, b: Capture) -> str | None:
    """Where two captures of one function differ, or None when they are the same except for the names of values."""
    if [v.type for v in a.inputs] != [v.type for v in b.inputs]:
        return "its arguments"
    known: dict[Value | None, Value] = dict(zip(a.inputs, b.inputs, strict=True))
    state, other = list(a.trace.state.values()), list(b.trace.state.values())
    if len(state) != len(other):
        return "the tensors it reads from outside"
    for entry, twin in zip(state, other, strict=True):
        if not _same_state(entry, twin):
            return f"a tensor made at {entry.source}"
        known[entry.input] = twin.input
    nodes, twins = a.trace.builder.nodes, b.trace.builder.nodes
    for place, (node, twin_node) in enumerate(zip(nodes, twins, strict=False)):
        operands = [known.get(v) for v in node.inputs]
        fits = node.op == twin_node.op and operands == list(twin_node.inputs)
        pairs = list(zip(node.outputs, twin_node.outputs, strict=True)) if fits else []
        if not fits or any(v.type != w.type for v, w in pairs):
            return _changed_course(a, b, place)
        known.update(pairs)
    if len(nodes) != len(twins):
        return _changed_course(a, b, min(len(nodes), len(twins)))
    outcomes = [(known.get(x.value), x.position) for x in a.trace.splits]
    if outcomes != [(x.value, x.position) for x in b.trace.splits]:
        return "what Python decides on"
    if [known.get(v) for v in _left(a)] != _left(b):
        return "what it leaves"
    return _different_result(a, b)


def _changed_course(a: Capture, b: Capture, place: int) -> str:
    """What to say of the first op that differs; more ops for other sizes are nearly always a loop."""
    nodes, others = a.trace.builder.nodes, b.trace.builder.nodes
    if len(nodes) == len(others):
        return f"{nodes[place].op} at {nodes[place].source}, which becomes {others[place].op}"
    source = max(nodes, others, key=len)[place].source
    return (
        f"the number of operations from {len(nodes)} to {len(others)} at {source}: Python takes a loop over an open "
        "size step by step (aj.scan and layers such as nn.LSTM keep it open)"
    )


def _different_derivative(a: Capture, b: Capture) -> str | None:
    """Where the derivatives of two captures differ that have been found to be the same."""
    if not a.is_differentiable:
        return None
    for capture in (a, b):
        foresee_backward(capture)
    ops = [[stage.op for stage in capture.as_op().stages] for capture in (a, b)]
    if len(ops[0]) != len(ops[1]):
        return "the derivative"
    pairs = [(x, y, x.wanted()) for x, y in zip(*ops, strict=True) if x.wanted()]
    try:
        ends = [(x.adjoint_call(wanted).graph.outputs, y.adjoint_call(wanted).graph.outputs) for x, y, wanted in pairs]
    except (NotImplementedError, DifferentiationError):
        return None  # said to whoever asks for the derivative, if somebody does
    except ShapeError:
        return "the derivative: it fails for some sizes"  # as each size says by itself
    except Exception as error:
        if isinstance(error, AutojitError) or _is_defect(error):
            raise
        return None  # of a backward of the user's: likewise
    known: dict[Value | None, Value] = dict(zip(a.trace.builder.inputs, b.trace.builder.inputs, strict=True))
    for node, twin in zip(a.trace.builder.nodes, b.trace.builder.nodes, strict=False):
        if node.op != twin.op or [known.get(v) for v in node.inputs] != list(twin.inputs):
            return f"the derivative: {node.op}, which becomes {twin.op}"
        known.update(zip(node.outputs, twin.outputs, strict=True))
    same_ends = all([known.get(v) for v in first] == list(second) for first, second in ends)
    return None if same_ends else "the derivative"


def _same_state(a: StateEntry, b: StateEntry) -> bool:
    if a.array is b.array:
        return True
    if a.input.type != b.input.type or a.is_modified:
        return False
    return bool(np.array_equal(host_copy(a.array), host_copy(b.array), equal_nan=a.array.dtype.kind in "fc"))


def _left(capture: Capture) -> list[Value | None]:
    effects = capture.effects
    whole: tuple[Any, ...] = (*capture.trace.state.values(), *effects.gradients.all, *effects.writes)
    parts = [v for made in effects.gradients.in_parts for v in made.values]
    return [*capture.results.values, *(entry.value for entry in whole), *parts]


def _different_result(a: Capture, b: Capture) -> str | None:
    if a.output_tree != b.output_tree:
        return "the structure of its results"
    if a.results.orders != b.results.orders:
        return "how its results are laid out in memory"
    for x, y in zip(a.results.places, b.results.places, strict=True):
        if _shown(x) != _shown(y) or not _is_as(x.what, y.what):
            return f"a result, which becomes {y.what!r}"
    if a.results.views != b.results.views:
        return "which views its results are taken of"
    return None


def _is_as(a: Any, b: Any) -> bool:
    """Whether two constants of results are one, or calls after the step that do the same."""
    if a is b or type(a) is not type(b):
        return a is b
    if isinstance(a, Assigned | Ordered):
        return a.is_as(b)
    if type(a) is partial:
        return a.func is b.func and len(a.args) == len(b.args) and all(map(_is_as, a.args, b.args))
    return same(a, b)


def _shown(place: Place) -> tuple[Any, ...]:
    history = place.requires_grad, place.spent is None
    return place.kind, place.index, place.chain, history, place.aliases, place.number
