"""Dropout: random zeros in training, scaled so that the mean stays; the identity otherwise."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

import autojit as aj
from autojit.core.errors import ArgumentError, ShapeError
from autojit.core.user_warnings import warn
from autojit.functions.memory import in_format
from autojit.functions.random import drawn_here
from autojit.tensor import Tensor
from autojit.tensor.state import computes_at_once, state

__all__ = ["alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout"]

_ALPHA = 1.7580993408473766  # selu's limit at minus infinity, negated: Klambauer et al., arXiv:1706.02515


def _keeps_all(p: float, training: bool) -> bool:
    """Whether nothing is dropped; ValueError for what is not a probability."""
    if p < 0.0 or p > 1.0:
        raise ArgumentError(f"dropout probability has to be between 0 and 1, but got {p}")
    return not training or p == 0.0


def _kept(input: Tensor, p: float, shape: Sequence[int]) -> Tensor:
    """A boolean mask that is True with probability 1 - p. Drawn in float32 for every dtype."""
    if type(input._array) is np.ndarray and state.observer is None and computes_at_once():
        drawn = drawn_here(shape, aj.float32)
    else:
        drawn = aj.rand(tuple(shape), dtype=aj.float32, device=input.device)
    return (drawn if input.is_contiguous() else in_format(drawn, None, input)) >= p


def _drop(input: Tensor, p: float, inplace: bool, shape: Sequence[int]) -> Tensor:
    if p == 1.0:
        return input.mul_(0.0) if inplace else input * 0.0
    mask = _kept(input, p, shape).to(input.dtype) * (1.0 / (1.0 - p))
    return input.mul_(mask) if inplace else input * mask


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero each element with probability ``p`` and scale the others by 1 / (1 - p)."""
    if _keeps_all(p, training):
        return input
    return _drop(input, p, inplace, input.shape)


def _feature_dropout(input: Tensor, p: float, training: bool, inplace: bool, batched: bool) -> Tensor:
    if _keeps_all(p, training):
        return input
    kept_axes = 2 if batched else 1
    return _drop(input, p, inplace, [*input.shape[:kept_axes], *[1] * (input.ndim - kept_axes)])


def _warn_rank(name: str, input: Tensor, ranks: tuple[int, int]) -> None:
    if input.ndim not in ranks:
        warn(
            f"{name}: Received a {input.ndim}-D input to {name}, which is deprecated and will result in an error in a "
            "future release. To retain the behavior and silence this warning, please use dropout instead. Note that "
            f"{name} exists to provide channel-wise dropout on inputs with {ranks[1] - 2} spatial dimensions, a "
            f"channel dimension, and an optional batch dimension (i.e. {ranks[0]}D or {ranks[1]}D inputs)."
        )


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero whole channels of ``[n, c, l]`` or ``[c, l]``."""
    if input.ndim not in (2, 3):
        raise ShapeError(
            f"dropout1d: Expected 2D or 3D input, but received a {input.ndim}D input. Note that dropout1d exists to "
            "provide channel-wise dropout on inputs with 1 spatial dimension, a channel dimension, and an optional "
            "batch dimension (i.e. 2D or 3D inputs)."
        )
    return _feature_dropout(input, p, training, inplace, input.ndim == 3)


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero whole channels of ``[n, c, h, w]``."""
    _warn_rank("dropout2d", input, (3, 4))
    if input.ndim == 3:
        warn(
            "dropout2d: Received a 3D input to dropout2d and assuming that channel-wise 1D dropout behavior is desired "
            "- input is interpreted as shape (N, C, L). A future release will take it for (C, H, W); use dropout1d to "
            "keep what happens now."
        )
    return _feature_dropout(input, p, training, inplace, True)


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero whole channels of ``[n, c, d, h, w]`` or ``[c, d, h, w]``."""
    _warn_rank("dropout3d", input, (4, 5))
    return _feature_dropout(input, p, training, inplace, input.ndim != 4)


def _alpha(input: Tensor, p: float, training: bool, inplace: bool, shape: Sequence[int]) -> Tensor:
    """Set dropped elements to selu's lower limit, then restore mean 0 and variance 1."""
    if _keeps_all(p, training):
        return input
    if p == 1.0:
        return input.mul_(0.0) if inplace else input * 0.0
    scale = 1.0 / math.sqrt((_ALPHA * _ALPHA * p + 1.0) * (1.0 - p))
    kept = _kept(input, p, shape).to(input.dtype)
    found = input * (kept * scale) + ((kept - 1.0) * (_ALPHA * scale) + _ALPHA * scale * p)
    return input.copy_(found) if inplace else found


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout that keeps mean and variance of selu networks. Source: arXiv:1706.02515."""
    return _alpha(input, p, training, inplace, input.shape)


def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Alpha dropout of whole channels (axis 1)."""
    return _alpha(input, p, training, inplace, [*input.shape[:2], *[1] * (input.ndim - 2)])
