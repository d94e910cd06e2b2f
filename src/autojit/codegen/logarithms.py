"""log and its kin: log, log2, log10, log1p, asinh, acosh, atanh.

All write the argument as m * 2^k with m in [sqrt(1/2), sqrt(2)) and f = m - 1 and add k times the log of 2 to
log(1 + f) = f + rest, where f is exact and ``rest`` is small enough for its rounding not to matter.
"""

from __future__ import annotations

from math import inf, nan, sqrt

from autojit.codegen.coefficients import LN2, LN2_SHORT, LOG2_E, LOG10_2, LOG10_E, LOG_TAIL
from autojit.codegen.float_format import (
    FloatFormat,
    Pair,
    format_of,
    polynomial,
    polynomial_in_pairs,
    power_of_two,
    quick_two_sum,
)
from autojit.codegen.instructions import InstructionEmitter
from autojit.codegen.scalar import Scalar
from autojit.core.dtypes import float32

# log_b(2), whose upper part has so few bits that its product with any exponent is exact, and log_b(e), per base
LOG_OF_2: dict[str, dict[str, tuple[float, ...]]] = {
    "e": LN2_SHORT,
    "10": LOG10_2,
    "2": {"f32": (1.0, 0.0), "f64": (1.0, 0.0)},
}
LOG_OF_E: dict[str, dict[str, tuple[float, ...]]] = {"10": LOG10_E, "2": LOG2_E}


def unbias(emit: InstructionEmitter, field: Scalar, form: FloatFormat) -> Scalar:
    """The unsigned integer ``field`` < 2^mantissa_bits as a float, less the bias; without a cast."""
    anchor = 2.0**form.mantissa_bits
    shifted = emit.bitcast(emit.bitwise_or(field, form.bits_of(anchor)), form.dtype)
    return emit.sub(shifted, anchor + form.bias)


def split(emit: InstructionEmitter, x: Scalar) -> tuple[Scalar, Scalar]:
    """k as a float and m in [sqrt(1/2), sqrt(2)) with x = m * 2^k, for positive normal x."""
    form = format_of(x.dtype)
    one, lower = form.bits_of(1.0), form.bits_of(sqrt(0.5))
    bits = emit.bitcast(x, form.bits)
    offset = emit.add(bits, one - lower)  # carries into the exponent field when the mantissa exceeds sqrt(1/2)
    k = unbias(emit, emit.shift_right(offset, form.mantissa_bits), form)
    mantissa = emit.bitwise_and(offset, (1 << form.mantissa_bits) - 1)
    return k, emit.bitcast(emit.add(mantissa, lower), x.dtype)


def split_finite(emit: InstructionEmitter, x: Scalar) -> tuple[Scalar, Scalar]:
    """`split` for any positive finite x, denormals included."""
    form = format_of(x.dtype)
    denormal = emit.lt(x, form.least_normal)
    lift = form.mantissa_bits + 1
    k, m = split(emit, emit.select(denormal, emit.mul(x, 2.0**lift), x))
    return emit.select(denormal, emit.sub(k, float(lift)), k), m


def inverse_power(emit: InstructionEmitter, k: Scalar) -> Scalar:
    """2^-k for a float k from `split`; the greatest k gives a denormal, hence the two steps."""
    form = format_of(k.dtype)
    anchored = emit.add(emit.sub(form.bias + 2.0, k), 2.0**form.mantissa_bits)
    field = emit.bitcast(anchored, form.bits)  # the anchor's exponent is shifted out
    return emit.mul(power_of_two(emit, field, form), 0.25)


def log_rest(emit: InstructionEmitter, f: Scalar) -> Scalar:
    """log(1 + f) - f."""
    coefficients = LOG_TAIL[f.dtype.short]
    if f.dtype is float32:
        square = emit.mul(f, f)
        cubic = emit.mul(emit.mul(square, f), polynomial_in_pairs(emit, f, coefficients))
        return emit.multiply_add(square, -0.5, cubic)
    # With s = f/(2+f): log(1+f) = 2 atanh(s) = f - f^2/2 + s (f^2/2 + R(s^2)). Source: fdlibm e_log.c.
    s = emit.div(f, emit.add(f, 2.0))
    square = emit.mul(s, s)
    half_square = emit.mul(emit.mul(f, f), 0.5)
    tail = emit.mul(square, polynomial(emit, square, coefficients))
    return emit.sub(emit.mul(s, emit.add(half_square, tail)), half_square)


def combine(emit: InstructionEmitter, k: Scalar, f: Scalar, rest: Scalar, base: str) -> Scalar:
    """k log(2) + (f + rest) log(e) in the base.

    |f log(e)| is at most half of the result unless k is 0, so that its rounding counts half; then it is the only one.
    """
    high, low = LOG_OF_2[base][k.dtype.short]
    if base == "e":
        return emit.multiply_add(k, high, emit.add(f, emit.multiply_add(k, low, rest)))
    high_e, low_e = LOG_OF_E[base][k.dtype.short]
    below = emit.multiply_add(rest, high_e, emit.mul(f, low_e))
    if base == "10":
        below = emit.multiply_add(k, low, below)
    return emit.multiply_add(k, high, emit.multiply_add(f, high_e, below))


def guard(emit: InstructionEmitter, x: Scalar, result: Scalar, pole: float) -> Scalar:
    """The logarithm's special values: -inf at the pole, NaN below it, inf and NaN pass."""
    at_pole = emit.select(emit.eq(x, pole), emit.constant(-inf, x.dtype), emit.constant(nan, x.dtype))
    passed = emit.select(emit.lt(x, inf), result, emit.add(x, x))
    return emit.select(emit.le(x, pole), at_pole, passed)


def log_normal(emit: InstructionEmitter, x: Scalar) -> Pair:
    """The natural logarithm of positive normal x in two parts; some numbers elsewhere."""
    k, m = split(emit, x)
    f = emit.sub(m, 1.0)
    high, low = LN2_SHORT[x.dtype.short]
    return quick_two_sum(emit, emit.mul(k, high), emit.add(f, emit.multiply_add(k, low, log_rest(emit, f))))


def _log(emit: InstructionEmitter, x: Scalar, base: str) -> Scalar:
    k, m = split_finite(emit, x)
    f = emit.sub(m, 1.0)
    return guard(emit, x, combine(emit, k, f, log_rest(emit, f), base), 0.0)


def log(emit: InstructionEmitter, x: Scalar) -> Scalar:
    """The natural logarithm; 0.8 ulp."""
    return _log(emit, x, "e")


def log2(emit: InstructionEmitter, x: Scalar) -> Scalar:
    """The logarithm to base 2; 0.9 ulp."""
    return _log(emit, x, "2")


def log10(emit: InstructionEmitter, x: Scalar) -> Scalar:
    """The logarithm to base 10; 0.9 ulp."""
    return _log(emit, x, "10")


def log1p(emit: InstructionEmitter, x: Scalar) -> Scalar:
    """k comes from the rounded 1 + x, but f = x 2^-k + (2^-k - 1) is formed from x with one rounding."""
    form = format_of(x.dtype)
    total = emit.add(x, 1.0)
    k, _ = split(emit, total)
    inverse = inverse_power(emit, k)
    f = emit.fma(x, inverse, emit.sub(inverse, 1.0))
    result = combine(emit, k, f, log_rest(emit, f), "e")
    tiny = emit.lt(emit.abs(x), 2.0 ** -(form.mantissa_bits + 2))
    return emit.select(tiny, x, guard(emit, x, result, -1.0))


def log_pair_of_sum(emit: InstructionEmitter, high: Scalar, low: Scalar) -> tuple[Scalar, Scalar]:
    """log(high + low) of positive finite float64 parts as a sum of two floats, for |low| <= 8 ulp(high).

    The absolute error is about 2^-56, which is that of `log_rest`; ``low`` counts only for high >= 2^-900.
    """
    k, m = split_finite(emit, high)
    f, error = quick_two_sum(emit, emit.sub(m, 1.0), emit.mul(low, inverse_power(emit, emit.maximum(k, -900.0))))
    # log(1 + f + error) = log(1 + f) + error / (1 + f) to first order
    rest = emit.add(log_rest(emit, f), emit.multiply_add(error, emit.neg(f), error))
    of_2, of_2_low = LN2_SHORT["f64"]
    total, rounding = quick_two_sum(emit, emit.mul(k, of_2), f)
    return quick_two_sum(emit, total, emit.add(rounding, emit.multiply_add(k, of_2_low, rest)))


def log_of_sum(emit: InstructionEmitter, high: Scalar, low: Scalar) -> Scalar:
    """log(high + low), rounded: see `log_pair_of_sum`. The sum may carry 100 bits near 1."""
    return log_pair_of_sum(emit, high, low)[0]


def log_short(emit: InstructionEmitter, x: Scalar) -> Scalar:
    """log(x) in about 40 bits for positive normal float64 x: for float32 results."""
    k, m = split(emit, x)
    f = emit.sub(m, 1.0)
    s = emit.div(f, emit.add(f, 2.0))
    square = emit.mul(s, s)
    tail = emit.multiply_add(square, polynomial(emit, square, LOG_TAIL["f40"]), 2.0)
    return emit.multiply_add(s, tail, emit.mul(k, LN2["f64"][0]))
