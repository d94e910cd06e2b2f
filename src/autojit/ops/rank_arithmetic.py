"""What collectives do with arrays before and behind the communicator: dtypes that it does not combine, and order.

Communicators combine integers, float32, float64 and complex numbers. Bools are combined as bytes, halves in float32 and
rounded once, sums of small integers as larger ones. The largest and the smallest of floats are found as integers of the
same order: MPI does not say what becomes of NaN and of zeros with signs, and here NaN is the result wherever it takes
part.
"""

from __future__ import annotations

import numpy as np

from autojit.core.communicator import Combination, Communicator, Manner, called
from autojit.ir.op import Ndarray

__all__ = ["combined_as", "from_keys", "ordered_keys", "packed", "reduced", "sums_wrongly", "wide"]


def packed(x: Ndarray) -> Ndarray:
    """The array without gaps, in the order of its elements."""
    return np.ascontiguousarray(x).reshape(x.shape)


def wide(x: Ndarray, combine: str = "sum") -> Ndarray:
    """The elements as numbers that communicators combine."""
    if x.dtype == np.bool_:
        return x.view(np.uint8)
    if x.dtype.kind in "iu":
        return x.astype(np.int32) if sums_wrongly(x.dtype, combine) else x
    return x.astype(np.float32) if x.dtype.itemsize < 4 else x


def sums_wrongly(dtype: np.dtype[np.generic], combine: str) -> bool:
    """Whether an engine may stop at the largest number of a dtype instead of going on at the smallest.

    Open MPI 5.0.11 does where the machine has AVX: its sums of 8 and 16 bits saturate, for some lengths.
    """
    return combine == "sum" and dtype.kind in "iu" and dtype.itemsize < 4


def combined_as(dtype: np.dtype[np.generic], combine: Combination) -> Combination:
    """How ``wide`` numbers are combined: a sum of bools is whether one is true, a product whether all are."""
    if dtype != np.bool_:
        return combine
    return "max" if combine in ("sum", "max") else "min"


def reduced(ranks: Communicator, x: Ndarray, combine: Combination, manner: Manner = "at once") -> Ndarray:
    """Every element combined over the ranks."""
    parts = wide(x, combine)
    if parts.dtype.kind == "f" and combine in ("max", "min"):
        keys = ordered_keys(parts, combine)
        called(manner, ranks.all_reduce, keys, combine)
        return from_keys(keys, parts.dtype).astype(x.dtype, copy=False)
    buffer = np.array(parts, order="C")
    called(manner, ranks.all_reduce, buffer, combined_as(x.dtype, combine))
    return buffer.view(np.bool_) if x.dtype == np.bool_ else buffer.astype(x.dtype, copy=False)


def ordered_keys(x: Ndarray, combine: Combination) -> Ndarray:
    """Integers in the order of the floats; NaN is beyond all of them, on the side that wins."""
    integers = np.dtype(f"i{x.dtype.itemsize}")
    limits = np.iinfo(integers)
    keys = _turned(packed(x).view(integers))
    keys[np.isnan(x)] = limits.max if combine == "max" else limits.min
    return keys


def from_keys(keys: Ndarray, dtype: np.dtype[np.generic]) -> Ndarray:
    """The floats behind ``ordered_keys``."""
    return _turned(keys).view(dtype)


def _turned(bits: Ndarray) -> Ndarray:
    """Signed magnitudes as numbers of the same order, and back."""
    return np.asarray(np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits))
