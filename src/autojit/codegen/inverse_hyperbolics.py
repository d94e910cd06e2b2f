"""asinh, acosh and atanh: logarithms of sums kept in two parts, in float64 (float32 operands are widened)."""

from __future__ import annotations

from math import inf, log, nan

from autojit.codegen.float_format import quick_two_sum, two_product, two_sum
from autojit.codegen.instructions import InstructionEmitter
from autojit.codegen.logarithms import log_of_sum
from autojit.codegen.scalar import Scalar

HUGE = 2.0**500  # beyond, x^2 could overflow and sqrt(x^2 +- 1) is x


def asinh(emit: InstructionEmitter, x: Scalar) -> Scalar:
    """log(a + sqrt(a^2 + 1)) with the sign of x."""
    a = emit.abs(x)
    grown = _log_with_root(emit, a, 1.0)
    result = emit.select(emit.lt(a, 2.0**-27), a, emit.select(emit.lt(a, inf), grown, a))
    return emit.copysign(result, x)


def acosh(emit: InstructionEmitter, x: Scalar) -> Scalar:
    """log(x + sqrt(x^2 - 1)); NaN below 1."""
    result = emit.select(emit.lt(x, inf), _log_with_root(emit, x, -1.0), x)
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
    below_one, below_error = quick_two_sum(emit, emit.one(x), emit.neg(a))
    doubled = emit.add(a, a)
    quotient = emit.div(doubled, below_one)
    residual = emit.fma(emit.neg(quotient), below_one, doubled)
    quotient_error = emit.div(emit.multiply_add(emit.neg(quotient), below_error, residual), below_one)
    total, error = two_sum(emit, emit.one(x), quotient)
    high, low = quick_two_sum(emit, total, emit.add(error, quotient_error))
    result = emit.mul(log_of_sum(emit, high, low), 0.5)
    result = emit.select(emit.lt(a, 2.0**-28), a, result)
    limit = emit.select(emit.eq(a, 1.0), emit.constant(inf, x.dtype), emit.constant(nan, x.dtype))
    return emit.copysign(emit.select(emit.lt(a, 1.0), result, limit), x)
