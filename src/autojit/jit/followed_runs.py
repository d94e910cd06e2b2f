"""The run of a captured function: everything that follows what it does, and why it may be discarded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from autojit.jit.arguments import ArgumentLeaf
from autojit.jit.calls import Call
from autojit.jit.line_by_line import GivenUp, LineByLine, Uncompiled
from autojit.jit.observer import Observer
from autojit.jit.outcomes import BeginsAgain, Turned, again_with
from autojit.jit.outside_arrays import ArraysMet
from autojit.jit.outside_gradients import asking_outside
from autojit.jit.raised_errors import of_values
from autojit.jit.repeated_work import check_digits, check_repeated
from autojit.jit.trace import Trace
from autojit.jit.traced_math import traced_math


@contextmanager
def followed(
    trace: Trace, observer: Observer, arguments: Sequence[ArgumentLeaf], leaves: Sequence[Any]
) -> Iterator[None]:
    """While the function runs.

    Raises:
        LineByLine: no step does what the function does.
        Turned: nor can what it draws be drawn before the step.
    """
    trace.arrays_met = ArraysMet(observer, leaves)
    has_numbers = bool(trace.sizes) or any(leaf.kind == "number" for leaf in arguments)
    errors, arrays = of_values(trace, arguments, leaves), observer.arrays.followed(trace)
    outside, taken = asking_outside(trace, arguments, leaves), _arrays_looked_at(trace)
    with outside, traced_math(has_numbers), observer.observing(), errors, arrays, taken:
        yield
    observer.check_draws()
    trace.check_taken()
    if trace.uncompiled:
        raise Uncompiled(trace.uncompiled)
    check_digits(trace, [leaf.value for leaf in arguments if leaf.value is not None])
    check_repeated(trace)


@contextmanager
def with_drawn(observer: Observer, call: Call) -> Iterator[None]:
    """A capture that is given up, also one that cannot put back what the function has left, says what it has drawn:
    another attempt, and a call that runs line by line, are to be given it. It is drawn once.
    """
    call.drawn = observer.drawn
    try:
        yield
    except Turned as turned:
        if not isinstance(turned.outcome, BeginsAgain):
            raise
        raise Turned(again_with(observer.drawn, turned.outcome)) from None
    except GivenUp as found:
        found.reason.drawn = observer.drawn
        raise found.reason from None
    except LineByLine as reason:
        reason.drawn = observer.drawn
        raise


@contextmanager
def _arrays_looked_at(trace: Trace) -> Iterator[None]:
    """While the function runs: what it raises when arrays have not shown what eager mode shows is not to be trusted."""
    try:
        yield
    except LineByLine:
        raise
    except Exception:
        trace.look_at_taken()
        if trace.taken and trace.uncompiled:
            raise Uncompiled(trace.uncompiled) from None
        raise
