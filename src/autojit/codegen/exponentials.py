"""exp and its kin: exp, exp2, expm1, sinh, cosh, tanh, sigmoid.

All reduce x = n ln 2 + r with |r| <= ln(2)/2, approximate on r, and scale by powers of two. ln 2 is split so that n
times its upper part cancels against x without rounding (the product is a multiple of the last bit kept); the lower
part then costs the only rounding of r.
"""

from __future__ import annotations

from autojit.codegen.coefficients import COSH_TAIL, EXP2_TAIL, EXP_TAIL, LN2, LOG2_E, SINH_TAIL, TANH_TAIL
from autojit.codegen.float_format import (
    FloatFormat,
    Pair,
    clamp,
    format_of,
    polynomial,
    polynomial_in_pairs,
    power_of_two,
    quick_two_sum,
)
from autojit.codegen.instructions import InstructionEmitter
from autojit.codegen.scalar import Scalar
from autojit.codegen.target_functions import DECLARATIONS, SCALED
from autojit.core.dtypes import float32

# Beyond these exp has reached infinity or zero; clamping there keeps n within the exponent arithmetic below.
EXP_RANGE = {"f32": (-104.5, 89.0), "f64": (-746.0, 710.0)}
EXP2_RANGE = {"f32": (-151.0, 128.5), "f64": (-1076.0, 1024.5)}
EXPM1_RANGE = {"f32": (-18.0, 89.0), "f64": (-38.0, 710.0)}
HYPERBOLIC_LIMIT = {"f32": 89.7, "f64": 710.8}  # n stays at 129 and 1025
TANH_LIMIT = {"f32": 10.0, "f64": 20.0}
TANH_SPLIT = 0.55


def reduce_by_ln2(emit: InstructionEmitter, x: Scalar) -> tuple[Scalar, Scalar]:
    """``shifted`` = round_magic + n and r = x - n ln 2, where n = round(x / ln 2)."""
    high, low = LN2[x.dtype.short]
    shifted, n = _nearest_multiple(emit, x)
    return shifted, emit.multiply_add(n, -low, emit.multiply_add(n, -high, x))


def reduce_sum_by_ln2(emit: InstructionEmitter, x: Scalar, x_low: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    """``shifted`` and r + r_low = x + x_low - n ln 2."""
    high, low = LN2[x.dtype.short]
    shifted, n = _nearest_multiple(emit, x)
    r, r_low = quick_two_sum(emit, emit.fma(n, -high, x), emit.multiply_add(n, -low, x_low))
    return shifted, r, r_low


def _nearest_multiple(emit: InstructionEmitter, x: Scalar) -> tuple[Scalar, Scalar]:
    form = format_of(x.dtype)
    shifted = emit.multiply_add(x, LOG2_E[x.dtype.short][0], form.round_magic)
    return shifted, emit.sub(shifted, form.round_magic)


def exponent_field(emit: InstructionEmitter, shifted: Scalar, form: FloatFormat, bias: int) -> Scalar:
    """n + bias as an unsigned integer, from round_magic + n."""
    return emit.sub(emit.bitcast(shifted, form.bits), form.bits_of(form.round_magic) - bias)


def scale(emit: InstructionEmitter, x: Scalar, shifted: Scalar) -> Scalar:
    """x * 2^n for x from 0 to 2, where n may reach from below the least denormal to above the greatest number.

    What is smaller than half of the least denormal is zero before it is scaled: where a product vanishes, Intel's
    processors compute it in microcode (exp(-1000), as of a masked score: 4.6 ns an element instead of 0.5).
    Of float32, ``shifted`` may then be anything that is less.
    """
    form = format_of(x.dtype)
    vanishes = emit.lt(shifted, form.round_magic - (form.bias + form.mantissa_bits))
    x = emit.select(vanishes, emit.zero(x), x)
    if x.dtype is float32:
        emit.definitions[SCALED] = DECLARATIONS[SCALED]
        n = exponent_field(emit, shifted, form, 0)
        return emit.instruction(f"call float {SCALED}(float {x.text}, i32 {n.text})", x.dtype)
    field = exponent_field(emit, shifted, form, 2 * form.bias)
    low = emit.shift_right(field, 1)
    high = emit.sub(field, low)
    return emit.mul(emit.mul(x, power_of_two(emit, low, form)), power_of_two(emit, high, form))


def exp_tail(emit: InstructionEmitter, r: Scalar, precision: str | None = None) -> Scalar:
    """exp(r) - 1 for |r| <= ln(2)/2: r + r^2 P(r). Precision ``f40`` serves float32 results computed in float64."""
    tail = polynomial_in_pairs(emit, r, EXP_TAIL[precision or r.dtype.short])
    return emit.multiply_add(emit.mul(r, r), tail, r)


def exp(emit: InstructionEmitter, x: Scalar) -> Scalar:
    """e ** x; 1.0 ulp."""
    shifted, r = reduce_by_ln2(emit, _limited(emit, x, EXP_RANGE))
    return scale(emit, emit.add(exp_tail(emit, r), 1.0), shifted)


def _limited(emit: InstructionEmitter, x: Scalar, limits: dict[str, tuple[float, float]]) -> Scalar:
    """x where exp is neither infinite nor, but for float32, zero: there `scale` says so, whatever comes of x."""
    low, high = limits[x.dtype.short]
    return emit.minimum(x, high) if x.dtype is float32 else clamp(emit, x, low, high)


def exp2(emit: InstructionEmitter, x: Scalar) -> Scalar:
    """2 ** x; 0.9 ulp."""
    form = format_of(x.dtype)
    x = _limited(emit, x, EXP2_RANGE)
    shifted = emit.add(x, form.round_magic)
    r = emit.sub(x, emit.sub(shifted, form.round_magic))  # exact
    tail = polynomial(emit, r, EXP2_TAIL[x.dtype.short])
    # The leading coefficient ln 2 in two parts: its rounding error alone would cost half an ulp.
    low_order = emit.mul(r, emit.multiply_add(tail, r, LN2[x.dtype.short][1]))
    return scale(emit, emit.add(emit.multiply_add(r, LN2[x.dtype.short][0], low_order), 1.0), shifted)


def expm1(emit: InstructionEmitter, x: Scalar) -> Scalar:
    """exp(x) - 1; 1.8 ulp."""
    form = format_of(x.dtype)
    low, high = EXPM1_RANGE[x.dtype.short]
    shifted, r = reduce_by_ln2(emit, clamp(emit, x, low, high))
    half_scale = power_of_two(emit, exponent_field(emit, shifted, form, form.bias - 1), form)
    half = emit.multiply_add(half_scale, exp_tail(emit, r), emit.sub(half_scale, 0.5))
    tiny = emit.lt(emit.abs(x), 2.0 ** -(form.mantissa_bits + 2))
    return emit.select(tiny, x, emit.add(half, half))  # keeps -0, and denormals that halving would cut


def exp_normal(emit: InstructionEmitter, x: Scalar, precision: str | None = None) -> Scalar:
    """exp for arguments whose result is a normal number; no clamps."""
    form = format_of(x.dtype)
    shifted, r = reduce_by_ln2(emit, x)
    factor = power_of_two(emit, exponent_field(emit, shifted, form, form.bias), form)
    return emit.multiply_add(exp_tail(emit, r, precision), factor, factor)


def sinh(emit: InstructionEmitter, x: Scalar) -> Scalar:
    """With a = |x|, A = 2^n/2, B = 2^-n/2: sinh(a) = (A - B) cosh(r) + (A + B) sinh(r)."""
    form = format_of(x.dtype)
    (quarter_sum, _), (quarter_difference, lost), cosh_tail, sinh_r = _hyperbolic_parts(emit, x)
    small = emit.multiply_add(quarter_sum, sinh_r, emit.multiply_add(quarter_difference, cosh_tail, lost))
    result = emit.mul(emit.add(quarter_difference, small), 2.0)
    tiny = emit.lt(emit.abs(x), 2.0 ** -(form.mantissa_bits // 2 + 2))
    return emit.copysign(emit.select(tiny, x, result), x)


def cosh(emit: InstructionEmitter, x: Scalar) -> Scalar:
    """With a = |x|, A = 2^n/2, B = 2^-n/2: cosh(a) = (A + B) cosh(r) + (A - B) sinh(r)."""
    (quarter_sum, lost), (quarter_difference, _), cosh_tail, sinh_r = _hyperbolic_parts(emit, x)
    small = emit.multiply_add(quarter_difference, sinh_r, emit.multiply_add(quarter_sum, cosh_tail, lost))
    return emit.mul(emit.add(quarter_sum, small), 2.0)


def _hyperbolic_parts(emit: InstructionEmitter, x: Scalar) -> tuple[Pair, Pair, Scalar, Scalar]:
    """(A + B)/2 and (A - B)/2 in two floats, cosh(r) - 1, sinh(r): halved as A overflows before sinh and cosh do."""
    form = format_of(x.dtype)
    shifted, r = reduce_by_ln2(emit, emit.minimum(emit.abs(x), HYPERBOLIC_LIMIT[x.dtype.short]))
    growing = power_of_two(emit, exponent_field(emit, shifted, form, form.bias - 2), form)
    # 2^-n stops mattering long before it leaves the normal range.
    stopped = emit.bitcast(emit.minimum(shifted, form.round_magic + 2 * form.mantissa_bits), form.bits)
    decaying = power_of_two(emit, emit.sub(form.bits_of(form.round_magic) + form.bias - 2, stopped), form)
    square = emit.mul(r, r)
    cosh_tail = emit.mul(square, polynomial(emit, square, COSH_TAIL[x.dtype.short]))
    cube = emit.mul(square, r)
    sinh_r = emit.multiply_add(cube, polynomial(emit, square, SINH_TAIL[x.dtype.short]), r)
    total, difference = (quick_two_sum(emit, growing, other) for other in (decaying, emit.neg(decaying)))
    return total, difference, cosh_tail, sinh_r


def tanh(emit: InstructionEmitter, x: Scalar) -> Scalar:
    """Near zero an odd polynomial; beyond, 1 - 2 / (exp(2|x|) + 1), where the quotient is at most a half."""
    a = emit.abs(x)
    square = emit.mul(a, a)
    near = emit.multiply_add(emit.mul(square, a), polynomial(emit, square, TANH_TAIL[x.dtype.short]), a)
    limited = emit.minimum(a, TANH_LIMIT[x.dtype.short])
    grown = exp_normal(emit, emit.add(limited, limited))
    far = emit.sub(1.0, emit.div(2.0, emit.add(grown, 1.0)))
    return emit.copysign(emit.select(emit.lt(a, TANH_SPLIT), near, far), x)


def sigmoid(emit: InstructionEmitter, x: Scalar) -> Scalar:
    """With e = exp(-|x|): 1/(1+e) for x >= 0, e/(1+e) below, where e may be denormal.

    e = s + s t enters unrounded: dividing (1 + t) by the rounded 1 + e and correcting the quotient by what 1 + e lost.
    """
    shifted, r = reduce_by_ln2(emit, emit.maximum(emit.neg(emit.abs(x)), EXP_RANGE[x.dtype.short][0]))
    tail = exp_tail(emit, r)
    rounded = emit.add(tail, 1.0)
    lost = emit.sub(tail, emit.sub(rounded, 1.0))
    decayed = scale(emit, rounded, shifted)
    bottom, bottom_low = quick_two_sum(emit, emit.one(x), decayed)
    negative = emit.lt(x, 0.0)
    quotient = emit.div(emit.select(negative, rounded, emit.one(x)), bottom)
    corrected = emit.multiply_add(emit.sub(lost, bottom_low), quotient, quotient)
    return emit.select(negative, scale(emit, corrected, shifted), quotient)
