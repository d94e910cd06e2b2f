"""Rounding as the standard defines it, on fractions: what the emulated device's floats are measured against."""

from __future__ import annotations

from fractions import Fraction
from math import floor, inf, isfinite

import numpy as np

DIGITS = {"f2": (11, -24, 16), "bf": (8, -133, 128), "f4": (24, -149, 128), "f8": (53, -1074, 1024)}
"""Binary digits, exponent of the least number above zero, exponent that is too large."""


def rounded(value: Fraction, kind: str, mode: str = "rn") -> Fraction | float:
    """A fraction as a float of a type; infinite where it is too large."""
    if value == 0:
        return 0.0
    digits, least, most = DIGITS[kind]
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:
        exponent -= 1
    step = Fraction(2) ** max(exponent - digits + 1, least)
    whole = _to_whole(value / step, mode)
    result = whole * step
    limit = Fraction(2) ** most
    if abs(result) < limit:
        return result if result else (-0.0 if value < 0 else 0.0)
    largest = limit - Fraction(2) ** (most - digits)
    towards_zero = mode == "rz" or (mode == "rm" and value > 0) or (mode == "rp" and value < 0)
    return (largest if towards_zero else inf) * (1 if value > 0 else -1)


def _to_whole(value: Fraction, mode: str) -> int:
    if mode == "rm":
        return floor(value)
    if mode == "rp":
        return -floor(-value)
    if mode == "rz":
        return floor(value) if value > 0 else -floor(-value)
    return round(value)  # ties to even


def to_whole(value: float, mode: str) -> int:
    """A float as a whole number: ``rni``, ``rzi``, ``rmi``, ``rpi``."""
    return _to_whole(Fraction(value), mode[:2])


def floats(kind: str, count: int, seed: int = 0) -> np.ndarray:
    """Floats of all sizes as doubles: random bits, products that cancel, and the special ones at the end."""
    chance = np.random.default_rng(seed)
    width = {"bf": 2}.get(kind) or int(kind[1])
    bits = np.frombuffer(chance.bytes(count * width), f"u{width}").copy()
    near = chance.normal(size=count)
    special = [0.0, -0.0, 1.0, -1.0, inf, -inf, np.nan, 2.0 ** (DIGITS[kind][1]), -(2.0 ** DIGITS[kind][1]), 32768.0]
    from_bits = as_floats(bits, kind)
    found = np.where(np.arange(count) % 2 == 0, from_bits, as_floats(as_bits(near, kind), kind))
    found[-len(special) :] = special
    return found


def as_floats(bits: np.ndarray, kind: str) -> np.ndarray:
    """Doubles of bits."""
    if kind == "bf":
        return (bits.astype("u4") << 16).view("f4").astype("f8")
    return bits.view(kind).astype("f8")


def as_bits(values: np.ndarray, kind: str) -> np.ndarray:
    """Bits of doubles that the type has, or the nearest."""
    if kind != "bf":
        return values.astype(kind).view(f"u{kind[1]}")
    found = [rounded(Fraction(float(v)), "bf") if isfinite(v) and v else v for v in values]
    return (np.array([float(v) for v in found], "f4").view("u4") >> 16).astype("u2")


def same(found: np.ndarray, expected: list[Fraction | float]) -> None:
    """Doubles are what fractions say, zeros with their sign, or are both not numbers."""
    wanted = np.array([float(v) for v in expected])
    np.testing.assert_array_equal(found, wanted)
    zeros = (wanted == 0) & ~np.isnan(found)
    np.testing.assert_array_equal(np.signbit(found[zeros]), np.signbit(wanted[zeros]))
