"""Bessel functions of order 0 and 1, in float64 (float32 operands are widened): J, Y, I, K, and scaled I and K.

Near zero each is an entire function of x^2/4, plus for Y and K the logarithm times J or I, and a pole. Far out I and K
are exp(+-x)/sqrt(x) times a polynomial in 1/x, J and Y the parts of their modulus, P and Q, times cosine and sine of
the phase. Errors: I 3 ulp and K 5 ulp where they are scaled, else as many more as exp has; J and Y 4 eps of
``min(1, 1/sqrt(x))``, as their zeros are kept by no formula. Source: DLMF 10.2.2, 10.8, 10.17, 10.25.2, 10.31, 10.40.
"""

from __future__ import annotations

from math import inf, log, nan, pi, sqrt

from autojit.codegen import bessel_coefficients
from autojit.codegen.float_format import polynomial_in_pairs
from autojit.codegen.instructions import InstructionEmitter
from autojit.codegen.scalar import Scalar

KINDS = ("j0", "j1", "y0", "y1", "i0", "i1", "k0", "k1", "i0e", "i1e", "k0e", "k1e")
SPLIT, K_SPLIT = 8.0, 2.0  # as in tools/bessel_fits.py
MIDDLE = SPLIT**2 / 8.0
LEAST = 2.0**-1074


def bessel(emit: InstructionEmitter, x: Scalar, kind: str) -> Scalar:
    """The function ``kind`` of `KINDS`: "e" is divided by exp(|x|) (I) or exp(-x) (K). K and Y are NaN below 0."""
    family, order = kind[0], int(kind[1])
    if family in "jy":
        return _oscillating(emit, x, family, order)
    return _modified(emit, x, family, order, scaled=kind.endswith("e"))


def _fit(emit: InstructionEmitter, name: str, position: Scalar) -> Scalar:
    """The polynomial of a table at a position."""
    return polynomial_in_pairs(emit, position, getattr(bessel_coefficients, name)["f64"])


def _logarithm(emit: InstructionEmitter, x: Scalar) -> Scalar:
    """log(x) for x > 0; finite elsewhere, so that its product with zero is zero."""
    return emit.call("log", emit.maximum(x, LEAST))


def _defined(emit: InstructionEmitter, x: Scalar, found: Scalar, at_zero: float) -> Scalar:
    """What was found for x > 0; ``at_zero`` there, NaN below."""
    found = emit.select(emit.eq(x, 0.0), emit.constant(at_zero, x.dtype), found)
    return emit.select(emit.lt(x, 0.0), emit.constant(nan, x.dtype), found)


def _signed(emit: InstructionEmitter, x: Scalar, found: Scalar, order: int) -> Scalar:
    """Of |x|, of x: order 1 is odd."""
    return emit.select(emit.lt(x, 0.0), emit.neg(found), found) if order else found


# ---- I and K ---------------------------------------------------------------------------------------------------------


def _modified(emit: InstructionEmitter, x: Scalar, family: str, order: int, scaled: bool) -> Scalar:
    a = emit.abs(x) if family == "i" else x
    split = SPLIT if family == "i" else K_SPLIT
    below = emit.le(a, split)
    near = _i_near(emit, a, order) if family == "i" else _k_near(emit, a, order)
    position = emit.sub(emit.div(2.0 * split, emit.maximum(a, split)), 1.0)
    far = emit.div(_fit(emit, f"{family.upper()}{order}_FAR", position), emit.sqrt(emit.maximum(a, split)))
    growth = 0.5 if family == "i" else -0.5
    if scaled:
        half = emit.call("exp", emit.mul(emit.minimum(a, split), -growth))
        near = emit.mul(emit.mul(near, half), half)
    else:
        half = emit.call("exp", emit.mul(a, growth))  # twice, so that only what is too large overflows
        far = emit.mul(emit.mul(far, half), half)
        far = emit.select(emit.eq(half, inf), half, far)
    found = emit.select(below, near, far)
    if family == "k":
        return _defined(emit, x, found, inf)
    return emit.select(emit.isnan(x), x, _signed(emit, x, found, order))


def _i_near(emit: InstructionEmitter, a: Scalar, order: int) -> Scalar:
    half = emit.mul(emit.minimum(a, SPLIT), 0.5)
    value = _fit(emit, f"I{order}_NEAR", emit.mul(half, half))
    return emit.mul(value, half) if order else value


def _k_near(emit: InstructionEmitter, x: Scalar, order: int) -> Scalar:
    """K0 = R0 - log(x/2) I0; K1 = 1/x + log(x/2) I1 + x R1."""
    limited = emit.minimum(x, K_SPLIT)
    half = emit.mul(limited, 0.5)
    z = emit.mul(half, half)
    logarithm = emit.sub(_logarithm(emit, limited), log(2.0))
    rest, grown = _fit(emit, f"K{order}_NEAR", z), _fit(emit, f"I{order}_NEAR", z)
    if order == 0:
        return emit.fma(emit.neg(logarithm), grown, rest)
    inner = emit.fma(emit.mul(logarithm, 0.5), grown, rest)
    return emit.fma(limited, inner, emit.div(1.0, limited))


# ---- J and Y ---------------------------------------------------------------------------------------------------------


def _oscillating(emit: InstructionEmitter, x: Scalar, family: str, order: int) -> Scalar:
    a = emit.abs(x) if family == "j" else x
    near = _j_near(emit, a, order) if family == "j" else _y_near(emit, a, order)
    found = emit.select(emit.le(a, SPLIT), near, _oscillating_far(emit, a, family, order))
    if family == "y":
        return _defined(emit, x, found, -inf)
    return _signed(emit, x, found, order)


def _shifted_square(emit: InstructionEmitter, limited: Scalar) -> Scalar:
    half = emit.mul(limited, 0.5)
    return emit.fma(half, half, -MIDDLE)


def _j_near(emit: InstructionEmitter, a: Scalar, order: int) -> Scalar:
    limited = emit.minimum(a, SPLIT)
    value = _fit(emit, f"J{order}_NEAR", _shifted_square(emit, limited))
    return emit.mul(value, limited) if order else value


def _y_near(emit: InstructionEmitter, x: Scalar, order: int) -> Scalar:
    """Y0 = S0 + 2/pi log(x) J0; Y1 = x S1 + 2/pi (log(x) J1 - 1/x)."""
    limited = emit.minimum(x, SPLIT)
    rest = _fit(emit, f"Y{order}_NEAR", _shifted_square(emit, limited))
    logarithm = emit.mul(_logarithm(emit, limited), 2.0 / pi)
    smooth = emit.fma(logarithm, _j_near(emit, limited, order), emit.mul(rest, limited) if order else rest)
    return emit.sub(smooth, emit.div(2.0 / pi, limited)) if order else smooth


def _oscillating_far(emit: InstructionEmitter, a: Scalar, family: str, order: int) -> Scalar:
    """sqrt(2/(pi x)) (P cos(phase) - Q sin(phase)) for J, P sin + Q cos for Y; phase = x - (2 order + 1) pi/4."""
    far = emit.maximum(a, SPLIT)
    inverse = emit.div(1.0, far)
    position = emit.fma(emit.mul(inverse, inverse), 2.0 * SPLIT**2, -1.0)
    p = _fit(emit, f"P{order}_FAR", position)
    q = emit.mul(_fit(emit, f"Q{order}_FAR", position), inverse)
    sine, cosine = emit.call("sin", far), emit.call("cos", far)
    total, difference = emit.add(sine, cosine), emit.sub(sine, cosine)  # without rounding pi/4 into x
    c, s = (total, difference) if order == 0 else (difference, emit.neg(total))
    parts = emit.sub(emit.mul(p, c), emit.mul(q, s)) if family == "j" else emit.add(emit.mul(p, s), emit.mul(q, c))
    value = emit.mul(emit.mul(parts, 1.0 / sqrt(pi)), emit.sqrt(inverse))
    return emit.select(emit.eq(a, inf), emit.zero(a), value)
