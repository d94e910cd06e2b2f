"""Ints of a captured step are exact, as Python's are, though a step has 64 bits for each.

Where the ranges of its operands do not tell that a result fits, the step asks when it runs (`ops.requirements.Require`,
kind "wide"), and the call runs line by line if it does not. A capture asks as soon as Python gets to see digits.
Arithmetic of int64 tensors wraps around, as in eager mode.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from autojit.core.dtypes import float64
from autojit.core.errors import WideIntegerError
from autojit.dispatch.dispatch import apply, value_of
from autojit.jit.line_by_line import WideIntegers
from autojit.jit.number_ranges import INT64, Range, fits, within_64_bits
from autojit.ops.requirements import Require
from autojit.runtime.entry_spec import INT64_LEAST, INT64_MOST, Refusal
from autojit.tensor.state import grad_mode
from autojit.tensor.tensor import Tensor

if TYPE_CHECKING:
    from autojit.ir.graph import Value
    from autojit.jit.line_by_line import LineByLine
    from autojit.jit.trace import Trace
    from autojit.runtime.executable import Executable

_EXACT_IN_FLOATS = 2**53
_PRODUCT_LIMIT = 2.0**63 * (1 - 2.0**-50)  # a product of rounded factors below it is one of exact factors below 2**63


class TraceExact:
    """The part of a trace that knows under which conditions its ints are exact."""

    runs_often: bool
    outer: Any  # of a body: the capture that it is in

    if TYPE_CHECKING:

        def evaluate(self, value: Value) -> Any: ...
        def give_up(self, reason: LineByLine) -> None: ...

    def __init__(self) -> None:
        self.exact: list[Value] = []
        self.asks_exact = False  # also in bodies of loops and branches
        self._looked_at = 0  # how many of them have been evaluated for the call at hand

    def require_exact(self, condition: Tensor) -> None:
        """The step holds only where this is true."""
        apply(Require("an int needs more than 64 bits", "wide"), condition)
        self.exact.append(value_of(condition))
        trace: Any = self
        while trace is not None:
            trace.asks_exact = True
            trace = trace.outer if trace.runs_often else None

    def look_at_exact(self) -> None:
        """Python is about to see a value of the call at hand, which may come of ints that do not fit."""
        while not self.runs_often and self._looked_at < len(self.exact):
            condition = self.exact[self._looked_at]
            self._looked_at += 1
            if not self.evaluate(condition).all():
                self.give_up(WideIntegers())


def raise_or_refuse(executable: Executable) -> Refusal:
    """A native call has failed: where ints were too large for the step it goes on as one that the step refuses."""
    with suppress(WideIntegerError):
        executable.raise_errors()
    return Refusal.SLOW


def is_wide(x: object) -> bool:
    """Whether a plain number is an int of more than 64 bits."""
    return type(x) is int and not INT64_LEAST <= x <= INT64_MOST


def exact(
    trace: Trace, name: str, x: Tensor | int, y: Tensor | int, found: Tensor, spans: tuple[Range, Range], span: Range
) -> Range:
    """The range of ``found``, ``x`` + - * ``y`` by the operator's name, which the step requires to be exact.

    ``x`` and ``y`` are int64 tensors, one of them may be a plain int; ``span`` is what their ``spans`` tell.
    """
    if not fits(span):
        with grad_mode(False):
            if not isinstance(y, Tensor):
                assert isinstance(x, Tensor)
                _require_between(trace, x, *_bounds(name, y, False), spans[0])
            elif not isinstance(x, Tensor):
                _require_between(trace, y, *_bounds(name, x, True), spans[1])
            elif name == "mul":
                trace.require_exact((x.to(float64) * y.to(float64)).abs() <= _PRODUCT_LIMIT)
            else:
                other = found if name == "add" else x  # the result's sign is other than those of both, or than x's
                trace.require_exact(x.bitwise_xor(found).bitwise_and(y.bitwise_xor(other)) >= 0)
    return within_64_bits(span)


def require_negative_exists(trace: Trace, x: Tensor, span: Range) -> None:
    """The step requires ``-x`` to be exact."""
    if span.low <= INT64.low:
        with grad_mode(False):
            trace.require_exact(x > INT64_LEAST)


def require_exact_in_floats(trace: Trace, x: Tensor, span: Range) -> None:
    """The step requires an int to be the same number as a float."""
    if span.magnitude().high > _EXACT_IN_FLOATS:
        with grad_mode(False):
            trace.require_exact((x <= _EXACT_IN_FLOATS) & (x >= -_EXACT_IN_FLOATS))


def require_whole(trace: Trace, x: Tensor) -> None:
    """The step requires the ints next to a float to have 64 bits; Python has wider ones, and none of NaN."""
    with grad_mode(False):
        trace.require_exact((x > INT64.low) & (x < INT64.high))


def _bounds(name: str, c: int, swapped: bool) -> tuple[int, int]:
    """Between which ints ``x`` must be so that ``x op c`` has 64 bits; ``swapped``: ``c op x``."""
    least, most = INT64_LEAST, INT64_MOST
    if name == "mul":
        if c == 0:
            return least, most
        ends = (least, most) if c > 0 else (most, least)
        return -(-ends[0] // c), ends[1] // c
    if name == "sub" and swapped:
        return c - most, c - least
    return (least - c, most - c) if name == "add" else (least + c, most + c)


def _require_between(trace: Trace, x: Tensor, low: int, high: int, span: Range) -> None:
    if span.low < low and low > INT64_LEAST:
        trace.require_exact(x >= low)
    if span.high > high and high < INT64_MOST:
        trace.require_exact(x <= high)


_TO_INTS: dict[str, Callable[[float], int]] = {"lt": math.ceil, "ge": math.ceil, "le": math.floor, "gt": math.floor}


def as_compared(function: Callable[[Any, Any], Any], threshold: float) -> int | None:
    """The int that ints can be compared with instead of a finite float; None where none is equal to it."""
    change = _TO_INTS.get(function.__name__)
    if change is not None:
        return change(threshold)
    return int(threshold) if threshold == int(threshold) else None
