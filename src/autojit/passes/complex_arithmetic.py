"""Arithmetic of complex numbers on their parts: what NumPy's loops compute, so that compiled and eager results agree.

Products are the plain four real ones, quotients Smith's: what is infinite or NaN in them is so in NumPy's. Rules are
functions of `Parts`; a real result is an operand.
"""

from __future__ import annotations

import operator
from functools import reduce
from typing import Any, NamedTuple

from autojit.core.sizes import is_symbolic
from autojit.ir.builder import Tracer
from autojit.ops.elementwise_arithmetic import add, div, mul, neg, sub, where
from autojit.ops.elementwise_complex import abs as magnitude
from autojit.ops.elementwise_logic import eq, ge, isfinite, isinf, isnan, le, logical_and, logical_or, logical_xor, ne
from autojit.ops.elementwise_selection import copysign
from autojit.ops.elementwise_trigonometric import atan2, hypot
from autojit.ops.joining import concatenate
from autojit.ops.shape import permute, reshape, slice_axis
from autojit.ops.sources import full_like, zeros_like


class Parts(NamedTuple):
    """A complex value as its real and its imaginary part, of one type."""

    re: Tracer
    im: Tracer


def product(x: Parts, y: Parts) -> Parts:
    """``x * y`` by four products."""
    return Parts(sub(mul(x.re, y.re), mul(x.im, y.im)), add(mul(x.re, y.im), mul(x.im, y.re)))


def quotient(x: Parts, y: Parts) -> Parts:
    """``x / y`` by Smith's method: no square of a part, so that none overflows."""
    is_wide = ge(magnitude(y.re), magnitude(y.im))
    is_zero = logical_and(eq(y.re, 0), eq(y.im, 0))
    large, small = where(is_wide, y.re, y.im), where(is_wide, y.im, y.re)
    ratio = where(is_zero, 0, div(small, large))
    scale = div(1, where(is_zero, magnitude(y.re), add(large, mul(small, ratio))))
    first, second = where(is_wide, x.re, x.im), where(is_wide, x.im, x.re)
    re = where(is_zero, first, add(first, mul(second, ratio)))
    im = where(is_zero, second, sub(second, mul(first, ratio)))
    return Parts(mul(re, scale), mul(where(is_wide, im, neg(im)), scale))


def reciprocal(x: Parts) -> Parts:
    """``1 / x`` by Smith's method."""
    is_wide = le(magnitude(x.im), magnitude(x.re))
    large, small = where(is_wide, x.re, x.im), where(is_wide, x.im, x.re)
    ratio = div(small, large)
    length = add(large, mul(small, ratio))
    scale, turned = div(1, length), div(ratio, length)
    return Parts(where(is_wide, scale, turned), neg(where(is_wide, turned, scale)))


def plus(x: Parts, y: Parts) -> Parts:
    """``x + y``."""
    return Parts(add(x.re, y.re), add(x.im, y.im))


def minus(x: Parts, y: Parts) -> Parts:
    """``x - y``."""
    return Parts(sub(x.re, y.re), sub(x.im, y.im))


def negative(x: Parts) -> Parts:
    """``-x``."""
    return Parts(neg(x.re), neg(x.im))


def conjugate(x: Parts) -> Parts:
    """The imaginary part negated."""
    return Parts(x.re, neg(x.im))


def square(x: Parts) -> Parts:
    """``x * x``."""
    return product(x, x)


def scaled(x: Parts, factor: Any) -> Parts:
    """Times a real number."""
    return Parts(mul(x.re, factor), mul(x.im, factor))


def chosen(condition: Tracer, x: Parts, y: Parts) -> Parts:
    """``x`` where the condition holds, else ``y``."""
    return Parts(where(condition, x.re, y.re), where(condition, x.im, y.im))


def is_zero(x: Parts) -> Tracer:
    """Both parts are."""
    return logical_and(eq(x.re, 0), eq(x.im, 0))


def is_nan(x: Parts) -> Tracer:
    """A part is."""
    return logical_or(isnan(x.re), isnan(x.im))


def is_infinite(x: Parts) -> Tracer:
    """A part is."""
    return logical_or(isinf(x.re), isinf(x.im))


def is_finite(x: Parts) -> Tracer:
    """Both parts are."""
    return logical_and(isfinite(x.re), isfinite(x.im))


def equal(x: Parts, y: Parts) -> Tracer:
    """Both parts are."""
    return logical_and(eq(x.re, y.re), eq(x.im, y.im))


def differ(x: Parts, y: Parts) -> Tracer:
    """A part does."""
    return logical_or(ne(x.re, y.re), ne(x.im, y.im))


def modulus(x: Parts) -> Tracer:
    """The length, without overflow."""
    return hypot(x.re, x.im)


def angle(x: Parts) -> Tracer:
    """The angle to the positive real axis, in radians."""
    return atan2(x.im, x.re)


def mended(where_zero: Tracer, found: Parts) -> Parts:
    """0 instead of NaN where an operand is 0."""
    dropped = logical_and(where_zero, is_nan(found))
    return Parts(where(dropped, 0, found.re), where(dropped, 0, found.im))


def guarded_product(x: Parts, y: Parts) -> Parts:
    """0 where ``x`` is 0, whatever ``y`` is."""
    return mended(is_zero(x), product(x, y))


def masked_product(x: Parts, y: Parts) -> Parts:
    """0 where one of them is 0, whatever the other is."""
    return mended(logical_or(is_zero(x), is_zero(y)), product(x, y))


def guarded_quotient(x: Parts, y: Parts) -> Parts:
    """0 where ``x`` is 0, whatever ``y`` is."""
    return mended(is_zero(x), quotient(x, y))


def direction(x: Parts) -> Parts:
    """``x / |x|``, 0 at 0. One infinite part alone is the whole direction."""
    length = modulus(x)
    is_far = logical_xor(isinf(x.re), isinf(x.im))
    re = where(is_far, where(isinf(x.re), copysign(full_like(x.re, 1), x.re), 0), div(x.re, length))
    im = where(is_far, where(isinf(x.im), copysign(full_like(x.im, 1), x.im), 0), div(x.im, length))
    is_none = eq(length, 0)
    return Parts(where(is_none, 0, re), where(is_none, 0, im))


def whole_power(x: Parts, exponent: int) -> Parts:
    """Repeated squaring; a negative exponent divides once at the end."""
    result: Parts | None = None
    power, rest = x, abs(exponent)
    while rest:
        if rest & 1:
            result = power if result is None else product(result, power)
        rest >>= 1
        if rest:
            power = product(power, power)
    found = Parts(full_like(x.re, 1), zeros_like(x.re)) if result is None else result
    return reciprocal(found) if exponent < 0 else found


def product_of_all(x: Parts, axes: tuple[int, ...]) -> Parts | None:
    """The product over axes, in halves; None where their extents are open."""
    shape = x.re.spec.shape
    kept = tuple(axis for axis in range(len(shape)) if axis not in axes)
    outer = tuple(shape[axis] for axis in kept)
    count = reduce(operator.mul, (shape[axis] for axis in axes), 1)
    if is_symbolic(count):
        return None
    found = Parts(*[reshape(permute(part, kept + axes), (*outer, count)) for part in x])
    if count == 0:
        return Parts(
            *[part._literal(value, part.spec.with_shape(outer)) for part, value in zip(x, (1, 0), strict=True)]
        )
    last = len(outer)
    while count > 1:
        half = count // 2
        low, high, rest = (
            Parts(*[slice_axis(part, last, start, stop) for part in found])
            for start, stop in ((0, half), (half, 2 * half), (2 * half, count))
        )
        found = product(low, high)
        if count % 2:
            tail = product(Parts(*[slice_axis(part, last, 0, 1) for part in found]), rest)
            found = tail if half == 1 else _joined(tail, found, last, half)
        count = half
    return Parts(*[reshape(part, outer) for part in found])


def _joined(first: Parts, every: Parts, axis: int, count: int) -> Parts:
    """All but the first element of ``every``, behind ``first``."""
    return Parts(*[concatenate([a, slice_axis(b, axis, 1, count)], axis) for a, b in zip(first, every, strict=True)])
