"""Helpers of the row tests: leaves in float64, and bodies run often enough for the compiled step to be used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import autojit as aj
from tests.autograd.modes import Mode


def leaf(*values: float) -> aj.Tensor:
    """A float64 leaf that requires gradients."""
    return aj.tensor(values, dtype=aj.float64, requires_grad=True)


def vector(*values: float) -> aj.Tensor:
    """A float64 tensor that requires none."""
    return aj.tensor(values, dtype=aj.float64)


def run(mode: Mode, body: Callable[..., Any], *arguments: Any) -> Any:
    """The result of the body's third call; compiled, the second and third run natively and none falls back."""
    function = mode(body)
    results = [function(*arguments) for _ in range(3)]
    if mode.is_jit:
        stats = function.stats()
        assert stats["fallbacks"] == 0
        assert stats["native_calls"] >= 1, stats
    return results[-1]


def same(found: Any, expected: Any, rtol: float = 1e-12) -> None:
    """The tensor has these values."""
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=rtol)
