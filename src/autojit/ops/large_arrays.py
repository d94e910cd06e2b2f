"""One pass over large arrays: what the eager rules ask where NumPy needs several passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from autojit.core.ports import ports

if TYPE_CHECKING:
    from numpy.typing import NDArray

LARGE = 4096  # elements; below, starting a kernel costs more than NumPy's passes


def large_floats(op: Any, arrays: Sequence[NDArray[Any]]) -> Any:
    """The op's result on large arrays of float32 or float64 by a compiled kernel; None: NumPy computes it."""
    first, last, by_kernel = arrays[0], arrays[-1], ports.by_kernel
    if by_kernel is None or first.size < LARGE or last.dtype.kind != "f" or last.dtype.itemsize < 4:
        return None
    return by_kernel(op, arrays)


def large_sums(op: Any, base: NDArray[Any], addends: NDArray[Any], places: Sequence[NDArray[Any]]) -> Any:
    """Many float32 or float64 elements added to others by a compiled kernel; None: NumPy computes it."""
    by_kernel = ports.by_kernel
    if by_kernel is None or addends.size < LARGE or base.dtype.char not in "fd":
        return None
    return by_kernel(op, (base, addends, *places))
