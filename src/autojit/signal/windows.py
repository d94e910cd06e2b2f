"""Windows of ``M`` points: weights that fade towards the ends of a signal.

``sym`` windows are symmetric; the others are the first ``M`` points of a symmetric window of ``M + 1``, which is
periodic and fits ``fft``. All give ``[M]`` of ``dtype`` (the default float by default) and raise ValueError for a
negative ``M`` or a dtype that is not a real float.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autojit.core.dtypes import DType, default_dtype, float32, float64
from autojit.core.errors import ArgumentError
from autojit.core.layout import strided
from autojit.functions.factories import finish
from autojit.tensor import Tensor
from autojit.tensor.of_arrays import on_memory_of

__all__ = [
    "bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming", "hamming", "hann",
    "kaiser", "nuttall",
]  # fmt: skip

_COMMON = {"sym": True, "dtype": None, "layout": None, "device": None, "requires_grad": False}
_Shape = Callable[[NDArray[np.float64], int], NDArray[np.float64]]


def _window(name: str, M: int, shape: _Shape, options: dict[str, Any], alone: int = 1) -> Tensor:
    """``shape`` at the points 0, ..., M - 1 of a window of (second argument) points; ones up to ``alone`` points."""
    unknown = sorted(set(options) - set(_COMMON))
    if unknown:
        raise TypeError(f"{name}() got an unexpected keyword argument '{unknown[0]}'")
    chosen = {**_COMMON, **options}
    dtype: DType = chosen["dtype"] or default_dtype()
    if M < 0:
        raise ArgumentError(f"{name} requires non-negative window length, got M={M}")
    if dtype not in (float32, float64):
        raise ArgumentError(f"{name} expects float32 or float64 dtypes, got: {dtype}")
    if chosen["layout"] not in (None, strided):
        raise ArgumentError(f"{name} is implemented for strided tensors only, got: {chosen['layout']}")
    points = M if chosen["sym"] else M + 1
    values = np.ones(M) if M <= alone else shape(np.arange(M, dtype=np.float64), points)
    return finish(on_memory_of(values.astype(dtype.numpy)), chosen["requires_grad"], chosen["device"])


def _positive(name: str, what: str, value: float) -> None:
    if value <= 0:
        raise ArgumentError(f"{what} must be positive, got: {value} instead.", {"window": name})


def _cosines(a: Iterable[float]) -> _Shape:
    weights = list(a)
    return lambda k, n: sum((-1) ** i * w * np.cos(2 * math.pi * i * k / (n - 1)) for i, w in enumerate(weights))


def bartlett(M: int, **options: Any) -> Tensor:
    """A triangle from 0 over 1 to 0.

    Example:
        >>> import autojit as aj
        >>> aj.signal.windows.bartlett(5)
        tensor([0.0000, 0.5000, 1.0000, 0.5000, 0.0000])
    """
    return _window("bartlett", M, lambda k, n: 1 - np.abs(2 * k / (n - 1) - 1), options)


def blackman(M: int, **options: Any) -> Tensor:
    """Cosines with the weights 0.42, 0.5, 0.08."""
    return _window("blackman", M, _cosines((0.42, 0.5, 0.08)), options)


def cosine(M: int, **options: Any) -> Tensor:
    """Half a period of a sine, at half steps so that the ends are not 0."""
    return _window("cosine", M, lambda k, n: np.sin(math.pi / n * (k + 0.5)), options)


def exponential(M: int, *, center: float | None = None, tau: float = 1.0, **options: Any) -> Tensor:
    """``exp(-abs(k - center) / tau)``; a ``center`` may be given for windows that are not symmetric."""
    _positive("exponential", "Tau", tau)
    if center is not None and options.get("sym", True):
        raise ArgumentError("Center must be None for symmetric windows")
    return _window(
        "exponential",
        M,
        lambda k, n: np.exp(-np.abs(k - ((n - 1) / 2 if center is None else center)) / tau),
        options,
        alone=1 if center is None else 0,
    )


def gaussian(M: int, *, std: float = 1.0, **options: Any) -> Tensor:
    """``exp(-d**2 / (2 std**2))`` at the distance ``d`` from the middle."""
    _positive("gaussian", "Standard deviation", std)
    return _window("gaussian", M, lambda k, n: np.exp(-(((k - (n - 1) / 2) / std) ** 2) / 2), options)


def general_cosine(M: int, *, a: Iterable[float], **options: Any) -> Tensor:
    """A sum of cosines with the weights ``a`` and alternating signs."""
    if not isinstance(a, Iterable):
        raise TypeError("Coefficients must be a list/tuple")
    weights = list(a)
    if not weights:
        raise ArgumentError("Coefficients cannot be empty")
    return _window("general_cosine", M, _cosines(weights), options)


def general_hamming(M: int, *, alpha: float = 0.54, **options: Any) -> Tensor:
    """``alpha - (1 - alpha) cos``."""
    return _window("general_hamming", M, _cosines((alpha, 1 - alpha)), options)


def hamming(M: int, **options: Any) -> Tensor:
    """``0.54 - 0.46 cos``."""
    return _window("hamming", M, _cosines((0.54, 0.46)), options)


def hann(M: int, **options: Any) -> Tensor:
    """``0.5 - 0.5 cos``.

    Example:
        >>> import autojit as aj
        >>> aj.signal.windows.hann(4, sym=False)
        tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """
    return _window("hann", M, _cosines((0.5, 0.5)), options)


def kaiser(M: int, *, beta: float = 12.0, **options: Any) -> Tensor:
    """``i0(beta sqrt(1 - t**2)) / i0(beta)`` for t from -1 to 1."""
    if beta < 0:
        raise ArgumentError(f"beta must be non-negative, got: {beta} instead.")
    return _window(
        "kaiser",
        M,
        lambda k, n: np.i0(beta * np.sqrt(np.maximum(0, 1 - (2 * k / (n - 1) - 1) ** 2))) / np.i0(np.array(beta)),
        options,
    )


def nuttall(M: int, **options: Any) -> Tensor:
    """Nuttall's minimal four-term cosines."""
    return _window("nuttall", M, _cosines((0.3635819, 0.4891775, 0.1365995, 0.0106411)), options)
