"""Arguments and places that have a history which a step does not go back through: its calls are native."""

from __future__ import annotations

from typing import Any

import pytest

import autojit as aj
from autojit import nn
from autojit.nn import functional as F


class Penalised(nn.Module):
    """A layer that leaves a part of the loss, and what it has computed, in attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 2)
        self.penalty: Any = 0.0
        self.seen: Any = None

    def forward(self, x: aj.Tensor) -> aj.Tensor:
        hidden = self.a(x).relu()
        self.penalty, self.seen = (hidden**2).mean(), hidden
        return self.b(hidden)


def test_a_step_that_assigns_tensors_with_a_history_is_one_native_call() -> None:
    aj.manual_seed(0)
    model = Penalised()
    optimizer = aj.optim.SGD(model.parameters(), 0.1)

    @aj.jit
    def step(x: aj.Tensor, y: aj.Tensor) -> aj.Tensor:
        loss = F.cross_entropy(model(x), y) + 0.1 * model.penalty
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    x, y = aj.rand(5, 4), aj.arange(5) % 2
    for _ in range(4):
        before = model.a(x).relu().detach()
        step(x, y)
        assert aj.allclose(model.seen, before)
        assert model.seen.requires_grad
        assert not model.seen.is_leaf
    assert step.stats()["native_calls"] >= 2
    with pytest.raises(RuntimeError, match="second time"):
        model.penalty.backward()


def test_leaves_and_others_are_told_apart_at_every_call() -> None:
    w = aj.ones(3, requires_grad=True)

    def told(x: aj.Tensor) -> aj.Tensor:
        return x.detach() * (2 if x.is_leaf else 3) + (5 if x.grad_fn is None else 7)

    compiled = aj.jit(told)
    leaf = aj.ones(3, requires_grad=True)
    for _ in range(3):
        for x in (w * 1, w * 2, leaf, leaf, w * 3, aj.ones(3), w[:]):
            assert compiled(x).tolist() == told(x).tolist()
    assert compiled.stats()["native_calls"] > 0


def test_an_error_comes_out_though_an_optimisers_state_has_been_begun() -> None:
    w = aj.ones(3, requires_grad=True)
    optimizer = aj.optim.SGD([w], 0.1, momentum=0.9)

    @aj.jit
    def step() -> None:
        optimizer.state[w].get("momentum_buffer", 0.0)
        w.reshape(2)

    with pytest.raises(RuntimeError, match="reshape"):
        step()
    assert w not in optimizer.state
