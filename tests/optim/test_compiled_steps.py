"""Whole training steps under ``@aj.jit``: equal to eager ones, one capture whatever a schedule does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import nn, optim

RNG = np.random.default_rng(0)
X = RNG.normal(size=(16, 6)).astype(np.float32)
Y = RNG.integers(0, 3, 16)


def _losses(name: str, options: dict[str, Any], compiled: bool) -> tuple[list[float], Any]:
    aj.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = getattr(optim, name)(model.parameters(), **options)
    schedule = optim.lr_scheduler.ExponentialLR(optimizer, 0.8)

    def step(x: aj.Tensor, y: aj.Tensor) -> aj.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = aj.jit(step) if compiled else step
    losses = []
    for _ in range(5):
        losses.append(float(run(aj.tensor(X), aj.tensor(Y))))
        schedule.step()
    return losses, run


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("SGD", {"lr": 0.3, "momentum": 0.9, "dampening": 0.2}), ("AdamW", {"lr": 0.03}), ("RAdam", {"lr": 0.03}),
        ("NAdam", {"lr": 0.03}), ("Adagrad", {"lr": 0.1}), ("Rprop", {}),
    ],
)  # fmt: skip
def test_compiled_steps_equal_eager_ones_and_schedules_do_not_recompile(name: str, options: dict[str, Any]) -> None:
    expected, _ = _losses(name, options, compiled=False)
    found, step = _losses(name, options, compiled=True)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert step.stats()["captures"] == 1
