"""Custom functions in compiled steps: guards on what their methods read, state in ctx, derivatives of results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.autograd import Function

SCALE = 2.0


def leaf(*values: float) -> aj.Tensor:
    return aj.tensor(values, dtype=aj.float64, requires_grad=True)


class Scaled(Function):
    factor = 1.0

    @staticmethod
    def forward(ctx: Any, x: aj.Tensor) -> aj.Tensor:
        ctx.scale = SCALE * Scaled.factor
        ctx.save_for_backward(x)
        return x * x * ctx.scale

    @staticmethod
    def backward(ctx: Any, bar: aj.Tensor) -> aj.Tensor:
        return bar * 2 * ctx.saved_tensors[0] * ctx.scale


def test_what_the_methods_read_is_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    apply = Scaled.apply
    steps = [
        aj.jit(lambda x: aj.autograd.grad(Scaled.apply(x).sum(), x)[0]),
        aj.jit(lambda x: aj.autograd.grad(apply(x).sum(), x)[0]),
        aj.jit(lambda x: aj.autograd.grad(Scaled()(x).sum(), x)[0]),
    ]
    for step in steps:
        for _ in range(3):
            assert step(leaf(1.0)).item() == 4.0
        with monkeypatch.context() as changed:
            changed.setitem(globals(), "SCALE", 3.0)
            assert step(leaf(1.0)).item() == 6.0
        with monkeypatch.context() as changed:
            changed.setattr(Scaled, "factor", 5.0)
            assert step(leaf(1.0)).item() == 20.0
        assert step(leaf(1.0)).item() == 4.0
        assert step.stats()["captures"] == 3


def test_results_of_a_compiled_function_are_differentiated_thrice() -> None:
    compiled = aj.jit(lambda x: Scaled.apply(x) * x.exp())
    for _ in range(2):
        x = leaf(0.5, -1.0)
        found = []
        for function in (compiled, lambda x: 2 * x * x * x.exp()):
            y = function(x).sum()
            for _ in range(3):
                (g,) = aj.autograd.grad(y, x, create_graph=True)
                found.append(g.detach().numpy())
                y = g.sum()
        for a, b in zip(found[:3], found[3:], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)


def test_a_training_step_with_everything_at_once_runs_natively() -> None:
    class Counter(Function):
        @staticmethod
        def forward(ctx: Any, x: aj.Tensor, counter: aj.Tensor) -> aj.Tensor:
            counter.add_(1)
            ctx.mark_dirty(counter)
            ctx.mark_non_differentiable(counter)
            ctx.save_for_backward(x)
            ctx.power = 3
            return x**ctx.power, counter

        @staticmethod
        def backward(ctx: Any, bar: aj.Tensor, counter_bar: Any) -> tuple[aj.Tensor, None]:
            (x,) = ctx.saved_tensors
            return bar * ctx.power * x ** (ctx.power - 1), None

    def train(weight: aj.Tensor, counter: aj.Tensor) -> Any:
        optimizer = aj.optim.SGD([weight], lr=0.01)

        def step(x: aj.Tensor) -> aj.Tensor:
            optimizer.zero_grad()
            y, _ = Counter.apply(weight * x, counter)
            (g,) = aj.autograd.grad(y.sum(), weight, create_graph=True)
            loss = y.sum() + (g**2).sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    results = []
    for wrap in (lambda f: f, aj.jit):
        weight, counter = leaf(0.5, -0.3), aj.zeros(1)
        step = wrap(train(weight, counter))
        losses = [step(aj.tensor([1.0, 2.0], dtype=aj.float64)).item() for _ in range(5)]
        results.append((losses, weight.detach().numpy().copy(), counter.item()))
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-12)
    np.testing.assert_allclose(results[0][1], results[1][1], rtol=1e-12)
    assert results[0][2] == results[1][2] == 5.0
    counts = step.stats()
    assert (counts["captures"], counts["fallbacks"]) == (1, 0)
    assert counts["native_calls"] >= 3


def test_a_missing_backward_of_a_compiled_function_is_an_error_of_backward_only() -> None:
    class NoBackward(Function):
        @staticmethod
        def forward(ctx: Any, x: aj.Tensor) -> aj.Tensor:
            return x * 2

    compiled = aj.jit(NoBackward.apply)
    for _ in range(2):
        y = compiled(leaf(1.0))
        assert y.item() == 2.0
        with pytest.raises(NotImplementedError, match="NoBackward"):
            y.sum().backward()
