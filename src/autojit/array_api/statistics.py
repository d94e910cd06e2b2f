"""Reductions of the standard."""

from __future__ import annotations

from typing import Any

import numpy as np

import autojit as aj
from autojit.array_api.promotion import together
from autojit.core.dtypes import DType
from autojit.interop.registry import FUNCTIONS
from autojit.tensor import Tensor


def _of(function: Any, *arguments: Any, **options: Any) -> Any:
    return FUNCTIONS[function](*arguments, **options)


def _summed_in(x: Tensor, dtype: DType | None) -> DType | None:
    return aj.uint64 if dtype is None and x.dtype.kind == "uint" else dtype


def all(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Whether all elements are true."""
    return _of(np.all, x, axis, keepdims=keepdims)  # type: ignore[no-any-return]


def any(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Whether an element is true."""
    return _of(np.any, x, axis, keepdims=keepdims)  # type: ignore[no-any-return]


def max(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The greatest element."""
    return _of(np.max, x, axis, keepdims=keepdims)  # type: ignore[no-any-return]


def min(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The least element."""
    return _of(np.min, x, axis, keepdims=keepdims)  # type: ignore[no-any-return]


def mean(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The mean."""
    return _of(np.mean, x, axis, keepdims=keepdims)  # type: ignore[no-any-return]


def sum(x: Tensor, /, *, axis: Any = None, dtype: DType | None = None, keepdims: bool = False) -> Tensor:
    """The sum; small integers are summed in 64 bits."""
    return _of(np.sum, x, axis, _summed_in(x, dtype), keepdims=keepdims)  # type: ignore[no-any-return]


def prod(x: Tensor, /, *, axis: Any = None, dtype: DType | None = None, keepdims: bool = False) -> Tensor:
    """The product; small integers are multiplied in 64 bits."""
    return _of(np.prod, x, axis, _summed_in(x, dtype), keepdims=keepdims)  # type: ignore[no-any-return]


def var(x: Tensor, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The variance."""
    return _of(np.var, x, axis, ddof=correction, keepdims=keepdims)  # type: ignore[no-any-return]


def std(x: Tensor, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The standard deviation."""
    return _of(np.std, x, axis, ddof=correction, keepdims=keepdims)  # type: ignore[no-any-return]


def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: DType | None = None, include_initial: bool = False
) -> Tensor:
    """Sums of the elements up to each one."""
    return _of(  # type: ignore[no-any-return]
        np.cumulative_sum, x, axis=axis, dtype=_summed_in(x, dtype), include_initial=include_initial
    )


def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: DType | None = None, include_initial: bool = False
) -> Tensor:
    """Products of the elements up to each one."""
    return _of(  # type: ignore[no-any-return]
        np.cumulative_prod, x, axis=axis, dtype=_summed_in(x, dtype), include_initial=include_initial
    )


def diff(
    x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """Differences of neighbours, ``n`` times."""
    given = [t for t in (prepend, x, append) if t is not None]
    parts = together(*given)
    joined = aj.cat(parts, axis) if len(parts) > 1 else x
    return aj.diff(joined, n, axis)
