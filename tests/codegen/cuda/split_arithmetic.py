"""What products of float32 in two parts compute, in NumPy: the roundings of the kernels, one by one.

A tensor core's sum is rounded once, as on the emulated device. Real ones cut off.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autojit.codegen.cuda.product_choice import Choice

Array = np.ndarray[Any, Any]


def split_product(a: Array, b: Array, choice: Choice) -> Array:
    """The product of two matrices of float32 by a tile and its splits."""
    k = a.shape[1]
    parts = [_sum(a[:, s : s + choice.chunk], b[s : s + choice.chunk], choice) for s in range(0, k, choice.chunk)]
    total = np.zeros_like(parts[0])
    for part in parts:
        total = total + part
    return total if len(parts) > 1 else parts[0]


def _sum(a: Array, b: Array, choice: Choice) -> Array:
    """The sums of all slices, in their order."""
    first, *others = [_of_slice(a, b, choice, number) for number in range(choice.tile.slices)]
    for other in others:
        first = first + other
    return first


def _of_slice(a: Array, b: Array, choice: Choice, number: int) -> Array:
    """Depth by depth: a sum inside the tensor core, then an ordinary addition."""
    depth, at_once = choice.tile.depth, choice.tile.fragment.depth
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for first in range(number * depth, a.shape[1], choice.tile.turn_depth):
        inside = np.zeros_like(total)
        for start in range(first, min(first + depth, a.shape[1]), at_once):
            (high, low), (other_high, other_low) = (
                _parts(a[:, start : start + at_once]),
                _parts(b[start : start + at_once]),
            )
            for one, other in ((low, other_high), (high, other_low), (high, other_high)):
                inside = (one.astype(np.float64) @ other.astype(np.float64) + inside).astype(np.float32)
        total = total + inside
    return total


def _parts(x: Array) -> tuple[Array, Array]:
    """The high part, rounded to 11 bits; what a tensor core reads of the rest."""
    bits = x.view(np.uint32)
    high = ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
    low = (x - high).view(np.uint32) & np.uint32(0xFFFFE000)
    return high, low.view(np.float32)
