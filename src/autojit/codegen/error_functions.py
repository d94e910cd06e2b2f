"""erf, erfc, erfinv.

erfc(a) for a >= 0 is exp(-a^2) * H(v) / (1 + 2a) on the whole half line. H = (1 + 2a) erfcx(a) = 1 + (v + 1) G(v) is
between 1 and 1.3, so rounding errors of G and of v = (a - K)/(a + K) hardly matter, while the 1, exp(-a^2) and
1/(1 + 2a) carry their rounding errors along as low-order parts. Thus the tail keeps its relative accuracy down to the
denormals. The form of H follows Shepherd and Laframboise, Math. Comp. 36 (1981).
"""

from __future__ import annotations

from math import inf

from autojit.codegen.coefficients import ERF_FAR, ERF_NEAR, ERFCX, ERFINV_CENTRE, ERFINV_MIDDLE, ERFINV_TAIL, EXP_TAIL
from autojit.codegen.exponentials import reduce_sum_by_ln2, scale
from autojit.codegen.float_format import polynomial, polynomial_in_pairs, polynomial_pair, quick_two_sum, two_product
from autojit.codegen.instructions import InstructionEmitter
from autojit.codegen.scalar import Scalar
from autojit.core.dtypes import float32

CENTRE = {"f32": 3.0, "f64": 4.0}  # K of erfc
VANISHED = {"f32": 10.0547, "f64": 27.2265}  # erfc beyond rounds to zero: it is 2^-150 at 10.0542, 2^-1075 at 27.2260
ERF_ONE = {"f32": 3.93, "f64": 6.0}  # erf beyond rounds to one
ERF_SPLIT = {"f32": 0.96, "f64": 1.0}
ERF_CENTRE = 3.0  # K of erf
ERFINV_SPLIT = (6.25, 16.0)  # of w, between centre, middle and tail
ERFINV_SHIFT = (3.25, 5.0)  # centres of the ranges of sqrt(w)


def _erfc_positive(emit: InstructionEmitter, a: Scalar) -> Scalar:
    """erfc(a) for 0 <= a <= VANISHED."""
    centre = CENTRE[a.dtype.short]
    slope = emit.multiply_add(a, 2.0, 1.0)
    slope_error = emit.multiply_add(a, 2.0, emit.sub(1.0, slope))
    shifted_a = emit.add(a, centre)
    inverse = emit.div(1.0, emit.mul(slope, shifted_a))
    twice = emit.add(a, a)
    inverse_shifted = emit.mul(slope, inverse)
    w = emit.mul(twice, inverse_shifted)  # 2a/(a + K) = v + 1, rounded thrice; a Newton step makes good for it
    w = emit.multiply_add(emit.fma(emit.neg(w), shifted_a, twice), inverse_shifted, w)
    above_one = emit.mul(w, polynomial(emit, emit.sub(w, 1.0), ERFCX[a.dtype.short]))
    h, h_low = quick_two_sum(emit, emit.one(a), above_one)
    reciprocal = emit.mul(shifted_a, inverse)  # 1/slope to about 3 ulp; one Newton step gives the missing part
    missing = emit.fma(emit.neg(reciprocal), slope, 1.0)
    missing = emit.mul(reciprocal, emit.multiply_add(emit.neg(reciprocal), slope_error, missing))
    product, product_low = two_product(emit, h, reciprocal)
    product_low = emit.multiply_add(h, missing, emit.multiply_add(h_low, reciprocal, product_low))
    square, square_error = two_product(emit, a, a)
    n, r, r_low = reduce_sum_by_ln2(emit, emit.neg(square), emit.neg(square_error))
    curved = emit.mul(emit.mul(r, r), polynomial(emit, r, EXP_TAIL[a.dtype.short]))  # exp(r) = 1 + r + curved
    product_low = emit.multiply_add(product, emit.add(curved, r_low), product_low)
    term, term_low = two_product(emit, product, r)
    total, total_low = quick_two_sum(emit, product, term)
    total = emit.add(total, emit.add(total_low, emit.add(term_low, product_low)))
    has_vanished = emit.ge(a, VANISHED[a.dtype.short])  # and is not left to `scale`, which would take time to see it
    return scale(emit, emit.select(has_vanished, emit.zero(a), total), n)


def erfc(emit: InstructionEmitter, x: Scalar) -> Scalar:
    """1 - erf(x) = 2 - erfc(-x); relatively exact down to the denormals."""
    positive = _erfc_positive(emit, emit.minimum(emit.abs(x), VANISHED[x.dtype.short]))
    return emit.select(emit.lt(x, 0.0), emit.sub(2.0, positive), positive)


def erf(emit: InstructionEmitter, x: Scalar) -> Scalar:
    """Near zero an odd polynomial; beyond, 1 - exp(-x^2) erfcx(|x|); 1.4 ulp.

    The exponential is the one the derivative of erf asks for, written as (-x) x because LLVM turns -(x x) into that: a
    kernel with both computes it once. That x^2 is rounded does not matter, since erfc is at most a fifth of the result.
    """
    short = x.dtype.short
    a = emit.abs(x)
    minus_square = emit.mul(emit.neg(x), x)
    near = emit.multiply_add(x, polynomial_in_pairs(emit, minus_square, ERF_NEAR[short]), x)
    decay = emit.call("exp", minus_square)
    far = emit.multiply_add(emit.neg(decay), _erfcx_beyond_split(emit, emit.minimum(a, ERF_ONE[short])), 1.0)
    return emit.select(emit.lt(a, ERF_SPLIT[short]), near, emit.copysign(far, x))


def _erfcx_beyond_split(emit: InstructionEmitter, a: Scalar) -> Scalar:
    """exp(a^2) erfc(a) for ERF_SPLIT <= a <= ERF_ONE; float64 in (a - K)/(a + K), which halves the degree."""
    if a.dtype is float32:
        return polynomial_in_pairs(emit, a, ERF_FAR["f32"])
    v = emit.div(emit.sub(a, ERF_CENTRE), emit.add(a, ERF_CENTRE))
    return polynomial_in_pairs(emit, v, ERF_FAR["f64"])


def erfinv(emit: InstructionEmitter, x: Scalar) -> Scalar:
    """x P(w) with w = -log(1 - x^2), in the tails x P(sqrt(w)); NaN outside [-1, 1].

    Source of the form: Giles, GPU Computing Gems, Jade edition, 2011.
    """
    w = emit.neg(emit.call("log", emit.mul(emit.sub(1.0, x), emit.add(x, 1.0))))
    centre, centre_low = polynomial_pair(emit, emit.sub(w, ERFINV_SPLIT[0] / 2), ERFINV_CENTRE, "f64")
    near = emit.multiply_add(x, centre, emit.mul(x, centre_low))
    root = emit.sqrt(w)
    outer = emit.gt(w, ERFINV_SPLIT[1])
    middle, tail = ERFINV_MIDDLE["f64"], ERFINV_TAIL["f64"]
    shift = emit.select(outer, emit.constant(ERFINV_SHIFT[1], x.dtype), emit.constant(ERFINV_SHIFT[0], x.dtype))
    position = emit.sub(root, shift)
    coefficients = [
        emit.select(outer, emit.constant(in_tail, x.dtype), emit.constant(in_middle, x.dtype))
        for in_middle, in_tail in zip(middle, tail, strict=True)
    ]
    far = coefficients[-1]
    for coefficient in reversed(coefficients[1:-1]):
        far = emit.multiply_add(position, far, coefficient)
    # The slope of erfinv over the root is nearly one, so what the root lost is added as it is.
    root_error = emit.div(emit.fma(emit.neg(root), root, w), emit.maximum(emit.add(root, root), 1.0))
    far = emit.add(emit.multiply_add(position, far, root_error), coefficients[0])
    result = emit.select(emit.lt(w, ERFINV_SPLIT[0]), near, emit.mul(x, far))
    infinite = emit.copysign(emit.constant(inf, x.dtype), x)
    return emit.select(emit.eq(emit.abs(x), 1.0), infinite, result)
