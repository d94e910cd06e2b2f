"""What is known about a number of a captured step before it runs: the range that it is in.

A range answers what Python would ask the digits: whether a divisor can be zero, whether a square root has a real
result. So ``math.sqrt(1 - beta**step)`` needs no look at ``step`` once that is known to be positive. Ranges are closed
and hold for results that are rounded, since rounding is monotone.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Range(NamedTuple):
    """The smallest and the greatest value that a number can have, and whether it can be NaN besides."""

    low: float = -math.inf
    high: float = math.inf
    has_nan: bool = False

    @property
    def is_finite(self) -> bool:
        """Whether the number is neither infinite nor NaN."""
        return self.low > -math.inf and self.high < math.inf

    def image(self, function: Callable[[float], float]) -> Range:
        """The range of an increasing function of the number that is defined on the whole range."""
        return Range(_or(function, self.low, self.low), _or(function, self.high, self.high), self.has_nan)

    def magnitude(self) -> Range:
        """The range of the number's absolute value."""
        least = 0.0 if self.low <= 0 <= self.high else min(abs(self.low), abs(self.high))
        return Range(least, max(abs(self.low), abs(self.high)), self.has_nan)

    def negative(self) -> Range:
        """The range of the number with the other sign."""
        return Range(-self.high, -self.low, self.has_nan)

    def complement(self) -> Range:
        """The range of ``~number``."""
        return Range(-self.high - 1, -self.low - 1, self.has_nan)


ANY = Range(has_nan=True)
POSITIVE = Range(5e-324, sys.float_info.max)  # and finite
INT64 = Range(-float(2**63), float(2**63))  # of whole numbers, which a step keeps in 64 bits
SMALL = Range(-float(2**31), float(2**31))  # the product of two is no wider than 64 bits


def _or(function: Callable[[float], float], x: float, otherwise: float) -> float:
    try:
        return function(x)
    except (ValueError, OverflowError, ZeroDivisionError):
        return math.copysign(math.inf, otherwise)


def compared(name: str, a: Range, b: Range) -> bool | None:
    """The outcome of a comparison, by its name in ``operator``, if the ranges tell."""
    return None if a.has_nan or b.has_nan else _compared(name, _rounded(a), _rounded(b))


def _compared(name: str, a: Range, b: Range) -> bool | None:
    if name in ("gt", "ge"):
        return _compared({"gt": "lt", "ge": "le"}[name], b, a)
    if name in ("eq", "ne"):
        if a.high < b.low or b.high < a.low:
            return name == "ne"
        return name == "eq" if a.low == a.high == b.low == b.high else None
    is_less, is_more = (a.high < b.low, a.low >= b.high) if name == "lt" else (a.high <= b.low, a.low > b.high)
    return is_less if is_less or is_more else None


def range_of_dtype(dtype: np.dtype[Any] | str | type) -> Range:
    """The range of the whole numbers of a dtype of NumPy's."""
    info = np.iinfo(dtype)
    return Range(float(info.min), float(info.max))


def _rounded(r: Range) -> Range:
    """A range that holds all whole numbers whose nearest floats are in this one."""
    low = r.low - abs(r.low) * _EPSILON if _EXACT < abs(r.low) < math.inf else r.low
    high = r.high + abs(r.high) * _EPSILON if _EXACT < abs(r.high) < math.inf else r.high
    return Range(low, high)


_EXACT = 2.0**53
_EPSILON = 2.0**-50
_ROUNDED = 2.0**12  # more than what the ends of a range of such numbers are rounded by


def fits(r: Range) -> bool:
    """Whether whole numbers in a range certainly have 64 bits."""
    return INT64.low + _ROUNDED <= r.low and r.high <= INT64.high - _ROUNDED


def within_64_bits(r: Range) -> Range:
    """What is known of whole numbers in a range that have 64 bits."""
    return INT64 if r.has_nan else Range(max(r.low, INT64.low), min(r.high, INT64.high))


def may_wrap(name: str, a: Range, b: Range) -> bool:
    """Whether ``a + b``, ``a - b`` or ``a * b`` of whole numbers, both of which are known to take fewer, may take
    more than 64 bits.
    """
    known = all(INT64.low < x.low and x.high < INT64.high for x in (a, b))
    if not known or name not in ("add", "sub", "mul"):
        return False
    return not fits(combined(name, a, b))


def combined(name: str, a: Range, b: Range) -> Range:
    """The range of ``a + b``, ``a - b``, ``a * b`` or ``a / b``, by the operator's name in ``operator``."""
    has_nan = a.has_nan or b.has_nan or not (a.is_finite and b.is_finite)  # inf - inf, 0 * inf
    if name == "add":
        return _around((a.low + b.low, a.high + b.high), has_nan)
    if name == "sub":
        return _around((a.low - b.high, a.high - b.low), has_nan)
    if name == "mul":
        return _around((a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high), has_nan)
    if name == "truediv" and b.low > 0:
        return _around((a.low / b.low, a.low / b.high, a.high / b.low, a.high / b.high), has_nan)
    return ANY


def power(base: Range, exponent: Range) -> Range:
    """The range of ``base ** exponent`` for a positive base, or a base of any sign and a fixed even exponent."""
    has_nan = base.has_nan or exponent.has_nan  # no power of such bases is NaN, not even of infinite numbers
    if base.low < 0:
        is_even = exponent.low == exponent.high and exponent.low % 2 == 0 and exponent.low >= 0
        return Range(0.0, math.inf, has_nan) if is_even else ANY
    if base.low == 0 and exponent.low < 0:
        return Range(0.0, math.inf, has_nan)
    return _around(tuple([_power(x, y) for x in base[:2] for y in exponent[:2]]), has_nan)


def _around(values: tuple[float, ...], has_nan: bool) -> Range:
    return ANY if any(v != v for v in values) else Range(min(values), max(values), has_nan)


def _power(x: float, y: float) -> float:
    try:
        return float(x**y)
    except OverflowError:
        return math.inf
