"""Optimisers made inside a compiled function: new at every call, unless somebody keeps them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj

OPTIMIZERS: dict[str, Callable[[Any], aj.optim.Optimizer]] = {
    "momentum": lambda p: aj.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5),
    "Adam": lambda p: aj.optim.Adam(p, lr=0.01),
    "NAdam": lambda p: aj.optim.NAdam(p, lr=0.01),
    "RMSprop": lambda p: aj.optim.RMSprop(p, lr=0.01),
    "ASGD": lambda p: aj.optim.ASGD(p, lr=0.01),
    "Rprop": lambda p: aj.optim.Rprop(p, lr=0.01),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_call_begins_with_fresh_state(name: str) -> None:
    def fitted(w: aj.Tensor, x: aj.Tensor) -> aj.Tensor:
        w = w.clone().requires_grad_()
        optimizer = OPTIMIZERS[name]([w])
        for _ in range(3):
            optimizer.zero_grad()
            (x * w).square().sum().backward()
            optimizer.step()
        return w.detach() * 1

    step = aj.jit(fitted)
    for seed in range(4):
        aj.manual_seed(seed)
        w, x = aj.randn(2, 3), aj.randn(2, 3)
        np.testing.assert_allclose(step(w, x).numpy(), fitted(w, x).numpy(), rtol=1e-5, atol=1e-6)
    assert step.stats()["captures"] == 1


@pytest.mark.parametrize("asked", [float, aj.Tensor.item, lambda x: x], ids=["float", "item", "itself"])
def test_in_hooks_that_keep_them_in_a_cycle_and_around_decisions(asked: Callable[[aj.Tensor], Any]) -> None:
    def fitted(x: aj.Tensor) -> aj.Tensor:
        aj.manual_seed(0)
        model = aj.nn.Linear(3, 2)
        optimizers = {p: aj.optim.Adam([p], lr=0.01) for p in model.parameters()}

        def update(p: aj.Tensor) -> None:
            optimizers[p].step()
            optimizers[p].zero_grad()

        for p in model.parameters():
            p.register_post_accumulate_grad_hook(update)
        for _ in range(3):
            model(x).square().sum().backward()
            if asked(model.bias[0]) > 100:
                model(x).sum().backward()
        return model.weight.detach() * 1

    step = aj.jit(fitted)
    for seed in range(4):
        aj.manual_seed(seed)
        x = aj.randn(4, 3)
        np.testing.assert_allclose(step(x).numpy(), fitted(x).numpy(), rtol=1e-4, atol=1e-6)


def test_one_that_outlives_the_call_keeps_its_state() -> None:
    def trained(is_compiled: bool) -> list[Any]:
        kept: list[aj.optim.Optimizer] = []
        w = aj.ones(3, requires_grad=True)

        def step(x: aj.Tensor) -> None:
            if not kept:
                kept.append(aj.optim.SGD([w], lr=0.1, momentum=0.9))
            w.grad = None
            (x * w).sum().backward()
            kept[0].step()

        run = aj.jit(step) if is_compiled else step
        for place in range(4):
            run(aj.full((3,), float(place)))
        return [w.detach().tolist(), kept[0].state[w]["momentum_buffer"].tolist()]

    np.testing.assert_allclose(trained(True), trained(False), rtol=1e-6)
