"""Sizes that a step on a GPU counts: the host waits once for each, and a graph is never one for a count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.runtime.gpu.emulator.driver import EmulatedDriver


def drawn(count: int, seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal((count, 3)).astype(np.float32)


def chosen(x: aj.Tensor) -> Any:
    return x[x > 0] * 2


def product(x: aj.Tensor) -> Any:
    kept = x[x[:, 0] > 0]
    return kept @ kept.T


def spread(x: aj.Tensor) -> Any:
    return x[x > 0].std(), x[x < 0].softmax(0).cumsum(0)


def nested(x: aj.Tensor) -> Any:
    positive = x[x > 0]
    return positive[positive > positive.mean()].sum()


def assigned(x: aj.Tensor) -> Any:
    y = x.clone()
    y[y > 0] = y[y > 0] * 3
    return y


PROGRAMS: dict[Callable[[aj.Tensor], Any], int] = {chosen: 1, product: 1, spread: 2, nested: 2, assigned: 1}
"""With how many sizes each counts."""


@pytest.mark.parametrize("function", PROGRAMS)
def test_steps_wait_once_for_each_size_and_agree_with_the_cpu(
    driver: EmulatedDriver, function: Callable[[aj.Tensor], Any]
) -> None:
    step = aj.jit(function)
    for seed, n in enumerate((6, 9, 9, 31)):
        x = drawn(n, seed)
        x = -abs(x) if seed == 2 else x  # nothing is chosen
        if function in (spread, nested) and seed == 2:
            continue  # the mean of nothing
        found, expected = step(aj.tensor(x, device="cuda")), function(aj.tensor(x))
        pairs = zip(*(r if isinstance(r, tuple) else (r,) for r in (found, expected)), strict=True)
        for a, b in pairs:
            np.testing.assert_allclose(a.cpu().numpy(), b.numpy(), rtol=1e-5, atol=1e-6)
    stats = step.stats()
    assert (stats["captures"], stats["splits"], stats["fallbacks"]) == (2, 0, 0), step.explain()
    given = aj.tensor(drawn(31, 8), device="cuda")
    before = driver.counts["copies out"]
    step(given)
    assert driver.counts["copies out"] - before == PROGRAMS[function]


def test_no_graph_is_one_for_a_count(driver: EmulatedDriver) -> None:
    weights = [aj.tensor(drawn(3, k), device="cuda", requires_grad=True) for k in range(2)]

    @aj.jit
    def step(x: aj.Tensor) -> aj.Tensor:
        hidden = (x @ weights[0]).tanh() @ weights[1]
        loss = hidden[x[:, 0] > 0].square().sum()
        loss.backward()
        for weight in weights:
            with aj.no_grad():
                weight.sub_(weight.grad, alpha=0.01)
            weight.grad = None
        return loss.detach()

    for seed in range(8):
        step(aj.tensor(drawn(16, seed), device="cuda"))
    stats = step.stats()
    assert (stats["captures"], stats["fallbacks"], stats["native_calls"]) == (1, 0, 7)
    assert stats["graphs"] <= 2 < len({int((drawn(16, seed)[:, 0] > 0).sum()) for seed in range(8)})
    before = dict(driver.counts)
    step(aj.tensor(drawn(16, 9), device="cuda"))
    done = {what: count - before.get(what, 0) for what, count in driver.counts.items()}
    assert done["copies out"] == 1 and not done.get("instantiations")
