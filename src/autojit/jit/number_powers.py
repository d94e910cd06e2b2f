"""Powers of numbers of a captured step, and those of plain numbers to them: ``1 - beta ** step``."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from autojit.core.dtypes import float64, int64
from autojit.dispatch.requirements import require_bare
from autojit.jit.number_ranges import Range, fits, power
from autojit.jit.traced_number import TracedNumber, span_of
from autojit.tensor.state import grad_mode
from autojit.tensor.tensor import Tensor

_POWER = "__pow__"
_power_by_digits: Callable[[Any, Any], Any] = getattr(TracedNumber, _POWER)


def _power(self: TracedNumber, exponent: object, modulus: object = None) -> Any:
    """``self ** exponent`` where its type does not depend on the digits: a float to a whole power, or not negative."""
    if modulus is not None:
        return pow(self.concrete(), exponent, modulus)
    is_whole = type(exponent) is int and exponent >= 0
    if self.kind is int and isinstance(exponent, int) and is_whole:
        span = power(self.span.magnitude(), span_of(exponent))
        if fits(span):
            return _raised(self, exponent, int)
        if exponent in (2, 3):
            square = operator.mul(self, self)
            return square if exponent == 2 else square * self
    elif isinstance(exponent, int | float) and (
        (is_whole and self.kind is float) or self.span.low > 0 or (self.span.low == 0 and exponent > 0) or self > 0
    ):
        return _raised(self, exponent, float)
    return _power_by_digits(self, exponent)


def _raised(self: TracedNumber, exponent: float, kind: type) -> TracedNumber:
    self._check()
    with grad_mode(False):
        found = self.tensor.to(int64 if kind is int else float64) ** exponent
    span = power(self.span, span_of(exponent))
    if kind is float:
        _require_no_overflow(found, self.tensor, span)
    return TracedNumber(self.trace, found, kind, span)


def _require_no_overflow(found: Tensor, number: Tensor, span: Range) -> None:
    """Python raises where a power of finite numbers is none: the step does, at every call."""
    if span.is_finite:
        return
    with grad_mode(False):
        require_bare(lambda: found.isinf().logical_not() | number.isfinite().logical_not(), _TOO_LARGE, "overflow")


_TOO_LARGE = "(34, 'Numerical result out of range')"


setattr(TracedNumber, _POWER, _power)


def _power_of(self: TracedNumber, base: Any, modulus: Any = None) -> Any:
    """``base ** self``, as in ``1 - beta ** step``: a float whatever the digits if the base is a positive one."""
    if modulus is not None:
        return pow(base, self.concrete(), modulus)
    if not isinstance(base, float) or base <= 0.0:
        return self._behind(base, operator.pow)
    self._check()
    with grad_mode(False):
        found = float(base) ** self.tensor.to(float64)
    span = power(span_of(base), self.span)
    if base < math.inf:
        _require_no_overflow(found, self.tensor, span)
    return TracedNumber(self.trace, found, float, span)


setattr(TracedNumber, "__rpow__", _power_of)  # noqa: B010  # as the operators above
