"""associative_scan: running results in batched steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autojit as aj
from tests.control_flow.agreement import agree, derivatives


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 13])
@pytest.mark.parametrize("reverse", [False, True])
def test_running_products(count: int, reverse: bool) -> None:
    x = np.random.default_rng(count).uniform(0.5, 1.5, (2, count))
    found = aj.associative_scan(lambda a, b: a * b, aj.tensor(x), 1, reverse=reverse).numpy()
    expected = np.cumprod(x[:, ::-1], 1)[:, ::-1] if reverse else np.cumprod(x, 1)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_linear_recurrences_to_second_order() -> None:
    a = aj.tensor(np.random.default_rng(0).uniform(0.5, 1.5, 7), requires_grad=True)
    b = aj.tensor(np.random.default_rng(1).uniform(0.5, 1.5, 7), requires_grad=True)

    def run(a: aj.Tensor, b: aj.Tensor) -> Any:
        _, h = aj.associative_scan(lambda p, q: (p[0] * q[0], p[1] * q[0] + q[1]), (a, b), 0)
        return h, derivatives((h**2).sum(), a, b)

    h = run(a, b)[0].detach().numpy()
    expected, last = [], 0.0
    for p, q in zip(a.tolist(), b.tolist(), strict=True):
        last = last * p + q
        expected.append(last)
    np.testing.assert_allclose(h, expected, rtol=1e-12)
    agree(run, a, b)


def test_errors() -> None:
    x = aj.ones(3)
    with pytest.raises(RuntimeError, match="must have the structure of xs"):
        aj.associative_scan(lambda a, b: (a, b), x, 0)
    with pytest.raises(RuntimeError, match="same extent"):
        aj.associative_scan(lambda a, b: a, (x, x[:2]), 0)
    with pytest.raises(RuntimeError, match="pointwise"):
        aj.associative_scan(lambda a, b: a, x, 0, combine_mode="other")
    with pytest.raises(IndexError, match="out of range"):
        aj.associative_scan(lambda a, b: a, x, 2)
