"""Functions of the standard that make arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import autojit as aj
from autojit.array_api.promotion import sequence_of
from autojit.core.dtypes import DType, default_dtype
from autojit.core.wrapping import named
from autojit.functions.exchange import from_dlpack as _from_dlpack
from autojit.functions.exchange import is_foreign_array
from autojit.interop.registry import FUNCTIONS
from autojit.tensor import Tensor

__all__ = [
    "arange", "asarray", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like", "linspace", "meshgrid",
    "ones", "ones_like", "tril", "triu", "zeros", "zeros_like",
]  # fmt: skip


def asarray(obj: Any, /, *, dtype: DType | None = None, device: Any = None, copy: bool | None = None) -> Tensor:
    """An array of numbers, nested sequences, or another library's array, whose memory is shared if ``copy`` allows it.

    Raises:
        ValueError: ``copy=False`` although a copy is needed.
        OverflowError: an integer that no dtype holds.
    """
    shares = isinstance(obj, Tensor) or is_foreign_array(obj)
    if copy is False and not shares:
        raise ValueError("asarray: numbers and sequences cannot be taken without a copy")
    if isinstance(obj, int) and not -(1 << 63) <= obj < 1 << 64:
        raise OverflowError(f"asarray: {obj} is too large for any integer dtype")
    if dtype is None and not shares and isinstance(obj, int) and obj >= 1 << 63:
        dtype = aj.uint64
    return aj.asarray(obj, dtype=dtype, device=device, copy=copy)


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """The array of another library, on the same memory unless ``copy``."""
    return _from_dlpack(x, device=device, copy=copy)


def arange(start: Any, /, stop: Any = None, step: Any = 1, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """Evenly spaced numbers from ``start`` (0 if it is alone) up to, but not at ``stop``."""
    start, stop = (0, start) if stop is None else (start, stop)
    if (stop - start) * step <= 0:
        whole = all(isinstance(v, int) for v in (start, stop, step))
        return aj.zeros(0, dtype=dtype or (aj.int64 if whole else default_dtype()), device=device)
    return aj.arange(start, stop, step, dtype=dtype, device=device)


def empty(shape: Any, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """An array with unspecified elements (zeros)."""
    return aj.zeros(sequence_of(shape), dtype=dtype, device=device)


def zeros(shape: Any, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """An array of zeros."""
    return aj.zeros(sequence_of(shape), dtype=dtype, device=device)


def ones(shape: Any, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """An array of ones."""
    return aj.ones(sequence_of(shape), dtype=dtype, device=device)


def full(shape: Any, fill_value: Any, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """An array of one number."""
    return aj.full(sequence_of(shape), fill_value, dtype=dtype, device=device)


def _like(name: str, value: int, doc: str) -> Callable[..., Tensor]:
    def like(x: Tensor, /, *, dtype: DType | None = None, device: Any = None) -> Tensor:
        return aj.full_like(x, value, dtype=dtype, device=device)

    return named(like, name, doc)


empty_like = _like("empty_like", 0, "An array with the shape of ``x`` and unspecified elements (zeros).")
zeros_like = _like("zeros_like", 0, "Zeros in the shape of ``x``.")
ones_like = _like("ones_like", 1, "Ones in the shape of ``x``.")


def full_like(x: Tensor, /, fill_value: Any, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """One number in the shape of ``x``."""
    return aj.full_like(x, fill_value, dtype=dtype, device=device)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: DType | None = None, device: Any = None
) -> Tensor:
    """Ones on the diagonal ``k``, zeros elsewhere."""
    return aj.asarray(np.eye(n_rows, n_cols, k, (dtype or default_dtype()).numpy), device=device)


def linspace(
    start: Any, stop: Any, /, num: int, *, dtype: DType | None = None, device: Any = None, endpoint: bool = True
) -> Tensor:
    """``num`` evenly spaced numbers from ``start`` to ``stop``."""
    is_complex = isinstance(start, complex) or isinstance(stop, complex)
    wanted = dtype or (default_dtype().to_complex() if is_complex else default_dtype())
    return aj.asarray(np.linspace(start, stop, num, endpoint).astype(wanted.numpy), device=device)


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> list[Tensor]:
    """Coordinates of the points of a grid.

    Raises:
        ValueError: the indexing is neither ``"xy"`` nor ``"ij"``, or the arrays have different dtypes.
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(f"meshgrid: indexing is 'xy' or 'ij', got {indexing!r}")
    if len({a.dtype for a in arrays}) > 1:
        raise ValueError("meshgrid: the arrays have different dtypes")
    return list(FUNCTIONS[np.meshgrid](*arrays, indexing=indexing))


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """What is on and below the diagonal ``k``."""
    return aj.tril(x, k)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """What is on and above the diagonal ``k``."""
    return aj.triu(x, k)
