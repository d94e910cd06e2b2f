"""Where a tensor of positions, or of one number of pieces, cuts another."""

from __future__ import annotations

from typing import Any

from autojit.core.dtypes import int64
from autojit.core.errors import DTypeError, UsageError
from autojit.tensor.tensor import Tensor, type_of


def cuts_of(cuts: Tensor) -> Any:
    """The number of pieces, or the list of positions, that a tensor says.

    Raises:
        RuntimeError: it is not int64, or has more than one axis.
    """
    t = type_of(cuts)
    what = "tensor_split expected tensor_indices_or_sections to"
    if t.dtype is not int64:
        raise DTypeError(f"{what} have dtype of long, but got {t.dtype.scalar_type}", {"indices": cuts})
    if t.ndim > 1:
        raise UsageError(f"{what} be a zero-dimensional or one-dimensional tensor, but got a tensor with {t.ndim} dims")
    return cuts.tolist()
