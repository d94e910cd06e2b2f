"""Gradients where an operand is NaN are those of PyTorch 2.14: NaN where a slope is computed, else as chosen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
import autojit.nn.functional as F

NAN = float("nan")
X, Y = [NAN, NAN, 1.0, NAN], [1.0, -2.0, NAN, NAN]
ZEROS, ONES, LOST = [0.0] * 4, [1.0] * 4, [NAN] * 4

# by function: the gradients of the sum of f(X, Y), as PyTorch gives them
CASES: dict[str, tuple[Callable[[Any, Any], Any], list[float], list[float] | None]] = {
    "smooth_l1_loss": (lambda x, y: F.smooth_l1_loss(x, y, reduction="sum"), LOST, LOST),
    "huber_loss": (lambda x, y: F.huber_loss(x, y, reduction="sum"), LOST, LOST),
    "l1_loss": (lambda x, y: F.l1_loss(x, y, reduction="sum"), ZEROS, ZEROS),
    "copysign": (aj.copysign, [NAN, NAN, 1.0, NAN], ZEROS),
    "copysign of a number": (lambda x, _: aj.copysign(x, -1.0), [NAN, NAN, -1.0, NAN], None),
    "abs": (lambda x, _: x.abs(), [0.0, 0.0, 1.0, 0.0], None),
    "maximum": (aj.maximum, ONES, ONES),
    "fmax": (aj.fmax, ONES, ONES),
    "fmod": (aj.fmod, ONES, LOST),
    "atan2": (aj.atan2, LOST, LOST),
    "logaddexp": (aj.logaddexp, LOST, LOST),
    "relu": (lambda x, _: x.relu(), ONES, None),
    "threshold": (lambda x, _: F.threshold(x, 0.0, 1.0), ONES, None),
    "nan_to_num": (lambda x, _: x.nan_to_num(), [0.0, 0.0, 1.0, 0.0], None),
    "clamp": (lambda x, _: x.clamp(-2.0, 2.0), [0.0, 0.0, 1.0, 0.0], None),
    "clamp from below": (lambda x, y: x.clamp(min=0.5) + y.clamp(min=-3.0), [0.0, 0.0, 1.0, 0.0], [1.0, 1.0, 0.0, 0.0]),
    "clamp from above": (lambda x, y: x.clamp(max=2.0) + y.clamp_max(3.0), [0.0, 0.0, 1.0, 0.0], [1.0, 1.0, 0.0, 0.0]),
    "clamp by NaN": (lambda x, y: x.clamp(min=NAN) + y.clamp(-3.0, NAN), ZEROS, ZEROS),
    "hardsigmoid": (lambda x, _: 6 * F.hardsigmoid(x), [0.0, 0.0, 1.0, 0.0], None),
    "hinge_embedding_loss": (
        lambda x, _: F.hinge_embedding_loss(x, -aj.ones_like(x), margin=3.0, reduction="sum"),
        [0.0, 0.0, -1.0, 0.0],
        None,
    ),
    "margin_ranking_loss": (lambda x, y: F.margin_ranking_loss(x, y, aj.ones_like(x), reduction="sum"), ZEROS, ZEROS),
    "multi_margin_loss": (
        lambda x, y: (
            F.multi_margin_loss(y.reshape(-1, 4), aj.full((len(y) // 4,), 1), reduction="sum") + 0 * x.nansum()
        ),
        [0.0, 0.0, 0.0, 0.0],
        [0.25, -0.25, 0.0, 0.0],
    ),
    "amax": (lambda x, y: x.reshape(-1, 4).amax(1) + y.reshape(-1, 4).amin(1), LOST, LOST),
    "aminmax": (lambda x, _: sum(x.reshape(-1, 4).aminmax(dim=1)), LOST, None),
    "scatter_reduce": (
        lambda x, y: (
            aj.zeros(len(x) // 4, 1).scatter_reduce(
                1, aj.zeros(len(x) // 4, 4, dtype=aj.int64), x.reshape(-1, 4), "amax"
            )
            + 0 * y.nansum()
        ),
        LOST,
        ZEROS,
    ),
    "index_reduce": (
        lambda x, _: aj.zeros(1, len(x)).index_reduce(0, aj.zeros(1, dtype=aj.int64), x[None], "mean"),
        [0.5] * 4,
        None,
    ),
    "norm of the largest": (lambda x, _: aj.linalg.vector_norm(x.reshape(-1, 4), float("inf"), dim=1), ZEROS, None),
    "norm of reciprocals": (
        lambda x, y: aj.linalg.vector_norm(aj.stack([x.nan_to_num(), y.nan_to_num()]), -1, dim=0),
        ZEROS,
        ZEROS,
    ),
    "where": (lambda x, y: aj.where(x > 0, x, y), [0.0, 0.0, 1.0, 0.0], [1.0, 1.0, 0.0, 1.0]),
}


@pytest.mark.parametrize("jit", [lambda f: f, aj.jit], ids=["eager", "compiled"])
@pytest.mark.parametrize("repeats", [1, 5000])
@pytest.mark.parametrize("name", CASES)
def test_gradients_at_nan_are_those_of_torch(name: str, repeats: int, jit: Any) -> None:
    function, by_x, by_y = CASES[name]
    x, y = (aj.tensor(values * repeats, requires_grad=True) for values in (X, Y))
    jit(function)(x, y).sum().backward()
    for t, expected in ((x, by_x), (y, by_y)):
        if expected is None:
            assert t.grad is None
        else:
            assert t.grad is not None
            np.testing.assert_array_equal(t.grad.numpy(), expected * repeats)
