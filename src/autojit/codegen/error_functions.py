"""erf, erfc, erfcx, erfinv, ndtri.

erfc(a) for a >= 0 is exp(-a^2) * H(v) / (1 + 2a) on the whole half line. H = (1 + 2a) erfcx(a) = 1 + (v + 1) G(v) is
between 1 and 1.3, so rounding errors of G and of v = (a - K)/(a + K) hardly matter, while the 1, exp(-a^2) and
1/(1 + 2a) carry their rounding errors along as low-order parts. Thus the tail keeps its relative accuracy down to the
denormals. The form of H follows Shepherd and Laframboise, Math. Comp. 36 (1981).
"""

from __future__ import annotations

from math import inf, nan, sqrt

from autojit.codegen.coefficients import (
    ERF_FAR,
    ERF_NEAR,
    ERFCX,
    ERFCX_WHOLE,
    ERFINV_BEYOND,
    ERFINV_CENTRE,
    ERFINV_FAR,
    EXP_TAIL,
)
from autojit.codegen.exponentials import reduce_sum_by_ln2, scale
from autojit.codegen.float_format import (
    Pair,
    polynomial,
    polynomial_in_pairs,
    polynomial_pair,
    quick_two_sum,
    two_product,
)
from autojit.codegen.instructions import InstructionEmitter
from autojit.codegen.logarithms import log_normal
from autojit.codegen.scalar import Scalar
from autojit.core.dtypes import float32

CENTRE = {"f32": 3.0, "f64": 4.0}  # K of erfc
VANISHED = {"f32": 10.0547, "f64": 27.2265}  # erfc beyond rounds to zero: it is 2^-150 at 10.0542, 2^-1075 at 27.2260
ERF_ONE = {"f32": 3.93, "f64": 6.0}  # erf beyond rounds to one
ERF_SPLIT = {"f32": 0.96, "f64": 1.0}
ERF_CENTRE = 3.0  # K of erf
ERFCX_CENTRE = 3.75  # K of erfcx
ERFCX_INFINITE = 26.63  # from 26.6287 left of zero on, erfcx is
ERFINV_SPLIT = {"f32": 5.0, "f64": 6.25}  # of w, between the polynomials in w and in its root
ERFINV_CENTRE_SHIFT = 1.0  # of w, in float32
ERFINV_SHIFT = {"f32": 3.125, "f64": 4.25}  # centre of the root's range
BEYOND_SHIFT = 0.1  # centre of the range of its inverse, in the far tails of ndtri
ERFINV_LAST = 6.1  # end of the root's range: erfinv needs no more, ndtri does


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


def erfcx(emit: InstructionEmitter, x: Scalar) -> Scalar:
    """exp(x^2) erfc(x), in float64: (1 + 2a) erfcx(a) is a polynomial in (a - K)/(a + K) for all a = |x|."""
    a = emit.abs(x)
    limited = emit.minimum(a, 2.0**100)  # beyond, the position is 1
    position = emit.div(emit.sub(limited, ERFCX_CENTRE), emit.add(limited, ERFCX_CENTRE))
    value = emit.div(polynomial_in_pairs(emit, position, ERFCX_WHOLE["f64"]), emit.multiply_add(a, 2.0, 1.0))
    moderate = emit.minimum(a, ERFCX_INFINITE)
    square, square_low = two_product(emit, moderate, moderate)
    grown = emit.call("exp", square)
    grown = emit.multiply_add(grown, square_low, grown)
    grown = emit.select(emit.lt(a, ERFCX_INFINITE), grown, emit.constant(inf, a.dtype))
    mirrored = emit.sub(emit.add(grown, grown), value)
    found = emit.select(emit.lt(x, 0.0), mirrored, value)
    return emit.select(emit.isnan(x), x, found)


def erfinv(emit: InstructionEmitter, x: Scalar) -> Scalar:
    """x P(w) with w = -log(1 - x^2), in the tails x P(sqrt(w)); NaN outside [-1, 1].

    Source of the form: Giles, GPU Computing Gems, Jade edition, 2011.
    """
    a = emit.abs(x)
    w, w_low = (emit.neg(part) for part in log_normal(emit, emit.fma(emit.neg(a), a, 1.0)))
    near, far = _erfinv_narrow(emit, x, w, w_low) if x.dtype is float32 else _erfinv_wide(emit, x, w)
    result = emit.select(emit.lt(w, ERFINV_SPLIT[x.dtype.short]), near, far)
    infinite = emit.copysign(emit.constant(inf, x.dtype), x)
    outside = emit.select(emit.eq(a, 1.0), infinite, emit.constant(nan, x.dtype))
    return emit.select(emit.lt(a, 1.0), result, outside)


def _erfinv_narrow(emit: InstructionEmitter, x: Scalar, w: Scalar, w_low: Scalar) -> Pair:
    """The slope over w is between 0.26 and 0.13: what w lost counts with the middle of either range."""
    near = _times_polynomial(emit, x, emit.sub(w, ERFINV_CENTRE_SHIFT), ERFINV_CENTRE, emit.mul(w_low, 0.24))
    position = emit.sub(emit.sqrt(w), ERFINV_SHIFT["f32"])
    return near, _times_polynomial(emit, x, position, ERFINV_FAR, emit.mul(w_low, 0.17))


def _times_polynomial(
    emit: InstructionEmitter, x: Scalar, position: Scalar, table: dict[str, tuple[float, ...]], lost: Scalar
) -> Scalar:
    """x times a float32 polynomial and what its position lost; the constant term is multiplied last."""
    constant, *others = table["f32"]
    lost = emit.add(lost, table["f32_low"][0])
    rest = emit.multiply_add(position, polynomial_in_pairs(emit, position, tuple(others)), lost)
    return emit.multiply_add(x, constant, emit.mul(x, rest))


def _erfinv_wide(emit: InstructionEmitter, x: Scalar, w: Scalar) -> Pair:
    """The constant terms come last, in two parts near zero; far out with what the root lost."""
    centre, centre_low = polynomial_pair(emit, emit.sub(w, ERFINV_SPLIT["f64"] / 2), ERFINV_CENTRE, "f64")
    near = emit.multiply_add(x, centre, emit.mul(x, centre_low))
    return near, emit.mul(x, _erfinv_far(emit, w, emit.sqrt(w)))


def _erfinv_far(emit: InstructionEmitter, w: Scalar, root: Scalar) -> Scalar:
    """erfinv(x)/x in float64 for ERFINV_SPLIT <= w <= ERFINV_LAST^2."""
    position = emit.sub(root, ERFINV_SHIFT["f64"])
    constant, *others = ERFINV_FAR["f64"]
    # The slope over the root is nearly one, so what the root lost is added as it is. Half its inverse, to 10 percent:
    inverse = emit.multiply_add(root, -0.0296, 0.2549)
    lost = emit.mul(emit.fma(emit.neg(root), root, w), inverse)
    rest = polynomial_in_pairs(emit, position, tuple(others))
    return emit.add(emit.multiply_add(position, rest, lost), constant)


def ndtri(emit: InstructionEmitter, p: Scalar) -> Scalar:
    """The quantile of the normal distribution, in float64: sqrt(2) erfinv(x) with x = 2p - 1, so w = -log(4 p (1 - p)).

    Tails of probability far below an ulp of 1 take a third polynomial, in 1/sqrt(w).
    """
    w = emit.neg(emit.call("log", emit.mul(emit.mul(p, 4.0), emit.sub(1.0, p))))
    x = emit.sub(emit.add(p, p), 1.0)
    root = emit.sqrt(emit.maximum(w, ERFINV_SPLIT["f64"]))
    centre, centre_low = polynomial_pair(emit, emit.sub(w, ERFINV_SPLIT["f64"] / 2), ERFINV_CENTRE, "f64")
    far = _erfinv_far(emit, w, root)
    position = emit.sub(emit.div(1.0, root), BEYOND_SHIFT)
    beyond = emit.mul(root, polynomial_in_pairs(emit, position, ERFINV_BEYOND["f64"]))
    outer = emit.select(emit.gt(root, ERFINV_LAST), beyond, far)
    factor = emit.select(emit.lt(w, ERFINV_SPLIT["f64"]), emit.add(centre, centre_low), outer)
    result = emit.mul(emit.mul(x, sqrt(2.0)), factor)
    infinite = emit.copysign(emit.constant(inf, p.dtype), x)
    at_end = emit.logical_or(emit.eq(p, 0.0), emit.eq(p, 1.0))
    outside = emit.select(at_end, infinite, emit.constant(nan, p.dtype))
    return emit.select(emit.logical_and(emit.gt(p, 0.0), emit.lt(p, 1.0)), result, outside)
