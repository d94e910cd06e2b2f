"""``jit(memory_budget=...)``: temporaries take what they may, results are what they were, and ``memory()`` tells."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import nn
from autojit.core.errors import TraceError

F = nn.functional


class Residual(nn.Module):
    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Any) -> Any:
        return x + self.body(x)


def dense() -> nn.Module:
    body = lambda: nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 64), nn.GELU(), nn.Dropout(0.2), nn.Linear(64, 16))
    return nn.Sequential(nn.Linear(12, 16), *[Residual(body()) for _ in range(6)])


def convolutions() -> nn.Module:
    body = lambda: nn.Sequential(nn.Conv1d(4, 4, 3, padding=1), nn.BatchNorm1d(4), nn.ReLU())
    return nn.Sequential(nn.Unflatten(1, (1, 12)), nn.Conv1d(1, 4, 1), *[Residual(body()) for _ in range(5)])


class Skipping(nn.Module):
    """What is computed first is read last, too."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([nn.Linear(12, 12) for _ in range(4)])
        self.up = nn.ModuleList([nn.Linear(24, 12) for _ in range(4)])

    def forward(self, x: Any) -> Any:
        kept = []
        for layer in self.down:
            kept.append(x)
            x = layer(x).tanh()
        for layer in self.up:
            x = layer(aj.cat([x, kept.pop()], 1)).tanh()
        return x.std(0) * x  # rows take part in each other


MODELS: dict[str, Callable[[], nn.Module]] = {"dense": dense, "convolutions": convolutions, "skipping": Skipping}
REACHED = {"dense": (0.8, 0.5), "convolutions": (0.9, 0.8), "skipping": (0.8, 0.7)}
"""Parts of what a step takes anyway that it can do with: behind a normalisation little is kept (`schedule.again`)."""


def trained(make: Callable[[], nn.Module], budget: int | None, calls: int = 3) -> tuple[Any, list[Any]]:
    aj.manual_seed(5)
    model = make()
    optimizer = aj.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    @aj.jit(memory_budget=budget)
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    x = aj.tensor(np.random.default_rng(2).standard_normal((96, 12)).astype(np.float32))
    losses = [step(x) for _ in range(calls)]
    return step, [np.array(v.detach()) for v in (*losses, *model.parameters(), *model.buffers())]


@pytest.mark.parametrize("name", MODELS)
def test_steps_take_what_they_may_and_compute_what_they_did(name: str) -> None:
    step, wanted = trained(MODELS[name], None)
    whole = step.memory()["arena_bytes"]
    for part in REACHED[name]:
        step, found = trained(MODELS[name], int(whole * part))
        assert step.memory()["arena_bytes"] <= whole * part
        assert (step.stats()["captures"], step.stats()["native_calls"]) == (1, 2)
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_a_step_that_takes_more_than_it_may_says_so_and_runs() -> None:
    with pytest.warns(UserWarning, match=r"memory_budget=1: temporaries of step take \d+ bytes at least"):
        step, found = trained(Skipping, 1)
    assert "memory_budget=1" in step.explain()
    for a, b in zip(found, trained(Skipping, None)[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_memory_is_told_before_the_first_call() -> None:
    model = nn.Linear(3, 4)
    optimizer = aj.optim.Adam(model.parameters())
    seen = []

    @aj.jit
    def step(x: Any) -> Any:
        loss = (model(x) * aj.rand(4)).square().sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    x = aj.ones(5, 3)
    before = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    state = aj.get_rng_state()
    told = step.memory(x)
    after = model.state_dict(), optimizer.state_dict()
    assert str(before) == str(after)
    assert model.weight.grad is None and aj.equal(state, aj.get_rng_state())
    seen += [step(x) for _ in range(3)]
    assert step.memory() == step.memory(x) == told
    assert step.stats()["captures"] == 1
    assert step.memory(aj.ones(7, 3))["result_bytes"] == 4


def test_memory_of_a_step_for_all_sizes_is_that_of_the_arguments_asked_for() -> None:
    step = aj.jit(lambda x: ((x @ x.mT).exp() @ x).sum(0))
    for rows in (3, 40, 5, 50):
        told = step.memory(aj.ones(rows, 4))
        step(aj.ones(rows, 4))
        assert told == step.memory()
    assert step.stats()["captures"] == 2


def test_what_runs_line_by_line_has_no_memory_to_tell() -> None:
    w, seen = aj.ones(3, requires_grad=True), []

    @aj.jit
    def step(x: Any) -> Any:
        y = x * w
        y.register_hook(lambda g: seen.append(len(seen)))  # in a backward pass outside, which is not compiled then
        return y

    with pytest.raises(TraceError, match="no step serves such a call"):
        step.memory(aj.ones(3))
    assert step(aj.ones(3)).sum() == 3


@pytest.mark.parametrize("budget", [0, -1, 1.5, "1", True])
def test_budgets_that_are_none_are_refused(budget: Any) -> None:
    with pytest.raises(ValueError, match="memory_budget must be None or a number of bytes"):
        aj.jit(lambda x: x, memory_budget=budget)
