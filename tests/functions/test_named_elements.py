"""Functions that give elements and where they are: each derivative goes to the place that the index names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj

FUNCTIONS: dict[str, Callable[[aj.Tensor], Any]] = {
    "mode": lambda x: aj.mode(x, 1, keepdim=True),
    "median": lambda x: aj.median(x, 1, keepdim=True),
    "nanmedian": lambda x: aj.nanmedian(x, 1, keepdim=True),
    "kthvalue": lambda x: aj.kthvalue(x, 2, 1, keepdim=True),
    "max": lambda x: x.max(1, keepdim=True),
    "min": lambda x: x.min(1, keepdim=True),
    "topk": lambda x: x.topk(2, 1),
    "sort": lambda x: x.sort(1),
    "stable sort": lambda x: x.sort(dim=1, descending=True, stable=True),
    "cummax": lambda x: x.cummax(1),
    "cummin": lambda x: x.cummin(1),
}


@pytest.mark.parametrize("jit", [lambda f: f, aj.jit], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_derivative_goes_where_the_index_says(name: str, jit: Any) -> None:
    x = aj.tensor([[1.0, 1.0, 2.0, 2.0], [3.0, 3.0, 3.0, 3.0], [0.0, -0.0, 1.0, 0.0]], requires_grad=True)
    values, places = jit(lambda x: tuple(FUNCTIONS[name](x)))(x)
    weights = aj.arange(1.0, values.numel() + 1).reshape(values.shape)
    (grad,) = aj.autograd.grad((values * weights).sum(), x)
    assert aj.equal(values, x.gather(1, places))
    np.testing.assert_array_equal(grad.numpy(), aj.zeros(3, 4).scatter_add(1, places, weights).numpy())
