"""lgamma and digamma, in float64 (float32 operands are widened).

Accuracy: lgamma 5 ulp for x > 0, digamma 4 ulp for x > 0. Left of zero both come from reflection: the absolute error is
a few ulp of the greatest term, so near the zeros between the poles digits are lost, as in C libraries.
"""

from __future__ import annotations

from math import inf, log, nan, pi
from typing import NamedTuple

from autojit.codegen.coefficients import (
    DIGAMMA_ASYMPTOTIC,
    DIGAMMA_MIDDLE,
    DIGAMMA_ROOT,
    LGAMMA_ASYMPTOTIC,
    LGAMMA_MIDDLE,
)
from autojit.codegen.float_format import polynomial
from autojit.codegen.instructions import InstructionEmitter
from autojit.codegen.scalar import Scalar
from autojit.codegen.trigonometry import sin_usual, tan_usual

ASYMPTOTIC_FROM = 8
TINY = 2.0**-60
HALF_LOG_2_PI = 0.9189385332046728
LOG_PI = log(pi)


class Recurrence(NamedTuple):
    """t > 0 brought to u in [1, 2]: ``steps`` factors u, u + 1, ... lead from u to t, or one factor t < 1 back."""

    small: Scalar
    great: Scalar
    steps: Scalar
    above_one: Scalar  # u - 1
    below_two: Scalar  # u - 2


def _recurrence(emit: InstructionEmitter, t: Scalar) -> Recurrence:
    """For t < 1, u = t + 1 is not formed: rounding it would cost the digits of t - 1."""
    small = emit.lt(t, 1.0)
    great = emit.ge(t, float(ASYMPTOTIC_FROM))
    steps = emit.sub(emit.floor(emit.minimum(t, float(ASYMPTOTIC_FROM))), 1.0)
    u = emit.sub(t, steps)
    above_one = emit.select(small, t, emit.sub(u, 1.0))
    below_two = emit.select(small, emit.sub(t, 1.0), emit.sub(u, 2.0))
    return Recurrence(small, great, steps, above_one, below_two)


def _positive_lgamma(emit: InstructionEmitter, t: Scalar) -> Scalar:
    """lgamma for t >= 0: by recurrence from u in [1, 2], or Stirling's series from 8 on; one logarithm for all."""
    small, great, steps, above_one, below_two = _recurrence(emit, t)
    product = emit.one(t)
    for i in range(1, ASYMPTOTIC_FROM - 1):
        used = emit.ge(steps, float(i))
        product = emit.mul(product, emit.select(used, emit.add(above_one, float(i)), emit.one(t)))
    logarithm = emit.call("log", emit.select(emit.logical_or(small, great), t, product))
    shape = polynomial(emit, emit.sub(above_one, 0.5), LGAMMA_MIDDLE["f64"])
    middle = emit.mul(emit.mul(above_one, below_two), shape)
    near = emit.add(middle, emit.select(small, emit.neg(logarithm), logarithm))
    inverse = emit.div(1.0, emit.maximum(t, 1.0))
    series = emit.mul(inverse, polynomial(emit, emit.mul(inverse, inverse), LGAMMA_ASYMPTOTIC["f64"]))
    far = emit.multiply_add(emit.sub(t, 0.5), emit.sub(logarithm, 1.0), emit.add(series, HALF_LOG_2_PI - 0.5))
    return emit.select(great, far, near)


def _distance_to_integer(emit: InstructionEmitter, x: Scalar) -> Scalar:
    """x - round(x), exact."""
    return emit.sub(x, emit.round(x))


def lgamma(emit: InstructionEmitter, x: Scalar) -> Scalar:
    """log|gamma(x)|; infinite at the poles 0, -1, -2, ... and at both infinities."""
    a = emit.abs(x)
    positive = _positive_lgamma(emit, a)
    sine = sin_usual(emit, emit.mul(emit.abs(_distance_to_integer(emit, a)), pi))
    # gamma(x) gamma(-x) = -pi / (x sin(pi x)); the quotient is split lest a * sine underflows
    reflected = emit.sub(emit.sub(LOG_PI, emit.call("log", sine)), emit.add(emit.call("log", a), positive))
    pole = emit.logical_and(emit.le(x, 0.0), emit.eq(emit.floor(x), x))
    reflected = emit.select(emit.lt(a, TINY), positive, reflected)  # log(1/a) on both sides of the pole at zero
    result = emit.select(emit.lt(x, 0.0), reflected, positive)
    infinite = emit.logical_or(pole, emit.isinf(x))
    return emit.select(infinite, emit.constant(inf, x.dtype), result)


def digamma(emit: InstructionEmitter, x: Scalar) -> Scalar:
    """The derivative of lgamma; -inf at 0, NaN at the other poles."""
    negative = emit.lt(x, 0.0)
    t = emit.select(negative, emit.sub(1.0, x), x)
    positive = _positive_digamma(emit, t)
    cotangent = emit.div(pi, tan_usual(emit, emit.mul(_distance_to_integer(emit, x), pi)))
    result = emit.select(negative, emit.sub(positive, cotangent), positive)
    pole = emit.logical_and(negative, emit.eq(emit.floor(x), x))
    result = emit.select(pole, emit.constant(nan, x.dtype), result)
    at_zero = emit.copysign(emit.constant(inf, x.dtype), emit.neg(x))
    result = emit.select(emit.eq(x, 0.0), at_zero, result)
    return emit.select(emit.eq(x, inf), x, result)


def _positive_digamma(emit: InstructionEmitter, t: Scalar) -> Scalar:
    """digamma for t > 0: by recurrence from u in [1, 2], or the asymptotic series from 8 on."""
    small, great, steps, above_one, _ = _recurrence(emit, t)
    top = emit.select(small, emit.constant(-1.0, t.dtype), emit.zero(t))
    bottom = emit.select(small, t, emit.one(t))
    for i in range(1, ASYMPTOTIC_FROM - 1):
        used = emit.ge(steps, float(i))
        factor = emit.add(above_one, float(i))
        top = emit.select(used, emit.multiply_add(top, factor, bottom), top)
        bottom = emit.select(used, emit.mul(bottom, factor), bottom)
    root, root_low = DIGAMMA_ROOT["f64"]
    from_root = emit.sub(emit.sub(above_one, root - 1.0), root_low)
    middle = emit.mul(from_root, polynomial(emit, emit.sub(above_one, 0.5), DIGAMMA_MIDDLE["f64"]))
    near = emit.add(middle, emit.div(top, bottom))
    inverse = emit.div(1.0, emit.maximum(t, 1.0))
    square = emit.mul(inverse, inverse)
    series = emit.multiply_add(square, polynomial(emit, square, DIGAMMA_ASYMPTOTIC["f64"]), emit.mul(inverse, 0.5))
    return emit.select(great, emit.sub(emit.call("log", t), series), near)
