"""Places that a function assigns to at first only (state made when it is first needed) become state of its steps."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit import nn
from autojit.nn import functional as F

X, Y = aj.linspace(-1, 1, 24).reshape(8, 3), aj.arange(8) % 2


class Bounded(aj.optim.Optimizer):
    """A user's optimizer: moments made at the first step, changed in place from then on."""

    def __init__(self, params: Any, lr: float = 0.01) -> None:
        super().__init__(params, {"lr": lr})

    @aj.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if len(state) == 0:
                    state["moment"] = aj.zeros_like(p)
                p.add_(aj.tanh(state["moment"] * 0.9 + p.grad * 0.1), alpha=-group["lr"])
                state["moment"].mul_(0.9).add_(p.grad, alpha=0.1)


class Counting(aj.optim.Optimizer):
    """As programs for older versions wrote Adam: a Python number beside the moments."""

    def __init__(self, params: Any, lr: float = 0.01) -> None:
        super().__init__(params, {"lr": lr})

    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                state, grad = self.state[p], p.grad.data
                if len(state) == 0:
                    state["step"], state["mean"], state["square"] = 0, aj.zeros_like(p.data), aj.zeros_like(p.data)
                state["step"] += 1
                state["mean"].mul_(0.9).add_(grad, alpha=0.1)
                state["square"].mul_(0.999).addcmul_(grad, grad, value=0.001)
                size = group["lr"] * math.sqrt(1 - 0.999 ** state["step"]) / (1 - 0.9 ** state["step"])
                p.data.addcdiv_(state["mean"], state["square"].sqrt().add_(1e-8), value=-size)


def _train(kind: type[aj.optim.Optimizer], wrap: Callable[[Any], Any]) -> tuple[list[float], Any]:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    with aj.no_grad():
        for p in model.parameters():
            p.copy_(aj.linspace(-0.5, 0.7, p.numel()).reshape(p.shape))
    optimizer = kind(model.parameters())

    def step(x: aj.Tensor, y: aj.Tensor) -> aj.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = wrap(step)
    losses = [run(X, Y).item() for _ in range(6)]
    saved = copy.deepcopy((optimizer.state_dict(), model.state_dict()))
    losses += [run(X, Y).item() for _ in range(3)]
    optimizer.load_state_dict(saved[0])
    model.load_state_dict(saved[1])
    losses += [run(X, Y).item() for _ in range(3)]
    optimizer.state.clear()
    losses += [run(X, Y).item() for _ in range(6)]
    return losses, run


@pytest.mark.parametrize("kind", [Bounded, Counting])
def test_a_users_optimizer_runs_natively_and_may_be_given_other_state(kind: type[aj.optim.Optimizer]) -> None:
    expected, _ = _train(kind, lambda step: step)
    found, compiled = _train(kind, aj.jit)
    assert found == pytest.approx(expected, rel=1e-5)
    assert found[9:12] == pytest.approx(found[6:9], rel=1e-6)
    assert compiled.stats()["native_calls"] >= 6, compiled.explain()
    assert compiled.stats()["fallbacks"] == 0


class Cached(nn.Module):
    """Makes a mask anew when the length changes, and a running mean of every call."""

    def __init__(self) -> None:
        super().__init__()
        self.mask: Any = None
        self.mean: Any = None

    def forward(self, x: aj.Tensor) -> aj.Tensor:
        if self.mask is None or self.mask.size(0) != len(x):
            self.mask = aj.tril(aj.ones(len(x), len(x)))
        found = (self.mask @ x).mean(0)
        self.mean = found if self.mean is None else 0.5 * (self.mean + found)
        return found


def test_what_is_assigned_now_and_then_is_right_in_every_call() -> None:
    modules = [Cached(), Cached()]
    compiled = aj.jit(modules[0])
    for k, n in enumerate([4, 4, 4, 5, 5, 4, 6, 6, 4, 4, 5, 4, 6]):
        x = aj.linspace(0, 1, 3 * n).reshape(n, 3) + k
        assert compiled(x).tolist() == pytest.approx(modules[1](x).tolist(), rel=1e-5)
        assert modules[0].mean.tolist() == pytest.approx(modules[1].mean.tolist(), rel=1e-5)
        assert modules[0].mask.shape == modules[1].mask.shape
    modules[0].mask, modules[1].mask = (2 * aj.ones(6, 6) for _ in range(2))
    x = aj.ones(6, 3)
    assert compiled(x).tolist() == pytest.approx(modules[1](x).tolist(), rel=1e-5)
