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


evaluating = Evaluating()
