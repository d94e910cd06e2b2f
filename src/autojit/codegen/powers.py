"""pow and hypot.

pow is exp(y log|x|). In float64 log|x| is kept in two floats with a relative error of 2^-65, because the product with y
may be as large as 745 and its absolute error is the relative error of the result. float32 takes one float64 and short
polynomials. Special values follow C's ``pow``.
"""

from __future__ import annotations

from math import inf, nan

from autojit.codegen.coefficients import EXP_TAIL, LN2_SHORT, LOG_PAIR_TAIL
from autojit.codegen.exponentials import exp_normal, reduce_sum_by_ln2, scale
from autojit.codegen.float_format import FLOAT64, clamp, polynomial, power_of_two, quick_two_sum, two_product
from autojit.codegen.instructions import InstructionEmitter
from autojit.codegen.logarithms import log_short, split_finite
from autojit.codegen.scalar import Scalar
from autojit.core.dtypes import float32, float64, uint64

TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)


def log_pair(emit: InstructionEmitter, x: Scalar) -> tuple[Scalar, Scalar]:
    """log(x) in two floats for positive finite float64 x.

    log(m) = 2s + s^3 (2/3 + s^2 R(s^2)) with s = f/(2 + f); the first two terms in two floats each.
    """
    k, m = split_finite(emit, x)
    f = emit.sub(m, 1.0)
    bottom, bottom_low = quick_two_sum(emit, emit.constant(2.0, float64), f)
    inverse = emit.div(1.0, bottom)
    s = emit.mul(f, inverse)
    rest = emit.fma(emit.neg(s), bottom_low, emit.fma(emit.neg(s), bottom, f))
    s_low = emit.mul(rest, inverse)
    square, square_low = two_product(emit, s, s)
    square_low = emit.multiply_add(emit.add(s, s), s_low, square_low)
    tail = emit.mul(square, polynomial(emit, square, LOG_PAIR_TAIL["f64"]))
    factor, factor_low = quick_two_sum(emit, emit.constant(TWO_THIRDS[0], float64), tail)
    factor_low = emit.add(factor_low, emit.multiply_add(square_low, 0.4, TWO_THIRDS[1]))
    cube, cube_low = two_product(emit, s, square)
    cube_low = emit.add(cube_low, emit.multiply_add(s, square_low, emit.mul(s_low, square)))
    term, term_low = two_product(emit, cube, factor)
    term_low = emit.add(term_low, emit.multiply_add(cube, factor_low, emit.mul(cube_low, factor)))
    high, low = LN2_SHORT["f64"]
    total, error = quick_two_sum(emit, emit.add(s, s), term)
    total, carried = quick_two_sum(emit, emit.mul(k, high), total)
    small = emit.add(emit.multiply_add(s_low, 2.0, term_low), emit.add(error, carried))
    return quick_two_sum(emit, total, emit.multiply_add(k, low, small))


def _power_float64(emit: InstructionEmitter, a: Scalar, y: Scalar) -> Scalar:
    """a^y for a >= 0, up to pow's special values."""
    high, low = log_pair(emit, a)
    high = emit.select(emit.eq(a, 0.0), emit.constant(-inf, float64), high)
    high = emit.select(emit.eq(a, inf), emit.constant(inf, float64), high)
    product = emit.mul(y, high)
    product_low = emit.multiply_add(y, low, emit.fma(y, high, emit.neg(product)))
    product_low = emit.select(emit.lt(emit.abs(product), 800.0), product_low, emit.zero(a))
    shifted, r, r_low = reduce_sum_by_ln2(emit, clamp(emit, product, -746.0, 710.0), product_low)
    curved = emit.mul(emit.mul(r, r), polynomial(emit, r, EXP_TAIL["f64"]))
    return scale(emit, emit.add(emit.add(r, emit.add(curved, r_low)), 1.0), shifted)


def _power_float32(emit: InstructionEmitter, a: Scalar, y: Scalar) -> Scalar:
    """a^y for float32 operands widened to float64, in about 40 bits."""
    logarithm = log_short(emit, a)
    logarithm = emit.select(emit.eq(a, 0.0), emit.constant(-inf, float64), logarithm)
    logarithm = emit.select(emit.eq(a, inf), emit.constant(inf, float64), logarithm)
    return exp_normal(emit, clamp(emit, emit.mul(y, logarithm), -200.0, 200.0), "f40")


def pow(emit: InstructionEmitter, x: Scalar, y: Scalar) -> Scalar:
    """x ** y; 0.9 ulp. Special values are those of C's ``pow``."""
    if x.dtype is float32:
        return emit.cast(_pow(emit, emit.cast(x, float64), emit.cast(y, float64), narrow=True), float32)
    return _pow(emit, x, y, narrow=False)


def _pow(emit: InstructionEmitter, x: Scalar, y: Scalar, narrow: bool) -> Scalar:
    a = emit.abs(x)
    result = (_power_float32 if narrow else _power_float64)(emit, a, y)
    half = emit.mul(y, 0.5)
    whole = emit.eq(emit.trunc(y), y)
    odd = emit.logical_and(whole, emit.ne(emit.trunc(half), half))
    signed = emit.select(odd, emit.copysign(result, x), result)
    finite_negative = emit.logical_and(emit.lt(x, 0.0), emit.lt(a, inf))
    undefined = emit.logical_and(finite_negative, emit.logical_not(whole))
    unordered = emit.logical_or(emit.isnan(x), emit.isnan(y))
    result = emit.select(emit.logical_or(undefined, unordered), emit.constant(nan, float64), signed)
    turning = emit.logical_and(emit.eq(x, -1.0), emit.eq(emit.abs(y), inf))
    unit = emit.logical_or(emit.logical_or(emit.eq(x, 1.0), emit.eq(y, 0.0)), turning)
    return emit.select(unit, emit.one(x), result)


def hypot(emit: InstructionEmitter, x: Scalar, y: Scalar) -> Scalar:
    """sqrt(x^2 + y^2) without overflow; infinite if an operand is, even beside NaN."""
    if x.dtype is float32:
        wide_x, wide_y = emit.cast(x, float64), emit.cast(y, float64)
        result = emit.cast(emit.sqrt(emit.fma(wide_x, wide_x, emit.mul(wide_y, wide_y))), float32)
    else:
        result = _scaled_hypot(emit, emit.abs(x), emit.abs(y))
    infinite = emit.logical_or(emit.isinf(x), emit.isinf(y))
    return emit.select(infinite, emit.constant(inf, x.dtype), result)


def _scaled_hypot(emit: InstructionEmitter, a: Scalar, b: Scalar) -> Scalar:
    """Both operands are divided by the power of two of the greater one."""
    greater = emit.fmax(a, b)
    field = emit.shift_right(emit.bitcast(greater, uint64), FLOAT64.mantissa_bits)
    field = emit.minimum(emit.maximum(field, 53), 2 * FLOAT64.bias - 1)
    up = power_of_two(emit, field, FLOAT64)
    down = power_of_two(emit, emit.sub(2 * FLOAT64.bias, field), FLOAT64)
    p, q = emit.mul(emit.fmax(a, b), down), emit.mul(emit.fmin(a, b), down)
    result = emit.mul(emit.sqrt(emit.fma(p, p, emit.mul(q, q))), up)
    return emit.select(emit.logical_or(emit.isnan(a), emit.isnan(b)), emit.constant(nan, float64), result)
