"""Results that are the same value with other histories: each is differentiated as it is in eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj


class _Reversed(aj.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return -3 * grad


def _no_grad_alias(y: Any) -> Any:
    with aj.no_grad():
        return y.view_as(y)


SHARED: dict[str, Callable[[Any], Any]] = {
    "detached first": lambda y: (y.detach(), y),
    "detached last": lambda y: (y, y.detach()),
    "data first": lambda y: (y.data, y),
    "detached twice": lambda y: (y.detach(), y, y.detach()),
    "in a dictionary": lambda y: {"seen": y.detach(), "loss": [y, y.sum()]},
    "a view of the detached": lambda y: (y.detach().view(3, 1), y),
    "a view": lambda y: (y.detach(), y.view(3, 1)),
    "under no_grad": lambda y: (_no_grad_alias(y), y),
    "another history": lambda y: (y, _Reversed.apply(y)),
    "another history first": lambda y: (_Reversed.apply(y), y),
    "another history and none": lambda y: (y.detach(), _Reversed.apply(y), y),
    "the argument's": lambda y: (y.detach(), y + 0, y),
}


def _leaves(found: Any) -> list[Any]:
    if isinstance(found, dict):
        found = list(found.values())
    return [leaf for part in found for leaf in _leaves(part)] if isinstance(found, list | tuple) else [found]


@pytest.mark.parametrize("name", SHARED)
@pytest.mark.parametrize("is_leaf", [True, False])
def test_results_of_one_value_keep_their_own_histories(name: str, is_leaf: bool) -> None:
    def function(x: Any) -> Any:
        return SHARED[name](x * 2)

    step = aj.jit(function)
    for _ in range(3):
        found = []
        for call in (function, step):
            x = aj.tensor([1.0, 2.0, 3.0], requires_grad=True)
            leaves = _leaves(call(x if is_leaf else x * 1))
            told = [(leaf.requires_grad, tuple(leaf.shape), leaf.detach().numpy()) for leaf in leaves]
            weights = range(1, len(leaves) + 1)
            total = sum((leaf * k).sum() for leaf, k in zip(leaves, weights, strict=True) if leaf.requires_grad)
            total.backward()
            found.append((told, x.grad.numpy()))
        (eager, slope), (compiled, compiled_slope) = found
        np.testing.assert_allclose(compiled_slope, slope)
        for a, b in zip(eager, compiled, strict=True):
            assert a[:2] == b[:2]
            np.testing.assert_allclose(a[2], b[2])
