"""Layout of the two float formats that arithmetic is done in, and the bit tricks built on it.

Rounding to an integer and moving it between the float and the integer unit both go through ``round_magic``: adding
1.5 * 2^mantissa_bits leaves round(x) in the low mantissa bits. Unlike ``fptosi`` that has a vector form for float64 on
every x86 machine; so have logical shifts of 64-bit lanes, arithmetic ones have not.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from autojit.codegen.instructions import InstructionEmitter
from autojit.codegen.scalar import Scalar
from autojit.core.dtypes import DType, float32, float64, uint32, uint64

Pair = tuple[Scalar, Scalar]  # an unevaluated sum, the low-order part second


class FloatFormat(NamedTuple):
    """One binary interchange format of IEEE 754 and the unsigned integer dtype of its width."""

    dtype: DType
    bits: DType
    mantissa_bits: int
    bias: int

    @property
    def round_magic(self) -> float:
        return 1.5 * 2.0**self.mantissa_bits

    @property
    def least_normal(self) -> float:
        return 2.0 ** (1 - self.bias)

    def bits_of(self, value: float) -> int:
        """The format's bit pattern of a Python float."""
        if self.dtype is float32:
            return int(struct.unpack("<I", struct.pack("<f", value))[0])
        return int(struct.unpack("<Q", struct.pack("<d", value))[0])


FLOAT32 = FloatFormat(float32, uint32, 23, 127)
FLOAT64 = FloatFormat(float64, uint64, 52, 1023)


def format_of(dtype: DType) -> FloatFormat:
    """The layout of float32 or float64."""
    return FLOAT32 if dtype is float32 else FLOAT64


def polynomial(emit: InstructionEmitter, x: Scalar, coefficients: tuple[float, ...]) -> Scalar:
    """Horner's rule; ``coefficients[k]`` belongs to x^k."""
    result = emit.constant(coefficients[-1], x.dtype)
    for coefficient in reversed(coefficients[:-1]):
        result = emit.multiply_add(x, result, coefficient)
    return result


def polynomial_in_pairs(emit: InstructionEmitter, x: Scalar, coefficients: tuple[float, ...]) -> Scalar:
    """The polynomial as pairs ``c_k + c_(k+1) x`` under Horner's rule in x^2: half the chain for one product more.

    Source: G. Estrin, Proc. Western Joint Computer Conference, 1960 (the pairs).
    """
    square = emit.mul(x, x)
    pairs = [polynomial(emit, x, coefficients[k : k + 2]) for k in range(0, len(coefficients), 2)]
    result = pairs[-1]
    for pair in reversed(pairs[:-1]):
        result = emit.multiply_add(square, result, pair)
    return result


def power_of_two(emit: InstructionEmitter, biased_exponent: Scalar, form: FloatFormat) -> Scalar:
    """2^(biased_exponent - bias) from the unsigned integer of the exponent field, for normal results."""
    return emit.bitcast(emit.shift_left(biased_exponent, form.mantissa_bits), form.dtype)


def clamp(emit: InstructionEmitter, x: Scalar, low: float, high: float) -> Scalar:
    """x limited to [low, high]; NaN stays."""
    return emit.minimum(emit.maximum(x, low), high)


def quick_two_sum(emit: InstructionEmitter, a: Scalar, b: Scalar) -> tuple[Scalar, Scalar]:
    """a + b as rounded sum and exact error, for |a| >= |b|."""
    total = emit.add(a, b)
    return total, emit.sub(b, emit.sub(total, a))


def two_sum(emit: InstructionEmitter, a: Scalar, b: Scalar) -> tuple[Scalar, Scalar]:
    """a + b as rounded sum and exact error (Knuth), for any order of magnitudes."""
    total = emit.add(a, b)
    b_part = emit.sub(total, a)
    a_part = emit.sub(total, b_part)
    return total, emit.add(emit.sub(a, a_part), emit.sub(b, b_part))


def rough_inverse(emit: InstructionEmitter, x: Scalar) -> Scalar:
    """1/x to 13 percent for positive normal x below 2^bias, without a division: for what corrects a last place.

    Twice the bias less the exponent, and the mantissa mirrored: a line through 1/m at both ends of [1, 2), at most 12.5
    percent above it; finite for zero.
    """
    form = format_of(x.dtype)
    mirror = (2 * form.bias) << form.mantissa_bits
    return emit.bitcast(emit.sub(mirror, emit.bitcast(x, form.bits)), x.dtype)


def two_product(emit: InstructionEmitter, a: Scalar, b: Scalar) -> tuple[Scalar, Scalar]:
    """a * b as rounded product and exact error."""
    product = emit.mul(a, b)
    return product, emit.fma(a, b, emit.neg(product))


def polynomial_pair(emit: InstructionEmitter, x: Scalar, table: dict[str, tuple[float, ...]], precision: str) -> Pair:
    """A polynomial whose constant term is its greatest and comes in two parts, as that term plus the rest."""
    leading, *others = table[precision]
    (leading_low,) = table[f"{precision}_low"]
    rest, rest_low = two_product(emit, x, polynomial(emit, x, tuple(others)))
    total, total_low = quick_two_sum(emit, emit.constant(leading, x.dtype), rest)
    return total, emit.add(total_low, emit.add(rest_low, leading_low))
