"""Activations and the softmax family, with torch's definitions and its derivatives at kinks."""

from __future__ import annotations

import math

import numpy as np

from autojit.core.sizes import seems_equal
from autojit.ir.op import O
from autojit.ops.base import normalize_axis
from autojit.ops.elementwise_arithmetic import add, div, mul, neg, reciprocal, square, stop_gradient, sub, where
from autojit.ops.elementwise_complex import abs
from autojit.ops.elementwise_exponential import exp, expm1, log, logaddexp, sigmoid
from autojit.ops.elementwise_logic import ge, gt, le, logical_and, lt
from autojit.ops.elementwise_special import erf
from autojit.ops.elementwise_trigonometric import tanh
from autojit.ops.halves import rounded_once
from autojit.ops.reductions import amax, sum
from autojit.ops.shape import slice_axis
from autojit.ops.sources import literal

__all__ = [
    "celu", "elu", "gelu", "glu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "log_softmax",
    "logsigmoid", "mish", "relu6", "selu", "silu", "softmax", "softplus", "softshrink", "softsign", "tanhshrink",
    "threshold",
]  # fmt: skip

_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946  # Klambauer et al., NeurIPS 2017


def _shifted(x: O, axis: int) -> O:
    """``x`` minus its largest element along an axis; the shift cancels in the softmax and its derivatives."""
    return sub(x, stop_gradient(amax(x, axis, keep=True)))


@rounded_once
def softmax(x: O, axis: int = -1) -> O:
    """Exponentials over their sum along an axis. Its adjoint costs one reduction and no division per element."""
    axis = normalize_axis(axis, x.spec.ndim, "softmax")
    if x.spec.ndim == 0 or seems_equal(x.spec.size, 0):
        return exp(sub(x, x))
    e = exp(_shifted(x, axis))
    return mul(e, reciprocal(sum(e, axis, keep=True)))


@rounded_once
def log_softmax(x: O, axis: int = -1) -> O:
    """Logarithm of the softmax along an axis. Its adjoint reuses the exponentials."""
    axis = normalize_axis(axis, x.spec.ndim, "log_softmax")
    if x.spec.ndim == 0 or seems_equal(x.spec.size, 0):
        return sub(x, x)
    shifted = _shifted(x, axis)
    return sub(shifted, log(sum(exp(shifted), axis, keep=True)))


@rounded_once
def gelu(x: O, approximate: str = "none") -> O:
    """``x`` times the normal distribution function of ``x``; "tanh" is its usual approximation.

    The exact form goes through ``erf``, as torch's: the exponential in it is that of the derivative, so a kernel with
    both computes one. ``x * special.ndtr(x)`` keeps its relative accuracy in the negative tail, at twice the price.
    """
    if approximate == "tanh":
        inner = mul(add(x, mul(mul(square(x), x), 0.044715)), math.sqrt(2.0 / math.pi))
        return mul(mul(x, 0.5), add(tanh(inner), 1))
    return mul(mul(x, 0.5), add(erf(mul(x, math.sqrt(0.5))), 1))


@rounded_once
def silu(x: O) -> O:
    """``x * sigmoid(x)``."""
    return mul(x, sigmoid(x))


@rounded_once
def softplus(x: O, beta: float = 1.0, threshold: float = 20.0) -> O:
    """``log(1 + e ** (beta x)) / beta``, and ``x`` itself where ``beta x`` exceeds the threshold."""
    scaled = x if beta == 1.0 else mul(x, beta)
    smooth = logaddexp(scaled, 0)
    return where(gt(scaled, threshold), x, smooth if beta == 1.0 else div(smooth, beta))


@rounded_once
def mish(x: O) -> O:
    """``x * tanh(softplus(x))``."""
    return mul(x, tanh(logaddexp(x, 0)))


@rounded_once
def logsigmoid(x: O) -> O:
    """``log(sigmoid(x))`` without overflow."""
    return neg(logaddexp(neg(x), 0))


@rounded_once
def leaky_relu(x: O, slope: O | float = 0.01) -> O:
    """``x`` where positive, else ``slope * x``; ``slope`` may be an operand (PReLU)."""
    return where(gt(x, 0), x, mul(x, slope))


def _bent(x: O, below: O) -> O:
    """``x``, and ``below`` where it is negative: both have one slope at 0, where the second derivative counts as 0."""
    return where(lt(x, 0), below, x)


@rounded_once
def elu(x: O, alpha: float = 1.0) -> O:
    """``x`` where positive, else ``alpha * (e ** x - 1)``."""
    if alpha == 1.0:
        return _bent(x, expm1(x))
    return where(le(x, 0), where(lt(x, 0), mul(expm1(x), alpha), mul(x, alpha)), x)


@rounded_once
def celu(x: O, alpha: float = 1.0) -> O:
    """``x`` where positive, else ``alpha * (e ** (x / alpha) - 1)``."""
    return _bent(x, mul(expm1(div(x, alpha)), alpha))


@rounded_once
def selu(x: O) -> O:
    """The self-normalising ELU."""
    return mul(elu(x, _SELU_ALPHA), _SELU_SCALE)


def hardtanh(x: O, low: float = -1.0, high: float = 1.0) -> O:
    """``x`` within [low, high]; the derivative at the bounds is 0."""
    return where(le(x, low), low, where(ge(x, high), high, x))


def relu6(x: O) -> O:
    """``x`` within [0, 6]; the derivative at the bounds is 0."""
    return hardtanh(x, 0.0, 6.0)


@rounded_once
def hardsigmoid(x: O) -> O:
    """``x / 6 + 1/2`` within [0, 1]; at NaN the derivative is 0, as in torch."""
    bounded = where(le(x, -3), 0, where(ge(x, 3), literal(x, 1), np.nan))
    return where(logical_and(gt(x, -3), lt(x, 3)), add(div(x, 6), 0.5), bounded)


@rounded_once
def hardswish(x: O) -> O:
    """``x * hardsigmoid(x)``."""
    return where(le(x, -3), mul(x, 0), where(lt(x, 3), div(mul(x, add(x, 3)), 6), x))


def softsign(x: O) -> O:
    """``x / (1 + |x|)``."""
    return div(x, add(abs(x), 1))


def tanhshrink(x: O) -> O:
    """``x - tanh(x)``."""
    return sub(x, tanh(x))


def softshrink(x: O, width: float = 0.5) -> O:
    """``x`` moved towards 0 by ``width``, 0 where it would cross."""
    outside = where(gt(x, 0), sub(x, width), add(x, width))
    return where(logical_and(ge(x, -width), le(x, width)), 0, outside)


def hardshrink(x: O, width: float = 0.5) -> O:
    """``x``, but 0 where its magnitude is at most ``width``."""
    return where(logical_and(ge(x, -width), le(x, width)), 0, x)


@rounded_once  # the bound keeps its digits: 0.1 is less than the half nearest to it
def threshold(x: O, bound: float, value: float) -> O:
    """``x`` where it exceeds ``bound``, else ``value``."""
    return where(le(x, bound), value, x)


@rounded_once
def glu(x: O, axis: int = -1) -> O:
    """The first half along an axis times the sigmoid of the second half."""
    axis = normalize_axis(axis, x.spec.ndim, "glu")
    half = x.spec.shape[axis] // 2
    return mul(slice_axis(x, axis, 0, half), sigmoid(slice_axis(x, axis, half, None)))
