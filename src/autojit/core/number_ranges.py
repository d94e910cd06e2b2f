"""Whether a dtype holds a number that is written down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.dtypes import DType, int64
from autojit.core.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray


def in_range(value: Any, dtype: DType) -> Any:
    """A number as the dtype holds it: negative ones wrap around in unsigned dtypes, as in C.

    Raises:
        UsageError: a whole number that the dtype does not hold, or a complex one whose imaginary part would be lost.
    """
    if isinstance(value, complex | np.complexfloating) and not dtype.is_complex and dtype.kind != "bool":
        if value.imag:
            raise _overflow(value, dtype, "use a complex dtype, or the part that is meant: value.real")
        return value.real
    if dtype.kind not in ("int", "uint") or isinstance(value, float | complex | np.floating):
        return value
    span = 1 << dtype.size_bytes * 8
    low, high = (1 - span, span) if dtype.kind == "uint" else (-span // 2, span // 2)
    if not low <= int(value) < high:
        raise _overflow(value, dtype, "use a wider dtype")
    return int(value) % span if dtype.kind == "uint" else int(value)


def require_in_range(written: NDArray[Any], dtype: DType) -> None:
    """``in_range`` of all of the numbers that are written down; arrays wrap around.

    Raises:
        UsageError: a whole number does not fit.
        TypeError: complex numbers for a dtype without them.
    """
    if written.dtype.kind == "c" and dtype.kind in ("float", "int", "uint"):
        raise TypeError("must be real number, not complex")
    if dtype.kind in ("int", "uint") and dtype is not int64 and written.dtype.kind in "iu" and written.size:
        in_range(written.min(), dtype)
        in_range(written.max(), dtype)


def _overflow(value: object, dtype: DType, fix: str) -> UsageError:
    return UsageError(f"value cannot be converted to type {dtype.name} without overflow", {"value": value}, fix)
