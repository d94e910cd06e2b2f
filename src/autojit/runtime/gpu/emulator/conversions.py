"""Conversions between types as the hardware does them, on arrays of lanes or numbers."""

from __future__ import annotations

from typing import Literal

import numpy as np

from autojit.ir.op import Ndarray

Rounding = Literal["rn", "rz", "rm", "rp"]


def widened(bits: Ndarray) -> Ndarray:
    """Single floats of bfloat16's bits."""
    return (np.asarray(bits).astype("u4") << np.uint32(16)).view("f4")


def to_bfloat(x: Ndarray, rounding: str = "rn") -> Ndarray:
    """Bits of bfloat16; not a number becomes the canonical one."""
    single = np.asarray(x)
    if single.dtype.itemsize == 8:
        single = odd_single(single)
    bits = single.view("u4")
    cut = bits >> np.uint32(16)
    if rounding == "rn":
        found = (bits + np.uint32(0x7FFF) + (cut & np.uint32(1))) >> np.uint32(16)
    else:
        is_negative = np.signbit(single)
        away = {"rz": False, "rm": is_negative, "rp": ~is_negative}[rounding] & ((bits & np.uint32(0xFFFF)) != 0)
        found = cut + np.asarray(away).astype("u4")
        found = np.where(np.isinf(single), cut, found)
    return np.where(np.isnan(single), np.uint32(0x7FFF), found).astype("u2")


def to_tensor_float(x: Ndarray, is_away: bool = True) -> Ndarray:
    """Bits of a single float with 10 digits behind the point: to nearest, ties away from zero or to even."""
    bits = np.asarray(x).view("u4")
    half = np.uint32(0x1000) if is_away else np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))
    rounded = (bits + half) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(x), rounded, bits)


def odd_single(x: Ndarray) -> Ndarray:
    """Single floats of doubles, rounded to odd: a second rounding to fewer digits is then exact."""
    nearest = np.asarray(x).astype("f4")
    back = nearest.astype("f8")
    bits = nearest.view("u4")
    is_inexact = (back != x) & np.isfinite(x)
    towards_zero = np.where(np.abs(back) > np.abs(x), bits - np.uint32(1), bits)
    return np.where(is_inexact, towards_zero | np.uint32(1), bits).view("f4")


def narrowed(x: Ndarray, kind: str, rounding: str = "rn") -> Ndarray:
    """A float as a narrower one; what is too large in a direction is the largest finite one where that is nearer."""
    value = np.asarray(x)
    nearest = value.astype(kind)
    if rounding == "rn":
        return nearest
    back = nearest.astype("f8")
    exact = value.astype("f8")
    up = np.nextafter(nearest, np.array(np.inf, kind))
    down = np.nextafter(nearest, np.array(-np.inf, kind))
    lower = np.where(back > exact, down, nearest)
    upper = np.where(back < exact, up, nearest)
    chosen = {"rm": lower, "rp": upper, "rz": np.where(exact < 0, upper, lower)}[rounding]
    return np.where(np.isnan(value), nearest, chosen).astype(kind)


def from_integer(x: Ndarray, kind: str, rounding: str = "rn") -> Ndarray:
    """A float of integers."""
    value = np.asarray(x)
    if kind == "f2":
        return narrowed(value.astype("f8"), "f2", rounding)
    nearest = value.astype(kind)
    if rounding == "rn" or value.dtype.itemsize < int(kind[1]):
        return nearest
    difference = _difference(nearest, value)
    up = np.nextafter(nearest, np.array(np.inf, kind))
    down = np.nextafter(nearest, np.array(-np.inf, kind))
    lower = np.where(difference > 0, down, nearest)
    upper = np.where(difference < 0, up, nearest)
    if rounding == "rz":
        return np.where(value < 0, upper, lower)
    return {"rm": lower, "rp": upper}[rounding]


def _difference(x: Ndarray, whole: Ndarray) -> Ndarray:
    """Sign of a float of an integer less that integer, exactly."""
    edge = float(2 ** (8 * whole.dtype.itemsize - (whole.dtype.kind == "i")))
    inside = np.asarray(x).astype("f8") < edge
    back = np.where(inside, x, 0).astype(whole.dtype)
    return np.where(inside, np.where(back > whole, 1, np.where(back < whole, -1, 0)), 1)


def to_integer(x: Ndarray, kind: str) -> Ndarray:
    """Integers of whole floats: at the ends of the range where it is left; not a number is 0, or the top bit alone
    where doubles or 64 bits are involved.
    """
    value = np.asarray(x)
    wide = value.astype("f8")
    limits = np.iinfo(kind)
    is_over = wide >= float(limits.max) + (1.0 if limits.bits < 64 else 0.0)
    is_under = wide <= float(limits.min)
    is_nan = np.isnan(wide)
    inside = np.where(is_over | is_under | is_nan, 0.0, wide).astype(kind)
    found = np.where(is_over, limits.max, np.where(is_under, limits.min, inside))
    if not np.any(is_nan):
        return found.astype(kind)
    is_wide = value.dtype.itemsize == 8 or limits.bits == 64
    unknown = (limits.min if kind[0] == "i" else 1 << (limits.bits - 1)) if is_wide else 0
    return np.where(is_nan, np.array(unknown, kind), found.astype(kind))


def clipped(x: Ndarray, kind: str) -> Ndarray:
    """Integers as narrower ones, at the ends of their range where they leave it."""
    limits = np.iinfo(kind)
    value = np.asarray(x)
    own = np.iinfo(value.dtype)
    result: Ndarray = np.clip(value, max(limits.min, own.min), min(limits.max, own.max)).astype(kind)
    return result
