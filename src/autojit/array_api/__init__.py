"""The array API standard (2024.12) over tensors: ``x.__array_namespace__()``.

Functions have the standard's names, signatures and promotion, and differentiate and compile as all functions of
tensors do. Source: https://data-apis.org/array-api/2024.12/
"""

from __future__ import annotations

from math import e, inf, nan, pi
from typing import Any

from autojit.array_api import fft, linalg
from autojit.array_api.creation import (
    arange,
    asarray,
    empty,
    empty_like,
    eye,
    from_dlpack,
    full,
    full_like,
    linspace,
    meshgrid,
    ones,
    ones_like,
    tril,
    triu,
    zeros,
    zeros_like,
)
from autojit.array_api.elementwise import ELEMENTWISE as _ELEMENTWISE
from autojit.array_api.elementwise import clip, imag, real, round
from autojit.array_api.inspection import __array_namespace_info__
from autojit.array_api.linalg import matmul, matrix_transpose, tensordot, vecdot
from autojit.array_api.manipulation import (
    argmax,
    argmin,
    argsort,
    broadcast_arrays,
    broadcast_shapes,
    broadcast_to,
    concat,
    count_nonzero,
    expand_dims,
    flip,
    isin,
    moveaxis,
    nonzero,
    permute_dims,
    repeat,
    reshape,
    roll,
    searchsorted,
    sort,
    squeeze,
    stack,
    take,
    take_along_axis,
    tile,
    unique_all,
    unique_counts,
    unique_inverse,
    unique_values,
    unstack,
    where,
)
from autojit.array_api.promotion import DTYPES as _DTYPES
from autojit.array_api.promotion import astype, can_cast, finfo, iinfo, isdtype, result_type
from autojit.array_api.statistics import (
    all,
    any,
    cumulative_prod,
    cumulative_sum,
    diff,
    max,
    mean,
    min,
    prod,
    std,
    sum,
    var,
)

__array_api_version__ = "2024.12"
newaxis = None
globals().update(_ELEMENTWISE)
globals().update(_DTYPES)

__all__ = [
    "all", "any", "arange", "argmax", "argmin", "argsort", "asarray", "astype", "broadcast_arrays", "broadcast_shapes",
    "broadcast_to", "can_cast", "clip", "concat", "count_nonzero", "cumulative_prod", "cumulative_sum", "diff", "e",
    "empty", "empty_like", "expand_dims", "eye", "fft", "finfo", "flip", "from_dlpack", "full", "full_like", "iinfo",
    "imag", "inf", "isdtype", "isin", "linalg", "linspace", "matmul", "matrix_transpose", "max", "mean", "meshgrid",
    "min", "moveaxis", "nan", "newaxis", "nonzero", "ones", "ones_like", "permute_dims", "pi", "prod", "real", "repeat",
    "reshape", "result_type", "roll", "round", "searchsorted", "sort", "squeeze", "stack", "std", "sum", "take",
    "take_along_axis", "tensordot", "tile", "tril", "triu", "unique_all", "unique_counts", "unique_inverse",
    "unique_values", "unstack", "var", "vecdot", "where", "zeros", "zeros_like", "__array_namespace_info__",
    *_ELEMENTWISE, *_DTYPES,
]  # fmt: skip


def __dir__() -> list[Any]:
    return [*__all__, "__array_api_version__"]
