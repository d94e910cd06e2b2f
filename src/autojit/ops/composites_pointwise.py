"""Elementwise composites of several operands and numbers that are one function to the user: bounds, losses before their
reduction, sums of products.
"""

from __future__ import annotations

import math
from builtins import abs as magnitude
from typing import Any

from autojit.ir.op import O
from autojit.ops.elementwise_arithmetic import add, div, mul, neg, square, sub, where
from autojit.ops.elementwise_complex import abs
from autojit.ops.elementwise_complex import abs as modulus
from autojit.ops.elementwise_exponential import exp2, log, log1p, logaddexp, sigmoid
from autojit.ops.elementwise_logic import eq, ge, le, logical_and, logical_or, lt
from autojit.ops.elementwise_rounding import floor, round, trunc
from autojit.ops.elementwise_rounding import frac as fraction
from autojit.ops.elementwise_selection import clamp, maximum, nan_to_num
from autojit.ops.elementwise_trigonometric import sin
from autojit.ops.halves import rounded_once
from autojit.ops.probabilities import logit, probability_loss
from autojit.ops.sources import NUMBERS, Number, is_one, literal

__all__ = [
    "add_scaled", "addcdiv", "addcmul", "clamp", "fraction", "gated", "huber", "ldexp", "lerp", "logaddexp2", "logit",
    "logit_loss", "nan_to_num", "probability_loss", "sinc", "smooth_l1", "xlogy",
]  # fmt: skip


@rounded_once
def lerp(start: O, end: O, weight: O | Number) -> O:
    """``start + weight * (end - start)``, exact at both ends."""
    if hasattr(type(weight), "as_operand"):  # a number of a step
        weight = literal(start, weight)
    if isinstance(weight, NUMBERS):
        share: Any = weight
        back = sub(start, end)  # in the order of axes of ``start``, as the result is
        return sub(start, mul(back, weight)) if magnitude(share) < 0.5 else add(mul(back, 1 - share), end)
    gap = sub(end, start)
    from_start = add(start, mul(gap, weight))
    from_end = sub(end, mul(gap, sub(1, weight)))
    return where(lt(modulus(weight), 0.5), from_start, from_end)


@rounded_once
def add_scaled(x: O, y: O, alpha: Number) -> O:
    """``x + alpha * y``."""
    return add(x, mul(y, alpha))


@rounded_once
def addcmul(x: O, a: O, b: O, value: float = 1) -> O:
    """``x + value * a * b``."""
    product = mul(a, b)
    return add(x, product if is_one(value) else mul(product, value))


@rounded_once
def addcdiv(x: O, a: O, b: O, value: float = 1) -> O:
    """``x + value * a / b``."""
    quotient = div(a, b)
    return add(x, quotient if is_one(value) else mul(quotient, value))


@rounded_once
def logaddexp2(x: O, y: O) -> O:
    """``log2(2 ** x + 2 ** y)`` without overflow."""
    gap = where(eq(x, y), 0.0, abs(sub(x, y)))  # of equal infinities, too
    return add(maximum(x, y), div(log1p(exp2(neg(gap))), math.log(2)))


@rounded_once
def ldexp(x: O, exponent: O) -> O:
    """``x * 2 ** exponent`` in two factors, which stay in range where the result does."""
    half = trunc(mul(exponent, 0.5))
    return mul(mul(x, exp2(half)), exp2(sub(exponent, half)))


@rounded_once
def gated(x: O, gate: O) -> O:
    """``x * sigmoid(gate)``."""
    return mul(x, sigmoid(gate))


@rounded_once
def smooth_l1(x: O, y: O, beta: float = 1.0) -> O:
    """``d * d / (2 beta)`` where ``d = |x - y|`` is below beta, else ``d - beta / 2``."""
    difference = sub(x, y)
    distance = abs(difference)
    if beta == 0:
        return distance
    near = div(mul(square(difference), 0.5), beta)  # not of |d|, whose derivative at 0 would make the second one 0
    return where(ge(distance, beta), sub(distance, 0.5 * beta), near)  # near where NaN, of which its derivative is one


@rounded_once
def logit_loss(x: O, target: O) -> O:
    """``probability_loss`` of ``sigmoid(x)``, without forming it."""
    return add(mul(sub(1.0, target), x), logaddexp(neg(x), 0))


@rounded_once
def huber(x: O, y: O, delta: float = 1.0) -> O:
    """``d * d / 2`` where ``d = |x - y|`` is at most delta, else ``delta * (d - delta / 2)``."""
    difference = sub(x, y)
    distance = abs(difference)
    linear = mul(sub(distance, 0.5 * delta), delta)
    return where(ge(distance, delta), linear, mul(square(difference), 0.5))  # as above


def xlogy(x: O, y: O) -> O:
    """``x * log(y)``, and 0 where ``x`` is 0 unless ``y`` is NaN."""
    x = x if hasattr(x, "_bind") else literal(y, x)
    is_free = logical_and(eq(x, 0), logical_or(le(y, 0), eq(y, float("inf"))))
    found: O = mul(x, log(where(is_free, 1, y)))
    return found


_SINC_TERMS = tuple((2 * k + 2) * (2 * k + 3) for k in range(9))  # z**18 / 19! is 1e-19 at pi / 4


def sinc(x: O) -> O:
    """``sin(pi x) / (pi x)`` of real numbers, 1 at 0."""
    whole = round(x)
    is_odd = eq(sub(whole, mul(floor(div(whole, 2)), 2)), 1)
    rest = mul(sub(x, whole), math.pi)  # exact before the product, so that zeros are zeros however large x is
    sine = sin(rest)
    is_near = logical_and(eq(whole, 0), lt(abs(x), 0.25))
    away = div(where(is_odd, neg(sine), sine), where(is_near, 1, mul(x, math.pi)))
    return where(is_near, sinc_near_zero(square(where(is_near, rest, 0))), away)


def sinc_near_zero(square: O) -> O:
    """``sin(z) / z`` of ``z**2`` by its series, whose derivatives of all orders are series, too."""
    last, *others = reversed(_SINC_TERMS)
    found = sub(1, div(square, last))
    for divisor in others:
        found = sub(1, mul(div(square, divisor), found))
    return found
