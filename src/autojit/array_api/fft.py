"""The standard's extension ``fft``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import autojit as aj
from autojit.core.dtypes import DType
from autojit.core.wrapping import named
from autojit.tensor import Tensor


def _along_axis(name: str, doc: str) -> Callable[..., Tensor]:
    transform: Callable[..., Tensor] = getattr(aj.fft, name)

    def function(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
        return transform(x, n, axis, norm)

    return named(function, name, doc)


def _along_axes(name: str, doc: str) -> Callable[..., Tensor]:
    transform: Callable[..., Tensor] = getattr(aj.fft, name)

    def function(x: Tensor, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Tensor:
        return transform(x, s, axes, norm)

    return named(function, name, doc)


fft = _along_axis("fft", "The Fourier transform along an axis.")
ifft = _along_axis("ifft", "The inverse of ``fft``.")
rfft = _along_axis("rfft", "The half of ``fft`` that tells all about real numbers.")
irfft = _along_axis("irfft", "The inverse of ``rfft``.")
hfft = _along_axis("hfft", "``fft`` of a Hermitian sequence, given by its half.")
ihfft = _along_axis("ihfft", "The inverse of ``hfft``.")
fftn = _along_axes("fftn", "The Fourier transform along several axes.")
ifftn = _along_axes("ifftn", "The inverse of ``fftn``.")
rfftn = _along_axes("rfftn", "The half of ``fftn`` that tells all about real numbers.")
irfftn = _along_axes("irfftn", "The inverse of ``rfftn``.")


def fftfreq(n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: Any = None) -> Tensor:
    """The frequencies of ``fft``."""
    return aj.fft.fftfreq(n, d, dtype=dtype, device=device)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: Any = None) -> Tensor:
    """The frequencies of ``rfft``."""
    return aj.fft.rfftfreq(n, d, dtype=dtype, device=device)


def fftshift(x: Tensor, /, *, axes: Any = None) -> Tensor:
    """The frequency 0 in the middle."""
    return aj.fft.fftshift(x, axes)


def ifftshift(x: Tensor, /, *, axes: Any = None) -> Tensor:
    """The inverse of ``fftshift``."""
    return aj.fft.ifftshift(x, axes)


__all__ = [
    "fft", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft", "irfft", "irfftn", "rfft",
    "rfftfreq", "rfftn",
]  # fmt: skip
