"""Philox-4x32-10, the counter-based generator: the same counter and key give the same words on every target.

Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

from autojit.codegen.instructions import InstructionEmitter
from autojit.codegen.scalar import Scalar
from autojit.core.dtypes import DType, float32, float64, int32, uint32, uint64

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10

Words = tuple[Scalar, Scalar, Scalar, Scalar]


def philox(emit: InstructionEmitter, counter: Words, key: tuple[Scalar, Scalar]) -> Words:
    """Four independent uniform uint32 words from four counter words and two key words (all uint32)."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for round_number in range(ROUNDS):
        if round_number:
            k0, k1 = emit.add(k0, KEY_STEPS[0]), emit.add(k1, KEY_STEPS[1])
        high0, low0 = _product(emit, c0, MULTIPLIERS[0])
        high1, low1 = _product(emit, c2, MULTIPLIERS[1])
        mixed0 = emit.bitwise_xor(emit.bitwise_xor(high1, c1), k0)
        mixed1 = emit.bitwise_xor(emit.bitwise_xor(high0, c3), k1)
        c0, c1, c2, c3 = mixed0, low1, mixed1, low0
    return c0, c1, c2, c3


def block(emit: InstructionEmitter, seed: Scalar, number: Scalar) -> Words:
    """The four words of a block of a seed's, by its number (both uint64)."""
    half = emit.constant(32, uint64)
    zero = emit.constant(0, uint32)
    counters = (emit.cast(number, uint32), emit.cast(emit.shift_right(number, half), uint32), zero, zero)
    keys = (emit.cast(seed, uint32), emit.cast(emit.shift_right(seed, half), uint32))
    return philox(emit, counters, keys)


def _product(emit: InstructionEmitter, word: Scalar, multiplier: int) -> tuple[Scalar, Scalar]:
    """The upper and the lower word of the 64-bit product."""
    product = emit.mul(emit.cast(word, uint64), multiplier)
    return emit.cast(emit.shift_right(product, 32), uint32), emit.cast(product, uint32)


def uniform(emit: InstructionEmitter, dtype: DType, high: Scalar, low: Scalar | None = None) -> Scalar:
    """A float in [0, 1) from random words: float32 has 24 random bits of ``high``, float64 53 of ``high`` and ``low``.

    float16 and bfloat16 have the 11 and 8 bits that keep every value exact and below 1.
    """
    if dtype is float64:
        assert low is not None, "a float64 needs two random words"
        upper = _to_float(emit, high, 27, float64)
        lower = _to_float(emit, low, 26, float64)
        return emit.mul(emit.fma(upper, 2.0**26, lower), 2.0**-53)
    bits = {"f16": 11, "bf16": 8, "f32": 24}[dtype.short]
    scaled = emit.mul(_to_float(emit, high, bits, float32), 2.0**-bits)
    return Scalar(scaled.text, dtype)


def _to_float(emit: InstructionEmitter, word: Scalar, bits: int, dtype: DType) -> Scalar:
    """The upper ``bits`` < 32 bits of a word as a float; signed, which every x86 converts in vectors."""
    return emit.cast(emit.bitcast(emit.shift_right(word, 32 - bits), int32), dtype)
