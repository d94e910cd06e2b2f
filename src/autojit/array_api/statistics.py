"""Reductions of the standard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import autojit as aj
from autojit.array_api.promotion import computed, together
from autojit.core.dtypes import DType
from autojit.core.wrapping import named
from autojit.tensor import Tensor

__all__ = [
    "all", "any", "cumulative_prod", "cumulative_sum", "diff", "max", "mean", "min", "prod", "std", "sum", "var",
]  # fmt: skip


def _summed_in(x: Tensor, dtype: DType | None) -> DType | None:
    return aj.uint64 if dtype is None and x.dtype.kind == "uint" else dtype


def _over(name: str, doc: str) -> Callable[..., Tensor]:
    reduce = getattr(np, name)

    def function(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
        return computed(reduce, x, axis, keepdims=keepdims)

    return named(function, name, doc)


all = _over("all", "Whether all elements are true.")
any = _over("any", "Whether an element is true.")
max = _over("max", "The greatest element.")
min = _over("min", "The least element.")
mean = _over("mean", "The mean.")


def sum(x: Tensor, /, *, axis: Any = None, dtype: DType | None = None, keepdims: bool = False) -> Tensor:
    """The sum; small integers are summed in 64 bits."""
    return computed(np.sum, x, axis, _summed_in(x, dtype), keepdims=keepdims)


def prod(x: Tensor, /, *, axis: Any = None, dtype: DType | None = None, keepdims: bool = False) -> Tensor:
    """The product; small integers are multiplied in 64 bits."""
    return computed(np.prod, x, axis, _summed_in(x, dtype), keepdims=keepdims)


def var(x: Tensor, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The variance."""
    return computed(np.var, x, axis, ddof=correction, keepdims=keepdims)


def std(x: Tensor, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The standard deviation."""
    return computed(np.std, x, axis, ddof=correction, keepdims=keepdims)


def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: DType | None = None, include_initial: bool = False
) -> Tensor:
    """Sums of the elements up to each one."""
    return computed(np.cumulative_sum, x, axis=axis, dtype=_summed_in(x, dtype), include_initial=include_initial)


def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: DType | None = None, include_initial: bool = False
) -> Tensor:
    """Products of the elements up to each one."""
    return computed(np.cumulative_prod, x, axis=axis, dtype=_summed_in(x, dtype), include_initial=include_initial)


def diff(
    x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """Differences of neighbours, ``n`` times."""
    given = [t for t in (prepend, x, append) if t is not None]
    parts = together(*given)
    joined = aj.cat(parts, axis) if len(parts) > 1 else x
    return aj.diff(joined, n, axis)
