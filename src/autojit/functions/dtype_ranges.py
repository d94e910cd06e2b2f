"""What numbers a dtype holds: asked before random ones are drawn that it could not."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from autojit.core.dtypes import DType, bool_
from autojit.core.errors import UsageError

_limits: Any = ml_dtypes.finfo


def require_range(low: Any, high: Any, dtype: DType) -> None:
    """UsageError where a uniform number between these may not be one of the dtype."""
    if not (dtype.is_floating_point and isinstance(low, int | float) and isinstance(high, int | float)):
        return
    largest = float(_limits(dtype.numpy).max)
    for name, end in (("from", low), ("to", high)):
        if abs(end) > largest:
            raise UsageError(f"{name} is out of bounds for {dtype.name}", {name: end})
    if high - low > largest:
        raise UsageError(
            f"uniform_ expects to-from <= {largest:g}, the largest {dtype.name}, but found to={high} and from={low}"
        )


def require_whole_numbers(low: Any, high: Any, dtype: DType) -> None:
    """UsageError where a dtype of integers does not hold all from ``low`` up to, but without, ``high``."""
    if dtype.category != 1 or type(low) is not int or type(high) is not int:
        return
    limits = np.iinfo(dtype.numpy)
    for name, end in (("from", low), ("to - 1", high - 1)):
        if not limits.min <= end <= limits.max:
            raise UsageError(f"{name} is out of bounds for {dtype.name}", {name: end})


def whole_numbers_of(dtype: DType) -> int:
    """How many whole numbers from 0 on the dtype has without a gap."""
    if dtype.category == 1:
        return int(np.iinfo(dtype.numpy).max) + 1
    return 2 if dtype is bool_ else int(2 ** (_limits(dtype.numpy).nmant + 1)) + 1
