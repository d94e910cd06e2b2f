"""Probabilities and weights that nothing can be drawn by: where arrays are at hand, NumPy looks, else the step does."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from autojit.core.device_array import host_copy
from autojit.core.errors import UsageError
from autojit.dispatch.promotion import Real
from autojit.dispatch.requirements import is_known, require
from autojit.tensor.state import quietly
from autojit.tensor.tensor import Tensor, type_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


def _are_within(array: NDArray[np.generic], most: float) -> bool:
    """Whether all elements are from 0 to ``most``; NaN is not."""
    return not array.size or bool(array.min() >= 0 and array.max() <= most)


def require_probability(p: Tensor | Real) -> None:
    """RuntimeError for a probability outside [0, 1]."""
    if isinstance(p, Tensor):
        if not is_known(p) or not quietly(_are_within, host_copy(p._array), 1):
            require(p, lambda q: (q >= 0) & (q <= 1), "bernoulli expects p to be in [0, 1]", "0 to 1", named="p")
    elif not 0 <= p <= 1:
        raise UsageError(f"bernoulli expects p to be in [0, 1], but got p={p}")


_MOST_CATEGORIES = 2**24  # torch's limit


def require_weights(input: Tensor, num_samples: int) -> None:
    """RuntimeError for what cannot be drawn from."""
    t = type_of(input)
    if not t.dtype.is_floating_point:
        raise UsageError(f"multinomial only supports floating-point dtypes for input, got: {t.dtype}")
    if num_samples <= 0:
        raise UsageError("cannot sample n_sample <= 0 samples")
    if t.ndim and t.shape[-1] > _MOST_CATEGORIES:
        raise UsageError("number of categories cannot exceed 2^24")
    if t.ndim not in (1, 2):
        return
    weights = host_copy(input._array) if is_known(input) else None
    if weights is None or not quietly(_are_within, weights, math.inf) or (weights.size and weights.max() == math.inf):
        refusal = "probability tensor contains either `inf`, `nan` or element < 0"
        require(input, lambda w: (w >= 0) & (w < math.inf), refusal, "0 and more, finite")
    if weights is None or not weights.any(-1).all():
        refusal = "invalid multinomial distribution (sum of probabilities <= 0)"
        require(input, lambda w: (w > 0).any(-1), refusal, "rows with a weight above 0")
