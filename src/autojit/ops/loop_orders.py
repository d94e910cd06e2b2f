"""How NumPy's elementwise loops lay out what they make: the axes in memory as in the operands, without gaps.

Where operands disagree the order is row-major. One ufunc does it by itself; a rule of several steps may not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def in_order_of(arrays: Sequence[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    """A fresh array, its elements not set, as a loop over arrays lays out its result."""
    flags: Any = [*[["readonly"]] * len(arrays), ["writeonly", "allocate"]]
    walk = np.nditer([*arrays, None], ["zerosize_ok"], flags, [*[None] * len(arrays), dtype], order="K")
    found: NDArray[Any] = walk.operands[-1]
    return found


def settled(function: Callable[..., Any]) -> Callable[..., Any]:
    """An elementwise function of arrays whose result is laid out as one loop would lay it out."""

    @wraps(function)
    def compute(*arrays: Any) -> Any:
        found = function(*arrays)
        if type(found) is tuple:
            return tuple([as_loop(one, arrays) for one in found])
        return as_loop(found, arrays)

    return compute


def as_loop(found: Any, operands: Sequence[Any]) -> Any:
    """``found``, or its elements in an array laid out as a loop over the operands would lay it out."""
    if type(found) is not np.ndarray or found.ndim < 2:
        return found
    is_plain = found.flags.c_contiguous
    for a in operands if is_plain else ():  # a generator costs more than all the questions
        if not a.flags.c_contiguous:
            is_plain = False
    if is_plain:
        return found
    wanted = in_order_of(operands, found.dtype)
    if wanted.strides == found.strides or wanted.shape != found.shape:
        return found
    wanted[...] = found
    return wanted
