"""How ops that NumPy computes in several passes ask for one pass over large arrays.

``evaluating.by_kernel(op, arrays)`` is set by ``tensor.kernels``; None stands for "NumPy does it". Without that layer
(ops used by themselves) nothing is set, and NumPy computes everything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

LARGE = 4096  # elements; below, starting a kernel costs more than NumPy's passes


class Evaluating:
    """Filled in by ``tensor.kernels``."""

    by_kernel: Callable[[Any, Sequence[Any]], Any] | None = None
    by_open_kernel: Callable[[Any, Sequence[Any]], Any] | None = None  # one kernel for all extents of the operands


evaluating = Evaluating()


def large_floats(op: Any, *arrays: Any) -> Any:
    """The op's result by a kernel for all extents, if the first array is large and of float32 or float64; else None."""
    first, by_open_kernel = arrays[0], evaluating.by_open_kernel
    if by_open_kernel is None or first.size < LARGE or first.dtype.kind != "f" or first.dtype.itemsize < 4:
        return None
    return by_open_kernel(op, arrays)
