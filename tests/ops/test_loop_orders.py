"""Elementwise results lie in memory as one NumPy loop lays them out: what a capture says of strides stands on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import autojit  # noqa: F401  (defines the ops)
from autojit.core import dtypes
from autojit.ir.op import Op
from autojit.ops.loop_orders import in_order_of
from autojit.tensor.memory_orders import order_of

LAYOUTS = ("row-major", "permuted", "gaps", "permuted gaps", "expanded")
DTYPES = (dtypes.float32, dtypes.float64, dtypes.int64, dtypes.bool_, dtypes.complex64, dtypes.float16, dtypes.bfloat16)


def laid_out(array: Any, layout: str) -> Any:
    if array.ndim < 2 or layout == "row-major":
        return array
    if layout == "permuted":
        return np.asfortranarray(array)
    if layout == "permuted gaps":
        return laid_out(np.ascontiguousarray(array.T), "gaps").T
    if layout == "expanded":
        return np.broadcast_to(array[:1], array.shape)
    wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    wide[..., ::2] = array
    return wide[..., ::2]


def cases(kind: Any) -> Iterator[tuple[Op, list[Any]]]:
    for dtype in DTYPES:
        for op, arrays in kind.samples(dtype):
            for layout in LAYOUTS:
                yield op, [laid_out(a, layout) for a in arrays]
                yield op, [laid_out(arrays[0], layout), *arrays[1:]]


OPS = sorted(n for n, k in Op.registry.load().items() if k.keeps_order and not k.is_view and hasattr(k, "samples"))


@pytest.mark.parametrize("name", OPS)
def test_results_lie_as_one_loop_lays_them_out(name: str) -> None:
    for op, arrays in cases(Op.registry[name]):
        with np.errstate(all="ignore"):
            found = op.eager(*arrays)
        for result in found if isinstance(found, tuple) else (found,):
            operands = arrays[:1] if name == "view_update" else arrays
            assert order_of(np.asarray(result)) == order_of(in_order_of(operands, np.asarray(result).dtype)), op
