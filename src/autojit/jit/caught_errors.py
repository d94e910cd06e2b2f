"""Errors that a captured function catches itself: ``try: loss = cross_entropy(x, y)``, ``except IndexError: ...``.

An op of a compiled step refuses its operands' values while the step runs, when the ``try`` around it has long ended. So
where code of the user's would catch the error, the step asks beforehand whether the op refuses, which splits it as an
``if`` does, and the error is raised during the capture, inside of the ``try``. Where that code may look at the error,
the step splits on the error's text as well.

`handlers.py` knows which code catches; this module what an op is asked.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit import ops
from autojit.core.errors import TraceError
from autojit.core.source import SourceLocation, is_own, is_passed
from autojit.ir.graph import Value
from autojit.ir.op import Op, bind
from autojit.jit.handlers import catches
from autojit.jit.read_hooks import active
from autojit.jit.stepped_bodies import run_turn_by_turn
from autojit.ops.counted_positions import Extent
from autojit.ops.elementwise_rounding import Quotient
from autojit.ops.requirements import Refusal, Require, Witness

if TYPE_CHECKING:
    from autojit.ir.builder import Tracer
    from autojit.jit.trace import Trace

_CAPTURE = frozenset({"JitFunction._trace"})  # the frame below which nothing is the captured function's
_BODY = frozenset({"Body.call", "CapturedCall._recorded_adjoint"})  # the same of a body of a loop or branch


def may_raise(op: Op, values: Sequence[Value]) -> bool:
    """Whether an op may refuse the elements of its operands."""
    if type(op) is Require and op.kind == "wide":
        return False  # no error of the function's
    return op.looks_up or type(op) is Extent or op.may_refuse(*[v.type for v in values])


def raise_where_caught(trace: Trace, op: Op, values: Sequence[Value], place: SourceLocation) -> None:
    """The op's error, if it refuses its operands and code around it catches errors; otherwise nothing.

    Raises:
        the error of eager mode; TraceError in a body of a loop or branch, where Python cannot decide.
    """
    sees_error = _catcher(_BODY if trace.runs_often else _CAPTURE)
    if sees_error is None:
        return
    result = op.result_type(*[v.type for v in values])  # operands that do not fit are another error
    if isinstance(op, Quotient) and 0 in result.shape:
        return
    if trace.runs_often:
        _refuse_in_body(trace, op, place)
    source, trace.builder.source = trace.builder.source, place
    try:
        if trace.concretize(_holds(trace, op, values)):
            return
        if sees_error:
            trace.concretize(_refusal(trace, op, values).value)
    finally:
        trace.builder.source = source
    with np.errstate(all="ignore"):
        trace.concrete_op(op).eager(*[trace.evaluate(v) for v in values])


def _catcher(ends: frozenset[str]) -> bool | None:
    """Whether code between here and one of ``ends`` that catches errors may look at them; None: no code does."""
    found: bool | None = None
    managers = {} if active.observer is None else active.observer.managers
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if code.co_qualname in ends and is_own(code):
            return found
        if not is_passed(code):
            sees_error = catches(frame, managers)
            if sees_error is not None:
                found = sees_error or bool(found)
        frame = frame.f_back
    return None  # a finished capture goes on: its derivative is recorded


def _refuse_in_body(trace: Trace, op: Op, place: SourceLocation) -> None:
    error = TraceError(
        f"{trace.name}: the body catches errors of {op.shown_name}, which are known only when the compiled body runs",
        {"at": place},
        f"put the try around the call of {trace.name}, or check the values with aj.where",
    )
    run_turn_by_turn(trace, f"catches errors of {op.shown_name}", error)


def _holds(trace: Trace, op: Op, values: Sequence[Value]) -> Value:
    """Whether the op does not refuse its operands: computed natively where a condition on elements says it."""
    given = [trace.builder.tracer(v) for v in values]
    types = [v.type for v in values]
    if isinstance(op, Require | Witness):
        found = ops.all(given[0])
    elif type(op) is Extent:
        found = ops.ge(given[0], given[0]._literal(0, types[0]))
    elif isinstance(op, Quotient):
        found = ops.all(ops.ne(given[1], given[1]._literal(0, types[1])))
    elif op.looks_up and not op.may_refuse(*types):
        inside = [_is_inside(given[k], extent) for k, _, extent in op.look_ups(*types)]
        found = inside[0]
        for other in inside[1:]:
            found = ops.logical_and(found, other)
    else:
        refusal = _refusal(trace, op, values)
        found = ops.eq(refusal, refusal._literal(0, refusal.spec))
    value: Value = found.value
    return value


def _is_inside(index: Tracer, extent: int) -> Any:
    end = index._literal(extent, index.spec)
    return ops.all(ops.logical_and(ops.lt(index, end), ops.ge(index, ops.neg(end))))


def _refusal(trace: Trace, op: Op, values: Sequence[Value]) -> Any:
    return bind(Refusal(op), *[trace.builder.tracer(v) for v in values])
