"""The array API standard (2024.12) over tensors: ``x.__array_namespace__()``.

Functions have the standard's names, signatures and promotion, and differentiate and compile as all functions of
tensors do. Source: https://data-apis.org/array-api/2024.12/
"""

from __future__ import annotations

from math import e, inf, nan, pi
from typing import Any

from autojit.array_api import creation as _creation
from autojit.array_api import elementwise as _elementwise
from autojit.array_api import fft, linalg
from autojit.array_api import manipulation as _manipulation
from autojit.array_api import promotion as _promotion
from autojit.array_api import statistics as _statistics
from autojit.array_api.creation import *
from autojit.array_api.elementwise import *
from autojit.array_api.elementwise import ELEMENTWISE as _ELEMENTWISE
from autojit.array_api.inspection import __array_namespace_info__
from autojit.array_api.linalg import matmul, matrix_transpose, tensordot, vecdot
from autojit.array_api.manipulation import *
from autojit.array_api.promotion import *
from autojit.array_api.promotion import DTYPES as _DTYPES
from autojit.array_api.statistics import *

__array_api_version__ = "2024.12"
newaxis = None
globals().update(_ELEMENTWISE)
globals().update(_DTYPES)

__all__ = [
    *_creation.__all__, *_elementwise.__all__, *_manipulation.__all__, *_promotion.__all__, *_statistics.__all__,
    *_ELEMENTWISE, *_DTYPES, "e", "fft", "inf", "linalg", "matmul", "matrix_transpose", "nan", "newaxis", "pi",
    "tensordot", "vecdot", "__array_namespace_info__",
]  # fmt: skip


def __dir__() -> list[Any]:
    return [*__all__, "__array_api_version__"]
