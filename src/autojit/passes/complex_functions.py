"""Elementary functions of complex numbers on their parts, with C99's special values and branch cuts.

Functions that are others of a turned argument (``sin(z) = -i sinh(iz)``) are computed so: cuts and zeros' signs come
with them. Sources: W. Kahan, "Branch cuts for complex elementary functions", 1987; Hull, Fairgrieve and Tang,
"Implementing the complex arcsine and arccosine functions using exception handling", ACM TOMS 23(3), 1997.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autojit.ir.builder import Tracer
from autojit.ops import elementwise_exponential as real_exponential
from autojit.ops import elementwise_trigonometric as real
from autojit.ops.elementwise_arithmetic import add, div, mul, neg, sub, where
from autojit.ops.elementwise_complex import abs as magnitude
from autojit.ops.elementwise_logic import (
    eq,
    ge,
    gt,
    isfinite,
    isinf,
    isnan,
    le,
    logical_and,
    logical_not,
    logical_or,
    lt,
    signbit,
)
from autojit.ops.elementwise_selection import copysign, maximum, minimum
from autojit.ops.sources import full_like, zeros_like
from autojit.passes.complex_arithmetic import Parts, is_zero, plus, product, quotient, reciprocal, scaled, whole_power

_LN2 = math.log(2.0)
_LONGEST_CHAIN = 99  # of whole powers: NumPy multiplies below 100, too


def _limits(x: Tracer) -> Any:
    return np.finfo(x.spec.dtype.numpy)


# -- exponentials


def exp(x: Parts) -> Parts:
    """``e ** x``: where the magnitude overflows alone, half of the exponent at a time."""
    a, b = x
    is_large = gt(a, math.log(float(_limits(a).max)) - 1)
    length = real_exponential.exp(where(is_large, mul(a, 0.5), a))
    again = where(is_large, length, 1)
    is_open = logical_and(isinf(a), logical_not(isfinite(b)))  # no direction: 0, or infinite in the real part
    vanishes = logical_and(is_open, lt(a, 0))
    re = mul(mul(length, real.cos(b)), again)
    im = where(eq(b, 0), b, mul(mul(length, real.sin(b)), again))
    return Parts(where(is_open, where(vanishes, 0, a), re), where(vanishes, 0, im))


def exp2(x: Parts) -> Parts:
    """``2 ** x``."""
    return exp(scaled(x, _LN2))


def expm1(x: Parts) -> Parts:
    """``e ** x - 1``; what cancels is a sine of half the angle."""
    a, b = x
    half = real.sin(mul(b, 0.5))
    re = sub(mul(real_exponential.expm1(a), real.cos(b)), mul(mul(half, 2), half))
    return Parts(re, mul(real_exponential.exp(a), real.sin(b)))


def sigmoid(x: Parts) -> Parts:
    """``1 / (1 + e ** -x)``."""
    grown = exp(Parts(neg(x.re), neg(x.im)))
    one = Parts(full_like(x.re, 1), zeros_like(x.re))
    return quotient(one, plus(one, grown))


# -- logarithms


def log(x: Parts) -> Parts:
    """Accurate near the unit circle, and without overflow elsewhere."""
    a, b = magnitude(x.re), magnitude(x.im)
    large = where(logical_or(isinf(a), isinf(b)), math.inf, maximum(a, b))
    small = minimum(a, b)
    is_near = logical_and(gt(large, 0.5), lt(large, 2))
    is_edge = logical_or(eq(large, 0), isinf(large))
    ratio = where(is_edge, 0, div(small, large))
    beyond = add(mul(sub(large, 1), add(large, 1)), mul(small, small))
    rest = real_exponential.log1p(where(is_near, beyond, mul(ratio, ratio)))
    re = add(where(is_near, 0, real_exponential.log(large)), mul(rest, 0.5))
    return Parts(re, real.atan2(x.im, x.re))


def log2(x: Parts) -> Parts:
    """To base 2."""
    return scaled(log(x), 1 / _LN2)


def log10(x: Parts) -> Parts:
    """To base 10."""
    return scaled(log(x), 1 / math.log(10.0))


def log1p(x: Parts) -> Parts:
    """As NumPy: the logarithm of the shifted number, accurate for small ones as ``log`` is near 1."""
    a, b = magnitude(x.re), magnitude(x.im)
    shifted = log(Parts(add(x.re, 1), x.im))
    is_small = logical_and(lt(a, 0.5), lt(b, 0.5))
    inside = add(mul(x.re, add(x.re, 2)), mul(x.im, x.im))
    near = mul(real_exponential.log1p(where(is_small, inside, 0)), 0.5)
    return Parts(where(is_small, near, shifted.re), shifted.im)


# -- roots and powers


def sqrt(x: Parts) -> Parts:
    """The root in the right half plane; scaled where squares of the parts overflow or vanish."""
    limits = _limits(x.re)
    size = maximum(magnitude(x.re), magnitude(x.im))
    is_large, is_tiny = gt(size, float(limits.max) / 4), lt(size, float(limits.tiny) * 4)
    up = 2.0 ** (limits.nmant + 1 + (limits.nmant + 1) % 2)
    factor = where(is_large, 1 / 16, where(is_tiny, up, full_like(size, 1)))
    a, b = mul(x.re, factor), mul(x.im, factor)
    root = real_exponential.sqrt(mul(add(magnitude(a), real.hypot(a, b)), 0.5))
    other = div(magnitude(b), mul(root, 2))
    back = where(is_large, 4, where(is_tiny, up**-0.5, full_like(size, 1)))
    is_right = logical_not(signbit(x.re))
    re = mul(where(is_right, root, other), back)
    im = mul(where(is_right, other, root), back)
    is_none, is_far = is_zero(x), isinf(x.re)
    wild = where(isnan(x.im), x.im, 0)  # what the part that is not infinite becomes beside an infinite one
    re = where(is_none, 0, where(is_far, where(is_right, math.inf, wild), re))
    im = where(is_none, 0, where(is_far, where(is_right, wild, math.inf), im))
    is_up = isinf(x.im)
    return Parts(where(is_up, math.inf, re), copysign(where(is_up, math.inf, im), x.im))


def rsqrt(x: Parts) -> Parts:
    """``1 / sqrt(x)``."""
    return reciprocal(sqrt(x))


def power(x: Parts, y: Parts) -> Parts:
    """``x ** y`` by the logarithm; 0 to a power in the right half plane is 0, to the power 0 it is 1, to others NaN."""
    found = exp(product(y, log(x)))
    is_flat = is_zero(y)
    at_zero = where(gt(y.re, 0), 0, full_like(x.re, math.nan))
    base = is_zero(x)
    re = where(is_flat, 1, where(base, at_zero, found.re))
    im = where(is_flat, 0, where(base, at_zero, found.im))
    return Parts(re, im)


def power_of_number(x: Parts, exponent: complex) -> Parts:
    """``x ** exponent``; a whole exponent multiplies."""
    value = complex(exponent)
    if exponent == 0.5:
        return sqrt(x)
    if exponent == -0.5:
        return rsqrt(x)
    if value.imag == 0 and value.real == int(value.real) and abs(value.real) <= _LONGEST_CHAIN:
        return whole_power(x, int(value.real))
    return power(x, Parts(full_like(x.re, value.real), full_like(x.im, value.imag)))


# -- hyperbolic and trigonometric functions


def sinh(x: Parts) -> Parts:
    """``sinh(a) cos(b) + i cosh(a) sin(b)``."""
    a, b = x
    stays = logical_or(eq(a, 0), logical_and(isinf(a), logical_not(isfinite(b))))
    re = where(stays, a, mul(real.sinh(a), real.cos(b)))
    return Parts(re, where(eq(b, 0), b, mul(real.cosh(a), real.sin(b))))


def cosh(x: Parts) -> Parts:
    """``cosh(a) cos(b) + i sinh(a) sin(b)``."""
    a, b = x
    is_far = logical_and(isinf(a), logical_not(isfinite(b)))
    re = where(is_far, math.inf, mul(real.cosh(a), real.cos(b)))
    on_axis = logical_or(eq(a, 0), eq(b, 0))
    side = where(eq(a, 0), a, copysign(full_like(a, 1), a))
    return Parts(re, where(on_axis, mul(side, where(eq(b, 0), b, 1)), mul(real.sinh(a), real.sin(b))))


def tanh(x: Parts) -> Parts:
    """Kahan's; where the real part is large, by its exponential, which then decides alone."""
    a, b = x
    far = math.log(float(_limits(a).max)) / 4
    is_far = gt(magnitude(a), far)
    near = where(is_far, 0, a)
    tangent, s = real.tan(b), real.sinh(near)
    beta = add(mul(tangent, tangent), 1)
    rho = real_exponential.sqrt(add(mul(s, s), 1))
    bottom = add(mul(beta, mul(s, s)), 1)
    re, im = div(mul(beta, mul(rho, s)), bottom), div(tangent, bottom)
    decay = real_exponential.exp(mul(magnitude(a), -2))
    turn = mul(mul(real.sin(b), real.cos(b)), 4)
    limit = copysign(where(logical_or(isfinite(b), isinf(a)), full_like(a, 1), math.nan), a)
    re = where(is_far, limit, where(eq(a, 0), a, re))
    tail = where(logical_and(isinf(a), logical_not(isfinite(b))), 0, mul(turn, decay))
    return Parts(re, where(eq(b, 0), b, where(is_far, tail, im)))


def _turned(x: Parts) -> Parts:
    """``i x``."""
    return Parts(neg(x.im), x.re)


def _turned_back(x: Parts) -> Parts:
    """``-i x``."""
    return Parts(x.im, neg(x.re))


def sin(x: Parts) -> Parts:
    """``-i sinh(ix)``."""
    return _turned_back(sinh(_turned(x)))


def cos(x: Parts) -> Parts:
    """``cosh(ix)``."""
    return cosh(_turned(x))


def tan(x: Parts) -> Parts:
    """``-i tanh(ix)``."""
    return _turned_back(tanh(_turned(x)))


# -- their inverses


def _arc_lengths(x: Tracer, y: Tracer) -> tuple[Tracer, Tracer, Tracer]:
    """Hull, Fairgrieve and Tang's arcsine and arccosine of ``x + iy`` in the first quadrant.

    The real part of the arcsine, that of the arccosine, and the imaginary part of both but for signs.
    """
    limits = _limits(x)
    size = maximum(x, y)
    is_far = logical_or(gt(size, float(limits.eps) ** -1), logical_or(isinf(x), isinf(y)))
    u, v = where(is_far, 0.5, x), where(is_far, 0.5, y)
    r, s = real.hypot(add(u, 1), v), real.hypot(sub(u, 1), v)
    a = mul(add(r, s), 0.5)
    b = div(u, a)
    is_inside = le(u, 1)
    by_r = mul(v, div(v, add(r, add(u, 1))))
    off = magnitude(sub(u, 1))  # s + |u - 1| does not cancel; the other sum is v**2 over it
    whole = add(s, off)
    missing = mul(v, div(v, where(eq(whole, 0), 1, whole)))
    left, right = where(is_inside, whole, missing), where(is_inside, missing, whole)  # s + (1 - u), s - (1 - u)
    apart = real_exponential.sqrt(mul(mul(add(a, u), add(by_r, left)), 0.5))  # sqrt(a**2 - u**2)
    is_wide = gt(b, 0.6417)
    on_cut = where(is_wide, 0, b)
    asine = where(is_wide, real.atan2(u, apart), real.asin(on_cut))
    acosine = where(is_wide, real.atan2(apart, u), real.acos(on_cut))
    beyond = mul(add(by_r, right), 0.5)  # a - 1
    height = real_exponential.log1p(add(beyond, real_exponential.sqrt(mul(beyond, add(a, 1)))))
    is_thin = logical_and(le(v, mul(off, float(limits.eps))), lt(u, 1))  # a - 1 may vanish there
    height = where(is_thin, div(v, real_exponential.sqrt(where(is_thin, mul(sub(1, u), add(u, 1)), 1))), height)
    long = add(log(Parts(x, y)).re, _LN2)
    return (
        where(is_far, real.atan2(x, y), asine),
        where(is_far, real.atan2(y, x), acosine),
        where(is_far, long, height),
    )


def asin(x: Parts) -> Parts:
    """Cuts beyond -1 and 1 on the real axis."""
    angle, _, height = _arc_lengths(magnitude(x.re), magnitude(x.im))
    return Parts(copysign(where(eq(x.re, 0), 0, angle), x.re), copysign(height, x.im))


def acos(x: Parts) -> Parts:
    """Cuts beyond -1 and 1 on the real axis."""
    _, angle, height = _arc_lengths(magnitude(x.re), magnitude(x.im))
    re = where(signbit(x.re), sub(math.pi, angle), angle)
    re = where(eq(x.re, 0), math.pi / 2, re)
    return Parts(re, copysign(height, neg(x.im)))


def asinh(x: Parts) -> Parts:
    """``-i asin(ix)``."""
    return _turned_back(asin(_turned(x)))


def acosh(x: Parts) -> Parts:
    """The arccosine turned into the right half plane."""
    found = acos(x)
    return Parts(magnitude(found.im), copysign(found.re, x.im))


def atanh(x: Parts) -> Parts:
    """By the logarithm of a quotient of distances to 1 and -1; what is far away is a reciprocal."""
    a, b = magnitude(x.re), magnitude(x.im)
    limits = _limits(a)
    size = maximum(a, b)
    is_far = logical_or(gt(size, float(limits.eps) ** -1), logical_or(isinf(a), isinf(b)))
    u, v = where(is_far, 0.5, a), where(is_far, 0.5, b)
    gap = sub(1, u)
    distance = add(mul(gap, gap), mul(v, v))
    re = mul(real_exponential.log1p(div(mul(u, 4), distance)), 0.25)
    is_close = logical_and(eq(gap, 0), lt(v, float(limits.tiny) ** 0.5))  # the square of the distance vanishes
    close = mul(sub(_LN2, real_exponential.log(v)), 0.5)
    re = where(eq(u, 0), 0, where(is_close, close, re))
    im = mul(real.atan2(mul(v, 2), sub(mul(gap, add(u, 1)), mul(v, v))), 0.5)
    ratio = where(ge(a, b), div(b, a), div(a, b))
    inverse = where(ge(a, b), div(1, mul(a, add(mul(ratio, ratio), 1))), div(ratio, mul(b, add(mul(ratio, ratio), 1))))
    inverse = where(logical_or(isinf(a), isinf(b)), 0, inverse)
    far_im = where(isnan(b), b, math.pi / 2)
    re, im = where(is_far, inverse, re), where(is_far, far_im, im)
    return Parts(copysign(re, x.re), copysign(im, x.im))


def atan(x: Parts) -> Parts:
    """``-i atanh(ix)``."""
    return _turned_back(atanh(_turned(x)))


__all__ = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "cos",
    "cosh",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log1p",
    "log2",
    "log10",
    "power",
    "power_of_number",
    "rsqrt",
    "sigmoid",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
]  # fmt: skip
