"""NumPy's views by strides, also of number formats that its array interface has no name for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib import stride_tricks


def as_strided(x: np.ndarray[Any, Any], shape: Sequence[int], strides: Sequence[int]) -> np.ndarray[Any, Any]:
    """``numpy.lib.stride_tricks.as_strided``; of floats of a byte (``<f1`` to it) through their bits."""
    if x.dtype.isbuiltin == 1:
        if x.flags.c_contiguous:
            try:
                return np.ndarray(tuple(shape), x.dtype, x, 0, tuple(strides))  # 0.2 us, NumPy's function 2
            except ValueError:  # it reaches beyond the array's own elements, as a view of others' memory may
                pass
        return stride_tricks.as_strided(x, shape, strides)
    bits = x.view(np.dtype(f"u{x.dtype.itemsize}"))
    return stride_tricks.as_strided(bits, shape, strides).view(x.dtype)
