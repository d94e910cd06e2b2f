"""lgamma, digamma and its derivatives, in float64 (float32 operands are widened, and lgamma of them is shorter).

Both bring their operand t by recurrence to a range around 1.5 that holds the zeros and as much below and above them as
keeps the recurrence from cancelling; there a polynomial in v = (u - c)/(u + c) times the distance to the zeros gives
the value. From ``ASYMPTOTIC_FROM`` on Stirling's series serves. What is rounded early (products, quotients, the
logarithm) is carried along as a low-order part.

Accuracy: lgamma 1.2 ulp, digamma 1.6 ulp for x > 0. Left of zero both come from reflection: the error is 2 ulp of the
greatest term, so near the zeros between the poles digits are lost, as in C libraries.
"""

from __future__ import annotations

from math import comb, factorial, inf, nan

from autojit.codegen.coefficients import (
    COT_TAIL,
    DIGAMMA_ASYMPTOTIC,
    DIGAMMA_MIDDLE,
    DIGAMMA_ROOT,
    LGAMMA_ASYMPTOTIC,
    LGAMMA_MIDDLE,
    SINC_TAIL,
)
from autojit.codegen.float_format import (
    Pair,
    polynomial,
    polynomial_in_pairs,
    polynomial_pair,
    quick_two_sum,
    two_product,
)
from autojit.codegen.instructions import InstructionEmitter
from autojit.codegen.logarithms import log_pair_of_sum, log_short
from autojit.codegen.scalar import Scalar
from autojit.core.dtypes import float32, float64
from autojit.ops.special_reference import BERNOULLI, cotangent_slope

ASYMPTOTIC_FROM = 6
TINY = 2.0**-60
HALF_LOG_2_PI = 0.9189385332046728
LGAMMA_CENTRE, DIGAMMA_CENTRE = 1.34375, 1.75  # c of v = (u - c)/(u + c), as in tools/make_coefficients.py
LGAMMA_SMALL, LGAMMA_TOP = 0.75, 2.4  # ends of the polynomial's range of u
DIGAMMA_TOP = 3.0  # its range starts at 1
POLYGAMMA_SHIFT = 8  # and n: from there on the asymptotic series is exact
LGAMMA_LIMIT = 2.5599833278516383e305  # beyond, lgamma overflows


def _quotient(emit: InstructionEmitter, great: Scalar, t: Scalar, above_one: Scalar, centre: float) -> Scalar:
    """1/t where t is great, else (u - centre)/(u + centre): one division for both."""
    top = emit.select(great, emit.one(t), emit.sub(above_one, centre - 1.0))
    return emit.div(top, emit.select(great, t, emit.add(above_one, centre + 1.0)))


def _steps(emit: InstructionEmitter, t: Scalar, top: float) -> Scalar:
    """How many whole steps lead from [top - 1, top) up to t; none for lesser t."""
    limited = emit.minimum(t, float(ASYMPTOTIC_FROM))
    return emit.maximum(emit.floor(emit.sub(limited, top - 1.0)), 0.0)


def _most_steps(top: float) -> int:
    return int(ASYMPTOTIC_FROM - top) + 1


def _positive_lgamma(emit: InstructionEmitter, t: Scalar) -> Pair:
    """lgamma for t >= 0: log(product) + lgamma(u) with t = u + steps, lgamma(t + 1) - log(t), or Stirling's series.

    For t < LGAMMA_SMALL, u = t + 1 is not formed: rounding it would cost the digits of t - 1.
    """
    small = emit.lt(t, LGAMMA_SMALL)
    great = emit.ge(t, float(ASYMPTOTIC_FROM))
    steps = _steps(emit, t, LGAMMA_TOP)
    u = emit.sub(t, steps)  # exact
    above_one = emit.select(small, t, emit.sub(u, 1.0))
    product, product_low = emit.one(t), emit.zero(t)
    for i in range(_most_steps(LGAMMA_TOP)):
        used = emit.gt(steps, float(i))
        factor = emit.select(used, emit.add(u, float(i)), emit.one(t))
        product, rounding = two_product(emit, product, factor)
        product_low = emit.multiply_add(product_low, factor, rounding)
    itself = emit.logical_or(small, great)
    log, log_low = log_pair_of_sum(
        emit, emit.select(itself, t, product), emit.select(itself, emit.zero(t), product_low)
    )
    v = _quotient(emit, great, t, above_one, LGAMMA_CENTRE)
    near = _near_lgamma(emit, v, u, above_one, (log, log_low), small)
    far = _stirling(emit, t, v, (log, log_low))
    high, low = (emit.select(great, a, b) for a, b in zip(far, near, strict=True))
    return high, low


def _near_lgamma(emit: InstructionEmitter, v: Scalar, u: Scalar, above_one: Scalar, log: Pair, small: Scalar) -> Pair:
    """(u - 1)(u - 2) P(v) with the logarithm added, for small operands subtracted. It is the greater part, or zero."""
    two = emit.select(small, emit.constant(-1.0, u.dtype), emit.constant(-2.0, u.dtype))
    below_two, below_two_low = quick_two_sum(emit, two, u)
    shape, shape_low = polynomial_pair(emit, v, LGAMMA_MIDDLE, "f64")
    scale, scale_low = two_product(emit, above_one, below_two)
    scale_low = emit.multiply_add(above_one, below_two_low, scale_low)
    middle, middle_low = two_product(emit, scale, shape)
    middle_low = emit.multiply_add(scale, shape_low, emit.multiply_add(scale_low, shape, middle_low))
    high, low = (emit.select(small, emit.neg(part), part) for part in log)
    return high, emit.add(middle, emit.add(middle_low, low))


def _stirling(emit: InstructionEmitter, t: Scalar, inverse: Scalar, log: Pair) -> Pair:
    """(t - 1/2)(log t - 1) + log(2 pi)/2 - 1/2 + series in 1/t."""
    series = emit.mul(inverse, polynomial(emit, emit.mul(inverse, inverse), LGAMMA_ASYMPTOTIC["f64"]))
    less_one, less_one_low = quick_two_sum(emit, log[0], emit.constant(-1.0, t.dtype))
    high, low = two_product(emit, t, less_one)
    low = emit.multiply_add(t, emit.add(less_one_low, log[1]), low)
    return high, emit.add(low, emit.multiply_add(less_one, -0.5, emit.add(series, HALF_LOG_2_PI - 0.5)))


def _distance_to_integer(emit: InstructionEmitter, x: Scalar) -> Scalar:
    """x - round(x), exact."""
    return emit.sub(x, emit.round(x))


def _reflected_lgamma(emit: InstructionEmitter, a: Scalar, positive: Pair) -> Scalar:
    """lgamma(-a) for a >= TINY, from gamma(a) gamma(-a) = -pi / (a sin(pi a)) and the distance r of a to an integer."""
    r = emit.abs(_distance_to_integer(emit, a))
    square = emit.mul(r, r)
    sinc, sinc_low = quick_two_sum(emit, emit.one(a), emit.mul(square, polynomial(emit, square, SINC_TAIL["f64"])))
    product, product_low = two_product(emit, a, r)
    whole, whole_low = two_product(emit, product, sinc)  # a sin(pi a) / pi
    whole_low = emit.add(whole_low, emit.multiply_add(product, sinc_low, emit.mul(product_low, sinc)))
    log, log_low = log_pair_of_sum(emit, whole, whole_low)
    return emit.neg(emit.add(emit.add(log, positive[0]), emit.add(log_low, positive[1])))


def lgamma(emit: InstructionEmitter, x: Scalar) -> Scalar:
    """log|gamma(x)|; infinite at the poles 0, -1, -2, ... and at both infinities."""
    if x.dtype is float32:
        return emit.cast(_short_lgamma(emit, emit.cast(x, float64)), float32)
    a = emit.abs(x)
    pair = _positive_lgamma(emit, a)
    positive = emit.add(*pair)
    reflected = emit.select(emit.lt(a, TINY), positive, _reflected_lgamma(emit, a, pair))  # log(1/a) around zero
    return _with_poles(emit, x, emit.select(emit.lt(x, 0.0), reflected, positive))


def _with_poles(emit: InstructionEmitter, x: Scalar, result: Scalar) -> Scalar:
    pole = emit.logical_and(emit.le(x, 0.0), emit.eq(emit.floor(x), x))
    infinite = emit.logical_or(pole, emit.gt(emit.abs(x), LGAMMA_LIMIT))
    return emit.select(infinite, emit.constant(inf, x.dtype), result)


def _short_lgamma(emit: InstructionEmitter, x: Scalar) -> Scalar:
    """The same of a float32 operand widened to float64, in about 38 bits: what is rounded early does not count."""
    t = emit.abs(x)
    small, great = emit.lt(t, LGAMMA_SMALL), emit.ge(t, float(ASYMPTOTIC_FROM))
    steps = _steps(emit, t, LGAMMA_TOP)
    u = emit.sub(t, steps)
    above_one = emit.select(small, t, emit.sub(u, 1.0))
    product = emit.one(t)
    for i in range(_most_steps(LGAMMA_TOP)):
        factor = emit.select(emit.gt(steps, float(i)), emit.add(u, float(i)), emit.one(t))
        product = emit.mul(product, factor)
    log = log_short(emit, emit.select(emit.logical_or(small, great), t, product))
    v = _quotient(emit, great, t, above_one, LGAMMA_CENTRE)
    below_two = emit.add(emit.select(small, emit.constant(-1.0, t.dtype), emit.constant(-2.0, t.dtype)), u)
    shape = polynomial_in_pairs(emit, v, LGAMMA_MIDDLE["f40"])
    near = emit.fma(emit.mul(above_one, below_two), shape, emit.select(small, emit.neg(log), log))
    series = emit.mul(v, polynomial(emit, emit.mul(v, v), LGAMMA_ASYMPTOTIC["f40"]))
    far = emit.fma(emit.sub(t, 0.5), emit.sub(log, 1.0), emit.add(series, HALF_LOG_2_PI - 0.5))
    positive = emit.select(great, far, near)
    r = emit.abs(_distance_to_integer(emit, t))
    square = emit.mul(r, r)
    sinc = emit.fma(square, polynomial(emit, square, SINC_TAIL["f40"]), 1.0)
    reflected = emit.neg(emit.add(log_short(emit, emit.mul(emit.mul(t, r), sinc)), positive))
    return _with_poles(emit, x, emit.select(emit.lt(x, 0.0), reflected, positive))


def digamma(emit: InstructionEmitter, x: Scalar) -> Scalar:
    """The derivative of lgamma; -inf at 0, NaN at the other poles."""
    negative = emit.lt(x, 0.0)
    t = emit.select(negative, emit.sub(1.0, x), x)
    positive = _positive_digamma(emit, t)
    result = emit.select(negative, _less_cotangent(emit, positive, x), positive)
    pole = emit.logical_and(negative, emit.eq(emit.floor(x), x))
    result = emit.select(pole, emit.constant(nan, x.dtype), result)
    at_zero = emit.copysign(emit.constant(inf, x.dtype), emit.neg(x))
    result = emit.select(emit.eq(x, 0.0), at_zero, result)
    return emit.select(emit.eq(x, inf), x, result)


def polygamma(emit: InstructionEmitter, n: int, x: Scalar) -> Scalar:
    """The ``n``-th derivative of digamma, n at least 1, to a few ulp: a sum of powers, then the asymptotic series.

    Left of zero by reflection; infinite at the poles. Source: DLMF 5.15.5, 5.15.6 and 5.15.8.
    """
    negative = emit.lt(x, 0.0)
    t = emit.select(negative, emit.sub(1.0, x), x)
    total = emit.zero(t)
    for step in reversed(range(POLYGAMMA_SHIFT + n)):
        term = _power(emit, emit.div(1.0, emit.add(t, float(step))), n + 1)
        total = emit.add(total, term)
    inverse = emit.div(1.0, emit.add(t, float(POLYGAMMA_SHIFT + n)))
    series = tuple(b * comb(n + 2 * j - 1, 2 * j) / n for j, b in enumerate(BERNOULLI, start=1))
    square = emit.mul(inverse, inverse)
    tail = emit.multiply_add(square, polynomial(emit, square, series), emit.mul(inverse, 0.5))
    tail = emit.mul(_power(emit, inverse, n), emit.add(tail, 1.0 / n))
    sign = -1.0 if n % 2 == 0 else 1.0
    positive = emit.mul(emit.add(total, tail), sign * factorial(n))
    r = _distance_to_integer(emit, x)
    r_square = emit.mul(r, r)
    cotangent = emit.div(emit.multiply_add(r_square, polynomial(emit, r_square, COT_TAIL["f64"]), 1.0), r)
    slope = polynomial(emit, cotangent, cotangent_slope(n))
    reflected = emit.sub(emit.neg(positive) if n % 2 else positive, slope)
    pole = emit.logical_and(negative, emit.eq(r, 0.0))
    reflected = emit.select(pole, emit.constant(sign * inf, x.dtype), reflected)
    return emit.select(negative, reflected, positive)


def _power(emit: InstructionEmitter, x: Scalar, exponent: int) -> Scalar:
    """``x ** exponent`` for an exponent of at least 1, by squaring."""
    half = x if exponent < 4 else _power(emit, x, exponent // 2)
    result = x if exponent < 2 else emit.mul(half, half)
    return emit.mul(result, x) if exponent > 1 and exponent % 2 else result


def _less_cotangent(emit: InstructionEmitter, positive: Scalar, x: Scalar) -> Scalar:
    """positive - pi cot(pi x), by the distance r of x to an integer: pi r cot(pi r) is 1 + r^2 T(r^2)."""
    r = _distance_to_integer(emit, x)
    square = emit.mul(r, r)
    top, top_low = quick_two_sum(emit, emit.one(x), emit.mul(square, polynomial(emit, square, COT_TAIL["f64"])))
    inverse = emit.div(1.0, r)
    cotangent = emit.mul(top, inverse)
    low = emit.mul(emit.add(emit.fma(emit.neg(cotangent), r, top), top_low), inverse)
    low = emit.select(emit.lt(emit.abs(r), TINY), emit.zero(x), low)  # 1/r may be infinite
    return emit.sub(emit.sub(positive, cotangent), low)


def _positive_digamma(emit: InstructionEmitter, t: Scalar) -> Scalar:
    """digamma for t > 0: digamma(u) + sum of 1/(u + i), digamma(t + 1) - 1/t for t < 1, or the asymptotic series."""
    small = emit.lt(t, 1.0)
    great = emit.ge(t, float(ASYMPTOTIC_FROM))
    steps = _steps(emit, t, DIGAMMA_TOP)
    u = emit.sub(t, steps)  # exact
    above_one = emit.select(small, t, emit.sub(u, 1.0))
    top = emit.select(small, emit.constant(-1.0, t.dtype), emit.zero(t))
    bottom = emit.select(small, t, emit.one(t))
    for i in range(_most_steps(DIGAMMA_TOP)):
        used = emit.gt(steps, float(i))
        factor = emit.add(u, float(i))
        top = emit.select(used, emit.multiply_add(top, factor, bottom), top)
        bottom = emit.select(used, emit.mul(bottom, factor), bottom)
    inverse = emit.div(1.0, bottom)
    added = emit.mul(top, inverse)
    added_low = emit.mul(emit.fma(emit.neg(added), bottom, top), inverse)
    added_low = emit.select(emit.lt(t, TINY), emit.zero(t), added_low)  # 1/t may be infinite
    v = _quotient(emit, great, t, above_one, DIGAMMA_CENTRE)
    near = _near_digamma(emit, v, above_one, (added, added_low))
    square = emit.mul(v, v)
    series = emit.multiply_add(square, polynomial(emit, square, DIGAMMA_ASYMPTOTIC["f64"]), emit.mul(v, 0.5))
    return emit.select(great, emit.sub(emit.call("log", t), series), near)


def _near_digamma(emit: InstructionEmitter, v: Scalar, above_one: Scalar, added: Pair) -> Scalar:
    """(u - root) Q(v) + added."""
    root, root_low = DIGAMMA_ROOT["f64"]
    distance = emit.sub(above_one, root - 1.0)  # exact for u >= 1
    distance, distance_low = quick_two_sum(emit, distance, emit.constant(-root_low, v.dtype))
    shape, shape_low = polynomial_pair(emit, v, DIGAMMA_MIDDLE, "f64")
    low = emit.multiply_add(distance, shape_low, emit.multiply_add(distance_low, shape, added[1]))
    return emit.add(emit.fma(distance, shape, added[0]), low)
