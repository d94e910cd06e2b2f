"""Instructions that NumPy has no single function for, on arrays of lanes or numbers."""

from __future__ import annotations

import numpy as np

from autojit.ir.op import Ndarray


def divided(x: Ndarray, y: Ndarray) -> Ndarray:
    """Quotient of integers, cut towards zero; by zero it is all ones, as on hardware."""
    x, y = np.broadcast_arrays(x, y)
    if x.dtype.kind == "u":
        quotient = x // y
    else:
        away = (np.fmod(x, y) != 0) & ((x < 0) != (y < 0))
        quotient = x // y + away.astype(x.dtype)
    return np.where(y == 0, ~np.zeros_like(x), quotient)


def remainder(x: Ndarray, y: Ndarray) -> Ndarray:
    """Remainder of integers, with the sign of the first; by zero it is the first."""
    return np.where(np.equal(y, 0), x, np.fmod(x, y))


def high_half(x: Ndarray, y: Ndarray) -> Ndarray:
    """Upper half of the product of integers."""
    kind, width = x.dtype.kind, x.dtype.itemsize
    if width < 8:
        wide = f"{kind}{2 * width}"
        product = np.asarray(x).astype(wide) * np.asarray(y).astype(wide)
        result: Ndarray = (product >> np.array(8 * width, wide)).astype(x.dtype)
        return result
    x, y = np.broadcast_arrays(x, y)
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    p, q = np.ascontiguousarray(x).view("u8"), np.ascontiguousarray(y).view("u8")
    p0, p1, q0, q1 = p & low, p >> half, q & low, q >> half
    middle = p1 * q0 + (p0 * q0 >> half)
    other = p0 * q1 + (middle & low)
    high = p1 * q1 + (middle >> half) + (other >> half)
    if kind == "i":  # of the bits as unsigned numbers: take off what the signs added
        high = high - np.where(x < 0, q, np.uint64(0)) - np.where(y < 0, p, np.uint64(0))
    whole: Ndarray = high.view(x.dtype)
    return whole


def shifted_left(x: Ndarray, count: Ndarray) -> Ndarray:
    """Zero where the count is the width or more."""
    result: Ndarray = x << np.minimum(count, 64).astype(x.dtype)
    return result


def shifted_right(x: Ndarray, count: Ndarray) -> Ndarray:
    """Filled with the sign where there is one."""
    result: Ndarray = x >> np.minimum(count, 64).astype(x.dtype)
    return result


def funnel(low: Ndarray, high: Ndarray, count: Ndarray, is_left: bool, wraps: bool) -> Ndarray:
    """32 bits out of 64."""
    distance = (count & np.uint32(31) if wraps else np.minimum(count, np.uint32(32))).astype("u8")
    both = (np.asarray(high).astype("u8") << np.uint64(32)) | low
    moved = (both << distance) >> np.uint64(32) if is_left else both >> distance
    result: Ndarray = moved.astype("u4")
    return result


def _mask(count: Ndarray, dtype: np.dtype[np.generic]) -> Ndarray:
    """This many ones, from the lowest bit on."""
    ones = ~np.zeros((), "u8")
    return np.where(count >= 64, ones, ~(ones << np.minimum(count, 64).astype("u8"))).astype(dtype)


def field(x: Ndarray, position: Ndarray, length: Ndarray) -> Ndarray:
    """Bits from a position on; of signed numbers, filled with the field's own sign."""
    width = np.uint32(8 * x.dtype.itemsize)
    bits = np.asarray(x).view(f"u{x.dtype.itemsize}")
    position, length = position & np.uint32(255), length & np.uint32(255)
    mask = _mask(length, bits.dtype) & shifted_right(~np.zeros_like(bits), position)
    found = shifted_right(bits, position) & mask
    if x.dtype.kind == "u":
        return found
    last = np.minimum(position + length - np.uint32(1), width - np.uint32(1))
    sign = (shifted_right(bits, last) & bits.dtype.type(1)) != 0
    return np.where(sign & (length > 0), found | ~mask, found).view(x.dtype)


def inserted(x: Ndarray, y: Ndarray, position: Ndarray, length: Ndarray) -> Ndarray:
    """The second, with the lowest bits of the first from a position on."""
    mask = shifted_left(_mask(length & np.uint32(255), y.dtype), position & np.uint32(255))
    return (y & ~mask) | (shifted_left(x, position & np.uint32(255)) & mask)


def permuted(x: Ndarray, y: Ndarray, selector: Ndarray) -> Ndarray:
    """Four bytes out of eight, each as it is or as its sign."""
    both = np.asarray(x).astype("u8") | (np.asarray(y).astype("u8") << np.uint64(32))
    found = np.zeros(np.broadcast(both, selector).shape, "u4")
    for k in range(4):
        choice = (selector >> np.uint32(4 * k)) & np.uint32(15)
        byte = (both >> ((choice & np.uint32(7)) * np.uint32(8)).astype("u8")) & np.uint64(255)
        signs = np.where(byte & np.uint64(128), np.uint64(255), np.uint64(0))
        found |= np.where(choice & np.uint32(8), signs, byte).astype("u4") << np.uint32(8 * k)
    return found


def leading_zeros(x: Ndarray) -> Ndarray:
    """How many zeros there are before the first one."""
    smeared = np.asarray(x).copy()
    width = 8 * smeared.dtype.itemsize
    distance = 1
    while distance < width:
        smeared |= smeared >> smeared.dtype.type(distance)
        distance *= 2
    result: Ndarray = (width - np.bitwise_count(smeared)).astype("u4")
    return result


def first_one(x: Ndarray) -> Ndarray:
    """Position of the highest bit that differs from the sign; all ones where there is none."""
    unsigned = np.asarray(x).view(f"u{x.dtype.itemsize}")
    bits = np.where(x < 0, ~unsigned, unsigned) if x.dtype.kind == "i" else unsigned
    return (np.uint32(8 * x.dtype.itemsize - 1) - leading_zeros(bits)).astype("u4")


def reversed_bits(x: Ndarray) -> Ndarray:
    """The lowest bit first."""
    width = x.dtype.itemsize
    order = np.unpackbits(np.ascontiguousarray(x).view("u1").reshape(-1, width), axis=1, bitorder="little")
    return np.packbits(order[:, ::-1], axis=1, bitorder="little").reshape(-1).view(x.dtype)


def any_logic(x: Ndarray, y: Ndarray, z: Ndarray, table: int) -> Ndarray:
    """The function of three bits that a table of eight says."""
    found = np.zeros(np.broadcast(x, y, z).shape, x.dtype)
    for k in range(8):
        if table >> k & 1:
            found |= (x if k & 4 else ~x) & (y if k & 2 else ~y) & (z if k & 1 else ~z)
    return found


def least(x: Ndarray, y: Ndarray) -> Ndarray:
    """The smaller float; the other where one is not a number; -0 is below +0."""
    return _with_zeros(x, y, np.fmin(x, y), np.signbit(x) | np.signbit(y))


def greatest(x: Ndarray, y: Ndarray) -> Ndarray:
    """The larger float; the other where one is not a number; +0 is above -0."""
    return _with_zeros(x, y, np.fmax(x, y), np.signbit(x) & np.signbit(y))


def least_or_nan(x: Ndarray, y: Ndarray) -> Ndarray:
    """The smaller float, not a number where one is not."""
    return _with_zeros(x, y, np.minimum(x, y), np.signbit(x) | np.signbit(y))


def greatest_or_nan(x: Ndarray, y: Ndarray) -> Ndarray:
    """The larger float, not a number where one is not."""
    return _with_zeros(x, y, np.maximum(x, y), np.signbit(x) & np.signbit(y))


def _with_zeros(x: Ndarray, y: Ndarray, found: Ndarray, is_negative: Ndarray) -> Ndarray:
    are_zero = (x == 0) & (y == 0)
    if not np.any(are_zero):
        return found
    zero = found.dtype.type(0)
    return np.where(are_zero, np.where(is_negative, -zero, zero), found)


def flushed(x: Ndarray) -> Ndarray:
    """Single floats without those below the normal ones, which become zeros of their sign."""
    return np.where(np.abs(x) < np.float32(2.0**-126), np.copysign(np.float32(0), x), x)


def saturated(x: Ndarray) -> Ndarray:
    """Within [0, 1]; what is not a number becomes 0."""
    result: Ndarray = np.fmax(np.fmin(x, x.dtype.type(1)), x.dtype.type(0))
    return result


def clipped_sum(x: Ndarray, y: Ndarray) -> Ndarray:
    """Sum of signed 32-bit integers, at the ends of their range where it leaves it."""
    total = np.asarray(x).astype("i8") + np.asarray(y).astype("i8")
    result: Ndarray = np.clip(total, -(2**31), 2**31 - 1).astype("i4")
    return result


def clipped_difference(x: Ndarray, y: Ndarray) -> Ndarray:
    """Difference of signed 32-bit integers, at the ends of their range where it leaves it."""
    total = np.asarray(x).astype("i8") - np.asarray(y).astype("i8")
    result: Ndarray = np.clip(total, -(2**31), 2**31 - 1).astype("i4")
    return result
