"""asin, acos, atan, atan2."""

from __future__ import annotations

from math import inf, nan

from autojit.codegen.coefficients import ASIN_TAIL, ATAN_TAIL, HALF_PI
from autojit.codegen.float_format import format_of, polynomial, quick_two_sum, rough_inverse
from autojit.codegen.instructions import InstructionEmitter
from autojit.codegen.scalar import Scalar
from autojit.core.dtypes import float32, float64

TAN_PI_8 = 0.41421356237309503


def _asin_parts(emit: InstructionEmitter, x: Scalar) -> tuple[Scalar, Scalar, Scalar, Scalar]:
    """Whether |x| > 1/2, and s, s_low, s_tail whose sum is asin(s): s = |x|, or sqrt((1 - |x|)/2) near 1."""
    a = emit.abs(x)
    outer = emit.gt(a, 0.5)
    square = emit.select(outer, emit.multiply_add(a, -0.5, 0.5), emit.mul(a, a))
    root = emit.sqrt(square)
    error = emit.mul(emit.mul(emit.fma(emit.neg(root), root, square), 0.5), rough_inverse(emit, root))
    s = emit.select(outer, root, a)
    s_low = emit.select(outer, error, emit.zero(x))
    tail = emit.mul(emit.mul(s, square), polynomial(emit, square, ASIN_TAIL[x.dtype.short]))
    return outer, s, s_low, tail


def asin(emit: InstructionEmitter, x: Scalar) -> Scalar:
    """NaN outside [-1, 1]."""
    high, low, _ = HALF_PI[x.dtype.short]
    outer, s, s_low, tail = _asin_parts(emit, x)
    inner_value = emit.add(s, tail)
    top, error = quick_two_sum(emit, emit.constant(high, x.dtype), emit.mul(s, -2.0))
    rest = emit.add(emit.multiply_add(emit.add(tail, s_low), -2.0, low), error)
    result = emit.select(outer, emit.add(top, rest), inner_value)
    return emit.copysign(result, x)


def acos(emit: InstructionEmitter, x: Scalar) -> Scalar:
    """NaN outside [-1, 1]. Inside pi/2 - asin(x); near 1 twice, near -1 pi less twice asin(s)."""
    high, low, _ = HALF_PI[x.dtype.short]
    outer, s, s_low, tail = _asin_parts(emit, x)
    signed = emit.copysign(s, x)
    signed_tail = emit.copysign(tail, x)
    base = emit.select(outer, emit.constant(2 * high, x.dtype), emit.constant(high, x.dtype))
    base_low = emit.select(outer, emit.constant(2 * low, x.dtype), emit.constant(low, x.dtype))
    factor = emit.select(outer, emit.constant(2.0, x.dtype), emit.neg(emit.one(x)))
    # inner: base - asin(x); outer and x < 0: base + 2 asin(-s) ; outer and x > 0: 2 asin(s)
    upper = emit.logical_and(outer, emit.gt(x, 0.0))
    base = emit.select(upper, emit.zero(x), base)
    base_low = emit.select(upper, emit.zero(x), base_low)
    top = emit.mul(factor, signed)
    total = emit.add(base, top)
    error = emit.select(upper, emit.zero(x), emit.sub(top, emit.sub(total, base)))
    small = emit.add(signed_tail, emit.copysign(s_low, emit.mul(s_low, x)))
    rest = emit.add(emit.multiply_add(factor, small, base_low), error)
    return emit.add(total, rest)


def _atan_quotient(
    emit: InstructionEmitter, numerator: Scalar, denominator: Scalar, precision: str | None = None
) -> Scalar:
    """atan(numerator / denominator) for both >= 0, not both 0 or infinite, and far from overflow.

    The quotient t is brought to |q| <= tan(pi/8): q = t, (t - 1)/(t + 1) or -1/t, atan(t) = offset + atan(q).
    """
    middle = emit.gt(numerator, emit.mul(denominator, TAN_PI_8))
    upper = emit.gt(emit.mul(numerator, TAN_PI_8), denominator)
    top = emit.select(middle, emit.sub(numerator, denominator), numerator)
    bottom = emit.select(middle, emit.add(numerator, denominator), denominator)
    q = emit.div(emit.select(upper, emit.neg(denominator), top), emit.select(upper, numerator, bottom))
    high, low, _ = HALF_PI[q.dtype.short]
    zero = emit.zero(q)
    offset = emit.select(middle, emit.constant(high / 2, q.dtype), zero)
    offset = emit.select(upper, emit.constant(high, q.dtype), offset)
    offset_low = emit.select(middle, emit.constant(low / 2, q.dtype), zero)
    offset_low = emit.select(upper, emit.constant(low, q.dtype), offset_low)
    square = emit.mul(q, q)
    tail = emit.mul(emit.mul(q, square), polynomial(emit, square, ATAN_TAIL[precision or q.dtype.short]))
    return emit.add(offset, emit.add(q, emit.add(tail, offset_low)))


def atan(emit: InstructionEmitter, x: Scalar) -> Scalar:
    """In [-pi/2, pi/2]."""
    limit = 2.0 ** (format_of(x.dtype).mantissa_bits + 4)  # beyond, atan is pi/2
    a = emit.minimum(emit.abs(x), limit)
    return emit.copysign(_atan_quotient(emit, a, emit.one(x)), x)


def atan2(emit: InstructionEmitter, y: Scalar, x: Scalar) -> Scalar:
    """The angle of the point (x, y) in [-pi, pi], with C's special values; float32 in float64."""
    if x.dtype is float32:
        return emit.cast(_atan2(emit, emit.cast(y, float64), emit.cast(x, float64), "f40"), float32)
    return _atan2(emit, y, x, "f64")


def _atan2(emit: InstructionEmitter, y: Scalar, x: Scalar, precision: str) -> Scalar:
    ay, ax = emit.abs(y), emit.abs(x)
    greatest = emit.maximum(ay, ax)
    # Powers of two move the operands away from overflow and from the loss of denormals.
    factor = emit.select(emit.gt(greatest, 2.0**1000), emit.constant(2.0**-60, x.dtype), emit.one(x))
    factor = emit.select(emit.lt(greatest, 2.0**-900), emit.constant(2.0**140, x.dtype), factor)
    numerator = _scaled_for_quotient(emit, ay, ax, factor)
    denominator = _scaled_for_quotient(emit, ax, ay, factor)
    denominator = emit.select(emit.eq(greatest, 0.0), emit.one(x), denominator)
    angle = _atan_quotient(emit, numerator, denominator, precision)
    negative = emit.lt(emit.copysign(emit.one(x), x), 0.0)
    high, low, _ = HALF_PI["f64"]
    mirrored = emit.add(emit.sub(2 * high, angle), 2 * low)
    result = emit.copysign(emit.select(negative, mirrored, angle), y)
    return emit.select(emit.logical_or(emit.isnan(x), emit.isnan(y)), emit.constant(nan, x.dtype), result)


def _scaled_for_quotient(emit: InstructionEmitter, a: Scalar, other: Scalar, factor: Scalar) -> Scalar:
    """a * factor; if an operand is infinite, 1 for the infinite ones and 0 for the finite one."""
    finite = emit.select(emit.eq(other, inf), emit.zero(a), emit.mul(a, factor))
    return emit.select(emit.eq(a, inf), emit.one(a), finite)
