"""Elementwise results are laid out as one loop lays them out: what a capture says of strides stands on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import autojit  # noqa: F401  (defines the ops)
from autojit.core import dtypes
from autojit.dispatch.dispatch import apply
from autojit.ir.op import Op
from autojit.ops.loop_orders import in_order_of
from autojit.tensor.memory_orders import order_of
from autojit.tensor.tensor import wrap

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
def test_results_are_laid_out_as_by_one_loop(name: str) -> None:
    for op, arrays in cases(Op.registry[name]):
        found = apply(op, *map(wrap, arrays))
        for result in found if isinstance(found, tuple) else (found,):
            operands, array = arrays[:1] if name == "view_update" else arrays, result._array
            assert order_of(array) == order_of(in_order_of(operands, array.dtype)), op
