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
