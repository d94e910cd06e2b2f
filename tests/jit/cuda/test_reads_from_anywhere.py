"""Kernels of a device read slices that begin anywhere inside of the buffer, and nothing outside of it.

The emulated device refuses every access beyond a buffer, also of elements that no result needs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.nn import functional as F

READS: dict[str, Callable[[Any, int], Any]] = {
    "slice": lambda x, n: x[:, n:] * 2,
    "rows and columns": lambda x, n: x[1:, n:-1] + 1,
    "two slices": lambda x, n: x[:, n:] - x[:, : x.shape[1] - n],
    "padded behind": lambda x, n: F.pad(x[:, n:], (0, 3)),
    "padded before": lambda x, n: F.pad(x[:, n:], (1, 0)),
    "beside another": lambda x, n: aj.cat([x[:, :1], x[:, n:], x[:, n:]], 1),
    "gradient of padding": lambda x, n: aj.func.vjp(lambda v: F.pad(v, (n, 0)), x[:, n:].clone())[1](x)[0],
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_what_is_read_from_anywhere_is_in_the_buffer(read: str, dtype: str) -> None:
    for rows, columns, n in ((2, 5, 3), (2, 12, 3), (3, 10, 6), (4, 14, 6), (5, 9, 7), (2, 24, 11), (8, 13, 5)):
        x = aj.arange(float(rows * columns)).reshape(rows, columns).to(getattr(aj, dtype))
        wanted = READS[read](x, n)
        found = aj.jit(lambda x, n=n: READS[read](x, n))(x.to("cuda"))
        np.testing.assert_array_equal(found.cpu().numpy(), wanted.numpy(), f"{rows} x {columns} from {n}")
