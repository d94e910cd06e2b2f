"""What is known about a number of a captured step before it runs: the range that it lies in.

A range answers what Python would ask the digits: whether a divisor can be zero, whether a square root has a real
result. So ``math.sqrt(1 - beta**step)`` needs no look at ``step`` once that is known to be positive. Ranges are closed
and hold for results that are rounded, since rounding is monotone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple


class Range(NamedTuple):
    """The smallest and the greatest value that a number can have."""

    low: float = -math.inf
    high: float = math.inf

    @property
    def is_finite(self) -> bool:
        """Whether the number is neither infinite nor NaN."""
        return self.low > -math.inf and self.high < math.inf

    def image(self, function: Callable[[float], float]) -> Range:
        """The range of an increasing function of the number that is defined on the whole range."""
        return Range(_or(function, self.low, self.low), _or(function, self.high, self.high))


ANY = Range()
INT64 = Range(-float(2**63), float(2**63))  # of whole numbers, which a step keeps in 64 bits


def _or(function: Callable[[float], float], x: float, otherwise: float) -> float:
    try:
        return function(x)
    except (ValueError, OverflowError, ZeroDivisionError):
        return math.copysign(math.inf, otherwise)


def _around(values: tuple[float, ...]) -> Range:
    return ANY if any(v != v for v in values) else Range(min(values), max(values))


def combined(name: str, a: Range, b: Range) -> Range:
    """The range of ``a + b``, ``a - b``, ``a * b`` or ``a / b``, by the operator's name in ``operator``."""
    if name == "add":
        return _around((a.low + b.low, a.high + b.high))
    if name == "sub":
        return _around((a.low - b.high, a.high - b.low))
    if name == "mul":
        return _around((a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high))
    if name == "truediv" and b.low > 0:
        return _around((a.low / b.low, a.low / b.high, a.high / b.low, a.high / b.high))
    return ANY


def power(base: Range, exponent: Range) -> Range:
    """The range of ``base ** exponent`` for a positive base, or a base of any sign and a fixed even exponent."""
    if base.low < 0:
        is_even = exponent.low == exponent.high and exponent.low % 2 == 0 and exponent.low >= 0
        return Range(0.0, math.inf) if is_even else ANY
    if base.low == 0 and exponent.low < 0:
        return Range(0.0, math.inf)
    corners = [(x, y) for x in base for y in exponent]
    return _around(tuple(_power(x, y) for x, y in corners))


def _power(x: float, y: float) -> float:
    try:
        return float(x**y)
    except OverflowError:
        return math.inf
