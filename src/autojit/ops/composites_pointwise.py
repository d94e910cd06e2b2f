"""Elementwise composites of several operands and numbers that are one function to the user: bounds, losses before their
reduction, sums of products.
"""

from __future__ import annotations

from autojit.ir.op import O
from autojit.ops.elementwise_arithmetic import add, div, mul, neg, square, sub, where
from autojit.ops.elementwise_complex import abs
from autojit.ops.elementwise_exponential import logaddexp, sigmoid
from autojit.ops.elementwise_logic import lt
from autojit.ops.elementwise_rounding import frac as fraction
from autojit.ops.elementwise_selection import clamp, lerp, nan_to_num
from autojit.ops.probabilities import logit, probability_loss
from autojit.ops.sources import is_one

__all__ = [
    "addcdiv", "addcmul", "clamp", "fraction", "gated", "huber", "lerp", "logit", "logit_loss", "nan_to_num",
    "probability_loss", "smooth_l1",
]  # fmt: skip


def addcmul(x: O, a: O, b: O, value: float = 1) -> O:
    """``x + value * a * b``."""
    product = mul(a, b)
    return add(x, product if is_one(value) else mul(product, value))


def addcdiv(x: O, a: O, b: O, value: float = 1) -> O:
    """``x + value * a / b``."""
    quotient = div(a, b)
    return add(x, quotient if is_one(value) else mul(quotient, value))


def gated(x: O, gate: O) -> O:
    """``x * sigmoid(gate)``."""
    return mul(x, sigmoid(gate))


def smooth_l1(x: O, y: O, beta: float = 1.0) -> O:
    """``d * d / (2 beta)`` where ``d = |x - y|`` is below beta, else ``d - beta / 2``."""
    difference = sub(x, y)
    distance = abs(difference)
    if beta == 0:
        return distance
    near = div(mul(square(difference), 0.5), beta)  # not of |d|, whose derivative at 0 would make the second one 0
    return where(lt(distance, beta), near, sub(distance, 0.5 * beta))


def logit_loss(x: O, target: O) -> O:
    """``probability_loss`` of ``sigmoid(x)``, without forming it."""
    return add(mul(sub(1.0, target), x), logaddexp(neg(x), 0))


def huber(x: O, y: O, delta: float = 1.0) -> O:
    """``d * d / 2`` where ``d = |x - y|`` is at most delta, else ``delta * (d - delta / 2)``."""
    difference = sub(x, y)
    distance = abs(difference)
    linear = mul(sub(distance, 0.5 * delta), delta)
    return where(lt(distance, delta), mul(square(difference), 0.5), linear)
