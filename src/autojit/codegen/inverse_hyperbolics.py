"""asinh, acosh and atanh: logarithms, in float64.

float64 keeps the argument of the logarithm in two parts, because near 1 the result is what the sum's rounding loses.
float32 operands are widened and leave enough bits for the plain formulas; below NEAR_ZERO two terms of the series do.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, log, nan

from autojit.codegen.float_format import quick_two_sum, rough_inverse, two_product, two_sum
from autojit.codegen.instructions import InstructionEmitter
from autojit.codegen.logarithms import log_of_sum, log_short
from autojit.codegen.scalar import Scalar
from autojit.core.dtypes import float32, float64

NEAR_ZERO = 2.0**-8  # where the third term of the series is below 2^-32
HUGE = 2.0**500  # beyond, x^2 could overflow and sqrt(x^2 +- 1) is x


def asinh(emit: InstructionEmitter, x: Scalar) -> Scalar:
    """log(a + sqrt(a^2 + 1)) with the sign of x."""
    if x.dtype is float32:
        return _narrow(emit, x, lambda a: log_short(emit, _with_root(emit, a, 1.0)), -1.0 / 6.0)
    a = emit.abs(x)
    grown = _log_with_root(emit, a, 1.0)
    result = emit.select(emit.lt(a, 2.0**-27), a, emit.select(emit.lt(a, inf), grown, a))
    return emit.copysign(result, x)


def _with_root(emit: InstructionEmitter, a: Scalar, offset: float) -> Scalar:
    return emit.add(a, emit.sqrt(emit.fma(a, a, offset)))


def _narrow(emit: InstructionEmitter, x: Scalar, far: Callable[[Scalar], Scalar], third: float) -> Scalar:
    """An odd function of float32 in float64: ``far`` of |x|, or |x| + third |x|^3 near zero."""
    a = emit.cast(emit.abs(x), float64)
    near = emit.fma(emit.mul(emit.mul(a, a), a), third, a)
    result = emit.cast(emit.select(emit.lt(a, NEAR_ZERO), near, far(a)), float32)
    return emit.copysign(emit.select(emit.lt(emit.abs(x), inf), result, emit.abs(x)), x)


def acosh(emit: InstructionEmitter, x: Scalar) -> Scalar:
    """log(x + sqrt(x^2 - 1)); NaN below 1."""
    if x.dtype is float32:
        grown = emit.cast(log_short(emit, _with_root(emit, emit.cast(x, float64), -1.0)), float32)
    else:
        grown = _log_with_root(emit, x, -1.0)
    result = emit.select(emit.lt(x, inf), grown, x)
    result = emit.select(emit.eq(x, 1.0), emit.zero(x), result)
    return emit.select(emit.lt(x, 1.0), emit.constant(nan, x.dtype), result)


def _log_with_root(emit: InstructionEmitter, a: Scalar, offset: float) -> Scalar:
    """log(a + sqrt(a^2 + offset)) for finite a >= 0; beyond HUGE as log(a) + log(2)."""
    huge = emit.ge(a, HUGE)
    limited = emit.minimum(a, HUGE)
    square, square_error = two_product(emit, limited, limited)
    under, under_error = two_sum(emit, square, emit.constant(offset, a.dtype))
    root = emit.sqrt(under)
    residual = emit.add(emit.fma(emit.neg(root), root, under), emit.add(under_error, square_error))
    root_error = emit.div(residual, emit.add(root, root))
    total, error = two_sum(emit, root, limited)
    high, low = quick_two_sum(emit, total, emit.add(error, root_error))
    result = log_of_sum(emit, emit.select(huge, a, high), emit.select(huge, emit.zero(a), low))
    return emit.add(result, emit.select(huge, emit.constant(log(2.0), a.dtype), emit.zero(a)))


def atanh(emit: InstructionEmitter, x: Scalar) -> Scalar:
    """log(1 + 2a/(1 - a)) / 2 with the sign of x."""
    a = emit.abs(x)
    result = _narrow_atanh(emit, x) if x.dtype is float32 else _wide_atanh(emit, a)
    limit = emit.select(emit.eq(a, 1.0), emit.constant(inf, x.dtype), emit.constant(nan, x.dtype))
    return emit.copysign(emit.select(emit.lt(a, 1.0), result, limit), x)


def _narrow_atanh(emit: InstructionEmitter, x: Scalar) -> Scalar:
    def far(a: Scalar) -> Scalar:
        return emit.mul(log_short(emit, emit.div(emit.add(a, 1.0), emit.sub(1.0, a))), 0.5)

    return _narrow(emit, x, far, 1.0 / 3.0)


def _wide_atanh(emit: InstructionEmitter, a: Scalar) -> Scalar:
    below_one, below_error = quick_two_sum(emit, emit.one(a), emit.neg(a))
    doubled = emit.add(a, a)
    quotient = emit.div(doubled, below_one)
    residual = emit.fma(emit.neg(quotient), below_one, doubled)
    lost = emit.multiply_add(emit.neg(quotient), below_error, residual)
    quotient_error = emit.mul(lost, rough_inverse(emit, below_one))
    total, error = two_sum(emit, emit.one(a), quotient)
    high, low = quick_two_sum(emit, total, emit.add(error, quotient_error))
    result = emit.mul(log_of_sum(emit, high, low), 0.5)
    return emit.select(emit.lt(a, 2.0**-28), a, result)
