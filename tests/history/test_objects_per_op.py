"""What recorded ops leave for Python's cyclic collector: it walks over all of a long history, again and again."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

import autojit as aj

MOST: dict[str, tuple[Callable[[aj.Tensor, aj.Tensor], aj.Tensor], int]] = {
    "a sum": (lambda h, x: h + x, 5),  # the tensor, its node, edges and two of them
    "a product": (lambda h, x: h * x, 7),  # and what is kept
    "a function of its result": (lambda h, x: h.tanh(), 8),  # and the result, and its storage
    "a choice": (lambda h, x: aj.where(x > 0, h, x), 8),
    "a view": (lambda h, x: h.t(), 4),
}


@pytest.mark.parametrize("name", MOST)
def test_an_op_leaves_few_objects(name: str) -> None:
    function, most = MOST[name]
    x = aj.rand(4, 4).requires_grad_()
    h = x * 1
    for _ in range(4):
        h = function(h, x)
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        for _ in range(100):
            h = function(h, x)
        left = (len(gc.get_objects()) - before) / 100
    finally:
        gc.enable()
    assert left <= most + 0.2
