"""sin, cos, tan.

**Range: every finite argument.** x = n pi/2 + r by Cody and Waite's subtraction with pi/2 in three parts, which
serves |x| <= LIMIT. Beyond, the whole function is computed by `sin_large` and its kin, called through `rare_calls`: a
test per vector in the usual case. There x * 2/pi is needed modulo 4 only; with x = y * 2^s and y a large integer the
table `QUARTER_TURNS` holds 2^s * 2/pi modulo 4 in four floats, enough digits for the double nearest to a multiple of
pi/2 (Payne and Hanek's idea with float products instead of integer windows).
"""

from __future__ import annotations

from math import inf, nan
from typing import NamedTuple

from autojit.codegen.coefficients import COS_TAIL, HALF_PI, SIN_TAIL, TAN_TAIL
from autojit.codegen.float_format import FLOAT64, format_of, polynomial, quick_two_sum, two_product, two_sum
from autojit.codegen.instructions import InstructionEmitter
from autojit.codegen.quarter_turns import FIRST_FIELD, STEP_BITS
from autojit.codegen.scalar import Scalar
from autojit.core.dtypes import float32, float64, uint64

LIMIT = {"f32": 1e5, "f64": 2.0**30}
TWO_OVER_PI = 0.6366197723675814


class Reduced(NamedTuple):
    """x modulo a quarter turn: the quadrant (its two low bits count) and r + r_low in about [-pi/4, pi/4]."""

    quadrant: Scalar
    r: Scalar
    r_low: Scalar


def reduce_usual(emit: InstructionEmitter, x: Scalar, with_low: bool = True) -> Reduced:
    """For |x| <= LIMIT. The product of n and the first part of pi/2 cancels against x exactly.

    Without r_low (float32 only) r has one more rounding, which sin and cos can afford.
    """
    form = format_of(x.dtype)
    first, second, third = HALF_PI[x.dtype.short]
    shifted = emit.multiply_add(x, TWO_OVER_PI, form.round_magic)
    quadrant = emit.bitcast(shifted, form.bits)
    n = emit.sub(shifted, form.round_magic)
    r = emit.fma(n, -first, x)
    if not with_low:
        r = emit.fma(n, -third, emit.fma(n, -second, r))
        return Reduced(quadrant, r, emit.zero(r))
    product, product_error = two_product(emit, n, emit.constant(-second, x.dtype))
    r, error = quick_two_sum(emit, r, product)  # exact, as r is a multiple of the lesser product's last place
    return Reduced(quadrant, r, emit.add(error, emit.fma(n, -third, product_error)))


def reduce_large(emit: InstructionEmitter, x: Scalar) -> Reduced:
    """For any float64, of about 65 roundings: 200 bits of 2/pi against the worst case's 62 bits of cancellation."""
    field = emit.shift_right(emit.bitcast(emit.abs(x), uint64), FLOAT64.mantissa_bits)
    above = emit.sub(emit.maximum(field, FIRST_FIELD), FIRST_FIELD)
    row = emit.shift_right(above, STEP_BITS)
    lowered = emit.sub(emit.bitcast(x, uint64), emit.shift_left(row, STEP_BITS + FLOAT64.mantissa_bits))
    y = emit.select(emit.lt(emit.abs(x), inf), emit.bitcast(lowered, float64), emit.constant(nan, float64))
    parts = emit.table("quarter_turns", row, 4)
    (turns, turns_low), (middle, middle_low), (low, lowest) = (two_product(emit, y, part) for part in parts[:3])
    whole = emit.round(emit.mul(turns, 0.25))
    turns = emit.fma(whole, -4.0, turns)
    turns, first_error = two_sum(emit, turns, turns_low)
    turns, second_error = two_sum(emit, turns, middle)
    shifted = emit.add(turns, FLOAT64.round_magic)
    fraction = emit.sub(turns, emit.sub(shifted, FLOAT64.round_magic))
    lowest = emit.multiply_add(y, parts[3], lowest)
    for small in (first_error, second_error, middle_low, low):
        fraction, error = two_sum(emit, fraction, small)
        lowest = emit.add(lowest, error)
    fraction, lowest = quick_two_sum(emit, fraction, lowest)
    first, second, _ = HALF_PI["f64"]
    r, r_low = two_product(emit, fraction, emit.constant(first, float64))
    r_low = emit.multiply_add(fraction, second, emit.multiply_add(lowest, first, r_low))
    return Reduced(emit.bitcast(shifted, uint64), r, r_low)


def _sin_kernel(emit: InstructionEmitter, r: Scalar, r_low: Scalar, square: Scalar) -> Scalar:
    tail = emit.mul(square, polynomial(emit, square, SIN_TAIL[r.dtype.short]))
    if r.dtype is float32:
        return emit.multiply_add(r, tail, r)
    # sin(r + r_low) = sin(r) + r_low cos(r)
    correction = emit.multiply_add(emit.mul(square, -0.5), r_low, r_low)
    return emit.add(r, emit.multiply_add(r, tail, correction))


def _cos_kernel(emit: InstructionEmitter, r: Scalar, r_low: Scalar, square: Scalar) -> Scalar:
    tail = polynomial(emit, square, COS_TAIL[r.dtype.short])
    if r.dtype is float32:
        return emit.multiply_add(square, emit.multiply_add(square, tail, -0.5), 1.0)
    half = emit.mul(square, 0.5)
    top, error = quick_two_sum(emit, emit.one(r), emit.neg(half))
    fourth = emit.mul(emit.mul(square, square), tail)
    below = emit.add(error, emit.multiply_add(emit.neg(r), r_low, fourth))
    return emit.add(top, below)


def _sin_or_cos(emit: InstructionEmitter, reduced: Reduced, turn: int) -> Scalar:
    quadrant, r, r_low = reduced
    form = format_of(r.dtype)
    if turn:
        quadrant = emit.add(quadrant, turn)
    square = emit.mul(r, r)
    odd = emit.ne(emit.bitwise_and(quadrant, 1), 0)
    value = emit.select(odd, _cos_kernel(emit, r, r_low, square), _sin_kernel(emit, r, r_low, square))
    sign = emit.shift_left(emit.bitwise_and(quadrant, 2), 8 * form.dtype.size_bytes - 2)
    return emit.bitcast(emit.bitwise_xor(emit.bitcast(value, form.bits), sign), form.dtype)


def _tan(emit: InstructionEmitter, reduced: Reduced) -> Scalar:
    """tan(r) in even quadrants, -1/tan(r) in odd ones."""
    quadrant, r, r_low = reduced
    square = emit.mul(r, r)
    tail = emit.mul(square, polynomial(emit, square, TAN_TAIL[r.dtype.short]))
    # tan(r + r_low) = tan(r) + r_low (1 + tan(r)^2)
    correction = emit.multiply_add(emit.multiply_add(square, tail, square), r_low, r_low)
    even, low = quick_two_sum(emit, r, emit.multiply_add(r, tail, correction))
    inverse = emit.div(-1.0, even)
    residual = emit.multiply_add(inverse, low, emit.fma(inverse, even, 1.0))
    odd = emit.multiply_add(inverse, residual, inverse)
    return emit.select(emit.ne(emit.bitwise_and(quadrant, 1), 0), odd, even)


def _with_large(emit: InstructionEmitter, x: Scalar, usual: Scalar, name: str) -> Scalar:
    limit = LIMIT[x.dtype.short]
    large = emit.call_rarely(name, limit, x)
    return emit.select(emit.gt(emit.abs(x), limit), large, usual)


def _keep_tiny(emit: InstructionEmitter, x: Scalar, value: Scalar) -> Scalar:
    """x itself where f(x) rounds to it: keeps -0 and spares the reduction's products from the denormals."""
    tiny = emit.lt(emit.abs(x), 2.0 ** -(format_of(x.dtype).mantissa_bits // 2 + 2))
    return emit.select(tiny, x, value)


def sin_usual(emit: InstructionEmitter, x: Scalar) -> Scalar:
    """sin(x) for |x| <= LIMIT; loses the sign of zero."""
    return _sin_or_cos(emit, reduce_usual(emit, x, x.dtype is float64), 0)


def tan_usual(emit: InstructionEmitter, x: Scalar) -> Scalar:
    """tan(x) for |x| <= LIMIT; loses the sign of zero."""
    return _tan(emit, reduce_usual(emit, x))


def sin(emit: InstructionEmitter, x: Scalar) -> Scalar:
    """Of infinity: NaN. The sign of zero is kept."""
    return _keep_tiny(emit, x, _with_large(emit, x, sin_usual(emit, x), "sin_large"))


def cos(emit: InstructionEmitter, x: Scalar) -> Scalar:
    """Of infinity: NaN."""
    return _with_large(emit, x, _sin_or_cos(emit, reduce_usual(emit, x, x.dtype is float64), 1), "cos_large")


def tan(emit: InstructionEmitter, x: Scalar) -> Scalar:
    """Of infinity: NaN. The sign of zero is kept."""
    return _keep_tiny(emit, x, _with_large(emit, x, tan_usual(emit, x), "tan_large"))


def sin_large(emit: InstructionEmitter, x: Scalar) -> Scalar:
    """sin of any float64."""
    return _sin_or_cos(emit, reduce_large(emit, x), 0)


def cos_large(emit: InstructionEmitter, x: Scalar) -> Scalar:
    """cos of any float64."""
    return _sin_or_cos(emit, reduce_large(emit, x), 1)


def tan_large(emit: InstructionEmitter, x: Scalar) -> Scalar:
    """tan of any float64."""
    return _tan(emit, reduce_large(emit, x))
