"""Integer division, remainders of both kinds, floor division and integer powers.

Integers: a zero divisor gives 0, as in NumPy (LLVM leaves it undefined and x86 traps); the least integer by -1 wraps.
Up to 32 bits the quotient is taken in float64, where it is exact and has a vector form; x86 has no integer division of
vectors. Floats: the remainder is exact for all operands; great quotients are rare and go through `rare_calls`.
"""

from __future__ import annotations

from math import inf, nan

from autojit.codegen.instructions import InstructionEmitter
from autojit.codegen.scalar import Scalar
from autojit.core.dtypes import float32, float64, int32

STEP_BITS = 51  # quotient bits taken by one step of the exact remainder
LARGE_QUOTIENT = {"f32": 2.0**22, "f64": 2.0**STEP_BITS}  # beyond, one step is not exact
STEPS = {"f32": 6, "f64": 42}  # the greatest quotients are 2^277 and 2^2098


def integer_quotient(emit: InstructionEmitter, a: Scalar, b: Scalar) -> Scalar:
    """a / b towards zero."""
    signed = a.dtype.kind == "int"
    if b.is_literal and int(b.text) not in (0, -1):
        return emit.instruction(f"{'s' if signed else 'u'}div {_typed(a)}, {b.text}", a.dtype)
    is_zero = emit.eq(b, 0)
    is_minus_one = emit.eq(b, -1) if signed else is_zero
    safe = emit.select(emit.logical_or(is_zero, is_minus_one), emit.one(b), b)
    if a.dtype.size_bytes <= 4:
        quotient = _quotient_in_float64(emit, a, safe)
    else:
        quotient = emit.instruction(f"{'s' if signed else 'u'}div {_typed(a)}, {safe.text}", a.dtype)
    if signed:
        quotient = emit.select(is_minus_one, emit.neg(a), quotient)
    return emit.select(is_zero, emit.zero(a), quotient)


def _typed(x: Scalar) -> str:
    return f"i{8 * x.dtype.size_bytes} {x.text}"


def _quotient_in_float64(emit: InstructionEmitter, a: Scalar, b: Scalar) -> Scalar:
    """Exact: the quotient differs from an integer by at least 2^-32 of itself, or not at all."""
    quotient = emit.trunc(emit.div(emit.cast(a, float64), emit.cast(b, float64)))
    if a.dtype.kind == "uint" and a.dtype.size_bytes == 4:
        return emit.convert("fptoui", quotient, a.dtype)
    return emit.cast(emit.cast(quotient, int32), a.dtype)


def integer_remainder(emit: InstructionEmitter, a: Scalar, b: Scalar) -> Scalar:
    """a - b * (a / b towards zero), with the sign of a; 0 for a zero divisor."""
    rest = emit.sub(a, emit.mul(integer_quotient(emit, a, b), b))
    return emit.select(emit.eq(b, 0), emit.zero(a), rest)


def _signs_differ(emit: InstructionEmitter, rest: Scalar, b: Scalar) -> Scalar:
    """Whether the remainder towards zero must be moved by b to get b's sign."""
    differ = emit.logical_xor(emit.lt(rest, 0), emit.lt(b, 0))
    return emit.logical_and(emit.ne(rest, 0), differ)


def remainder(emit: InstructionEmitter, a: Scalar, b: Scalar) -> Scalar:
    """Python's ``%``: the sign of b."""
    rest = fmod(emit, a, b)
    if a.dtype.kind == "uint":
        return rest
    return emit.select(_signs_differ(emit, rest, b), emit.add(rest, b), rest)


def fmod(emit: InstructionEmitter, a: Scalar, b: Scalar) -> Scalar:
    """C's ``%`` and ``fmod``: the sign of a."""
    return emit.call("fmod", a, b) if a.dtype.kind == "float" else integer_remainder(emit, a, b)


def floor_div(emit: InstructionEmitter, a: Scalar, b: Scalar) -> Scalar:
    """Python's ``//``; of floats torch's rule, which agrees with ``remainder`` although a / b is rounded."""
    if a.dtype.kind == "float":
        return emit.call("floor_divide", a, b)
    quotient = integer_quotient(emit, a, b)
    if a.dtype.kind == "uint":
        return quotient
    rest = integer_remainder(emit, a, b)
    return emit.select(_signs_differ(emit, rest, b), emit.sub(quotient, 1), quotient)


def float_fmod(emit: InstructionEmitter, x: Scalar, y: Scalar) -> Scalar:
    """The usual case in one step: q = trunc(|x/y|) is off by at most one and |x| - q |y| is exact."""
    a, b = emit.abs(x), emit.abs(y)
    wide = emit.div(a, b)
    usual = _step(emit, a, b)
    limit = LARGE_QUOTIENT[x.dtype.short]
    large = emit.call_rarely("fmod_large", limit, wide, a, b)
    result = emit.select(emit.gt(wide, limit), large, usual)
    result = emit.select(emit.lt(a, b), a, result)  # also for infinite b
    defined = emit.logical_and(emit.lt(a, inf), emit.gt(b, 0.0))
    result = emit.select(emit.logical_and(defined, emit.eq(b, b)), result, emit.constant(nan, x.dtype))
    return emit.copysign(result, x)


def _step(emit: InstructionEmitter, rest: Scalar, divisor: Scalar) -> Scalar:
    """rest modulo divisor for a quotient below 2^52."""
    quotient = emit.trunc(emit.div(rest, divisor))
    result = emit.fma(emit.neg(quotient), divisor, rest)
    result = emit.select(emit.lt(result, 0.0), emit.add(result, divisor), result)
    return emit.select(emit.ge(result, divisor), emit.sub(result, divisor), result)


def float_fmod_large(emit: InstructionEmitter, quotient: Scalar, a: Scalar, b: Scalar) -> Scalar:
    """Long division by b * 2^(51 j), j falling: every step is exact. Only for the scalar path of `rare_calls`."""
    if a.dtype is float32:
        wide = _long_division(emit, emit.cast(a, float64), emit.cast(b, float64), STEPS["f32"])
        return emit.cast(wide, float32)
    return _long_division(emit, a, b, STEPS["f64"])


def _long_division(emit: InstructionEmitter, a: Scalar, b: Scalar, steps: int) -> Scalar:
    divisors = [b]
    for _ in range(steps - 1):
        divisors.append(emit.mul(divisors[-1], 2.0**STEP_BITS))
    rest = a
    for divisor in reversed(divisors):
        rest = emit.select(emit.le(divisor, rest), _step(emit, rest, divisor), rest)
    return rest


def float_floor_divide(emit: InstructionEmitter, a: Scalar, b: Scalar) -> Scalar:
    """torch's div_floor_floating, after CPython's float_floor_div."""
    rest = emit.call("fmod", a, b)
    quotient = emit.div(emit.sub(a, rest), b)
    quotient = emit.select(_signs_differ(emit, rest, b), emit.sub(quotient, 1.0), quotient)
    lower = emit.floor(quotient)
    lower = emit.select(emit.gt(emit.sub(quotient, lower), 0.5), emit.add(lower, 1.0), lower)
    plain = emit.div(a, b)
    result = emit.select(emit.eq(quotient, 0.0), emit.copysign(emit.zero(a), plain), lower)
    return emit.select(emit.eq(b, 0.0), plain, result)


def integer_power(emit: InstructionEmitter, base: Scalar, exponent: Scalar) -> Scalar:
    """base ** exponent, wrapping; a negative exponent gives 1/base truncated, and 0 for base 0, as torch."""
    if exponent.is_literal and int(exponent.text) >= 0:
        return _literal_power(emit, base, int(exponent.text))
    bits = 8 * base.dtype.size_bytes - (base.dtype.kind == "int")
    result, square = emit.one(base), base
    for bit in range(bits):
        used = emit.ne(emit.bitwise_and(exponent, 1 << bit), 0)
        result = emit.select(used, emit.mul(result, square), result)
        square = emit.mul(square, square)
    if base.dtype.kind == "uint":
        return result
    odd = emit.ne(emit.bitwise_and(exponent, 1), 0)
    unit = emit.select(odd, base, emit.one(base))
    is_unit = emit.logical_or(emit.eq(base, 1), emit.eq(base, -1))  # not by |base|: the least number has none
    inverse = emit.select(is_unit, unit, emit.zero(base))
    return emit.select(emit.lt(exponent, 0), inverse, result)


def _literal_power(emit: InstructionEmitter, base: Scalar, exponent: int) -> Scalar:
    result, square = emit.one(base), base
    while exponent:
        if exponent & 1:
            result = emit.mul(result, square)
        exponent >>= 1
        if exponent:
            square = emit.mul(square, square)
    return result
