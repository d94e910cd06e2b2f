"""The run of a captured function: everything that follows what it does, and why it may come to nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from autojit.jit.arguments import ArgumentLeaf
from autojit.jit.line_by_line import LineByLine, Uncompiled
from autojit.jit.observer import Observer
from autojit.jit.onward import asking_outside
from autojit.jit.raised_errors import of_values
from autojit.jit.trace import Trace
from autojit.jit.traced_math import traced_math


@contextmanager
def followed(
    trace: Trace, observer: Observer, arguments: Sequence[ArgumentLeaf], leaves: Sequence[Any]
) -> Iterator[None]:
    """While the function runs.

    Raises:
        LineByLine: no step does what the function does; with what it has drawn, which the call is to be given.
        DrawnOtherwise: nor can what it draws be drawn before the step.
    """
    has_numbers = bool(trace.sizes) or any(leaf.kind == "number" for leaf in arguments)
    errors, arrays = of_values(trace, arguments, leaves), observer.arrays.followed(trace)
    try:
        with asking_outside(trace, arguments, leaves), traced_math(has_numbers), observer.observing(), errors, arrays:
            yield
        observer.check_draws()
        if trace.uncompiled:
            raise Uncompiled(trace.uncompiled)
    except LineByLine as reason:
        reason.drawn = observer.drawn
        raise
