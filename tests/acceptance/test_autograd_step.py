"""One training step that uses every part of autograd at once: compiled, it gives what eager gives, natively."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.autograd import engine
from autojit.ir.op import Op


class Scaled(aj.autograd.Function):
    """``x * factor`` whose derivative uses state in ctx and a saved tensor."""

    @staticmethod
    def forward(ctx: Any, x: Any, factor: float) -> Any:
        ctx.factor = factor
        ctx.limit = x.detach().abs().amax()
        ctx.save_for_backward(x)
        return x * factor

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grad * ctx.factor * (1 + x * x / (1 + ctx.limit)), None


class Model:
    """Two parameters and the step that trains them."""

    def __init__(self) -> None:
        generator = np.random.default_rng(3)
        self.weight = aj.tensor(generator.normal(size=(5, 4)), requires_grad=True)
        self.bias = aj.tensor(generator.normal(size=4), requires_grad=True)
        self.weight.register_hook(lambda g: g * 0.9)

    def step(self, x: aj.Tensor, y: aj.Tensor) -> Any:
        """Two backward passes, a gradient penalty, hooks, a custom function, retained gradients, in-place updates."""
        weight, bias = self.weight, self.bias
        weight.grad, bias.grad = None, None
        hidden = Scaled.apply(x @ weight, 0.5)
        hidden.register_hook(lambda g: g.clamp(-0.2, 0.2))
        hidden.retain_grad()
        shifted = hidden * 1.0
        shifted.add_(bias)
        shifted[:, 0].mul_(2)
        loss = ((shifted.tanh() - y) ** 2).mean()
        loss.backward(retain_graph=True)
        loss.backward()
        (slope,) = aj.autograd.grad((x @ weight).sin().sum(), weight, create_graph=True)
        penalty = (slope * slope).mean()
        penalty.backward()
        with aj.no_grad():
            for p in (weight, bias):
                p.sub_(p.grad, alpha=0.1)
        return loss.detach(), penalty.detach(), hidden.grad * 1

    def state(self) -> list[Any]:
        """Parameters and gradients."""
        return [self.weight, self.bias, self.weight.grad, self.bias.grad]


def check_agreement(found: Any, expected: Any) -> None:
    """All tensors are equal up to the last digits."""
    for mine, reference in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine.detach().numpy(), reference.detach().numpy(), rtol=1e-12, atol=1e-14)


def batch(seed: int) -> tuple[aj.Tensor, aj.Tensor]:
    """Inputs and targets."""
    generator = np.random.default_rng(seed)
    return aj.tensor(generator.normal(size=(8, 5))), aj.tensor(generator.normal(size=(8, 4)))


def test_a_step_with_every_part_of_autograd_gives_compiled_what_eager_gives() -> None:
    eager, compiled = Model(), Model()
    step = aj.jit(compiled.step)
    for seed in range(6):
        expected = eager.step(*batch(seed))
        found = step(*batch(seed))
        check_agreement(found, expected)
        check_agreement(compiled.state(), eager.state())
    stats = step.stats()
    assert stats["fallbacks"] == 0
    assert stats["captures"] == 1


def test_the_compiled_step_runs_no_python_op(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model()
    step = aj.jit(model.step)
    given = batch(0)
    for _ in range(3):
        step(*given)
    before = step.stats()

    def refuse(*arguments: Any) -> Any:
        raise AssertionError(f"a Python op ran: {arguments[0]}")

    monkeypatch.setattr(Op, "__getattribute__", refuse)
    monkeypatch.setattr(engine.Walk, "run", refuse)
    for _ in range(5):
        step(*given)
    after = step.stats()
    assert after["native_calls"] == before["native_calls"] + 5
    assert after["python_calls"] == before["python_calls"]


# -- memory


def resident_bytes() -> int:
    """The process's resident memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def growth(step: Callable[[], Any], warm: int, steps: int) -> int:
    """Bytes by which the process grows over ``steps`` after ``warm`` of them, the collector being off."""
    gc.collect()
    gc.disable()
    try:
        for _ in range(warm):
            step()
        before = resident_bytes()
        for _ in range(steps):
            step()
        return resident_bytes() - before
    finally:
        gc.enable()


def small_step(is_compiled: bool) -> Callable[[], Any]:
    """A training step of a small model."""
    weight = aj.tensor(np.ones((3, 3)), requires_grad=True)
    x = aj.tensor(np.ones((2, 3)))

    def step() -> None:
        weight.grad = None
        hidden = (x @ weight).tanh()
        hidden.register_hook(lambda g: g * 2)
        (hidden * hidden).sum().backward()
        with aj.no_grad():
            weight.sub_(weight.grad, alpha=0.01)

    return aj.jit(step) if is_compiled else step


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="the memory of the process is read from /proc")
@pytest.mark.parametrize("is_compiled", [False, True], ids=["eager", "jit"])
def test_steps_leave_the_process_as_large_as_it_was(is_compiled: bool) -> None:
    assert growth(small_step(is_compiled), 1_000, 2_000) < 1 << 20


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="the memory of the process is read from /proc")
@pytest.mark.parametrize("is_compiled", [False, True], ids=["eager", "jit"])
def test_100_000_steps_leave_the_process_as_large_as_it_was(is_compiled: bool) -> None:
    assert growth(small_step(is_compiled), 1_000, 100_000) < 1 << 20
