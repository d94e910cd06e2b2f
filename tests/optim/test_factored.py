"""Adafactor and Muon, differentiable steps, hooks of all optimisers, and swapped-in state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook


def gradients(shape: tuple[int, ...], count: int) -> list[Any]:
    drawn = np.random.RandomState(0)
    return [drawn.standard_normal(shape) for _ in range(count)]


def run(make: Any, start: Any, grads: list[Any], compiled: bool) -> Any:
    """The parameter after one step per gradient."""
    p = aj.nn.Parameter(aj.tensor(start))
    optimizer = make([p])

    def step(g: aj.Tensor) -> None:
        p.grad = g
        optimizer.step()

    call = aj.jit(step) if compiled else step
    for g in grads:
        call(aj.tensor(g))
    return p.detach().numpy()


def adafactor(p: Any, grads: list[Any], lr: float, d: float) -> Any:
    row, column = np.zeros((p.shape[0], 1)), np.zeros((1, p.shape[1]))
    for t, g in enumerate(grads, start=1):
        share = t**-0.8
        step_size = max(1e-3, np.sqrt(np.mean(p**2))) * min(lr, t**-0.5)
        row += share * (np.mean(g**2, 1, keepdims=True) - row)
        column += share * (np.mean(g**2, 0, keepdims=True) - column)
        moment = row @ column / max(row.mean(), np.finfo(float).eps)
        update = g / np.sqrt(np.maximum(moment, np.finfo(float).eps ** 2))
        p = p - step_size * update / max(1.0, np.sqrt(np.mean(update**2)) / d)
    return p


@pytest.mark.parametrize("compiled", [False, True])
def test_adafactor_follows_its_paper(compiled: bool) -> None:
    start, *grads = gradients((4, 3), 5)
    found = run(lambda p: aj.optim.Adafactor(p, lr=0.3, d=1.5), start, grads, compiled)
    np.testing.assert_allclose(found, adafactor(start, grads, 0.3, 1.5), rtol=1e-9)


@pytest.mark.parametrize("compiled", [False, True])
def test_adafactor_keeps_all_second_moments_of_a_vector(compiled: bool) -> None:
    start, g = gradients((5,), 2)
    found = run(lambda p: aj.optim.Adafactor(p, lr=0.1), start, [g], compiled)
    update = np.sign(g)  # the first second moment is g^2 itself
    np.testing.assert_allclose(found, start - np.sqrt(np.mean(start**2)) * 0.1 * update)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("shape", [(6, 3), (3, 6)])
def test_muon_moves_by_a_nearly_orthogonal_matrix(shape: tuple[int, int], compiled: bool) -> None:
    start, g = gradients(shape, 2)
    found = run(lambda p: aj.optim.Muon(p, lr=0.1, weight_decay=0.0), start, [g], compiled)
    values = np.linalg.svd((start - found) / 0.1 / np.sqrt(max(1.0, shape[0] / shape[1])), compute_uv=False)
    assert ((values > 0.6) & (values < 1.3)).all()  # the iteration brings them near 1, not to it
    scaled = run(lambda p: aj.optim.Muon(p, lr=0.1, adjust_lr_fn="match_rms_adamw"), start, [g], compiled)
    shrunk = start * (1 - 0.1 * 0.1)
    ratio = 0.2 * np.sqrt(max(shape)) / np.sqrt(max(1.0, shape[0] / shape[1]))
    np.testing.assert_allclose(shrunk - scaled, (start - found) * ratio, rtol=1e-6)


def test_numbers_out_of_range_are_refused() -> None:
    p = [aj.nn.Parameter(aj.ones(2, 2))]
    for options in ({"lr": -1.0}, {"beta2_decay": 0.1}, {"eps": (-1.0, 1e-3)}, {"d": 0.5}, {"weight_decay": -1.0}):
        with pytest.raises(ValueError, match="should be"):
            aj.optim.Adafactor(p, **options)
    with pytest.raises(ValueError, match="2D"):
        aj.optim.Muon([aj.nn.Parameter(aj.ones(2))])
    with pytest.raises(ValueError, match="not supported"):
        aj.optim.Muon(p, adjust_lr_fn="other")


@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop", "Adagrad", "NAdam"])
def test_a_differentiable_step_has_the_derivative_of_its_formula(name: str) -> None:
    """The derivative of what two steps lead to, by the size of the gradient, equals a difference quotient."""

    def reached(scale: aj.Tensor) -> aj.Tensor:
        p = aj.tensor([1.0, -2.0], dtype=aj.float64) * (scale / scale)  # no leaf, so that it can be changed in place
        optimizer = getattr(aj.optim, name)([p.detach().requires_grad_()], lr=0.1, differentiable=True)
        optimizer.param_groups[0]["params"][0] = p
        p.retain_grad()
        for g in ([0.5, 1.5], [-0.3, 0.8]):
            p.grad = aj.tensor(g, dtype=aj.float64) * scale + 0.1
            optimizer.step()
        return p.sum()

    one = aj.ones((), dtype=aj.float64, requires_grad=True)
    (slope,) = aj.autograd.grad(reached(one), one)
    h = 1e-6
    ends = [float(reached(aj.tensor(1 + s * h, dtype=aj.float64, requires_grad=True))) for s in (-1, 1)]
    assert float(slope) == pytest.approx((ends[1] - ends[0]) / (2 * h), rel=1e-4)


def test_hooks_of_all_optimisers_run_around_every_step() -> None:
    seen: list[str] = []
    optimizer = aj.optim.SGD([aj.nn.Parameter(aj.ones(1))], lr=0.1)
    optimizer.register_step_pre_hook(lambda *_: seen.append("own before"))
    handles = [
        register_optimizer_step_pre_hook(lambda *_: seen.append("before")),
        register_optimizer_step_post_hook(lambda *_: seen.append("after")),
    ]
    optimizer.step()
    for handle in handles:
        handle.remove()
    optimizer.step()
    assert seen == ["before", "own before", "after", "own before"]


def test_an_optimiser_works_on_other_parameters_for_a_while() -> None:
    p = aj.nn.Parameter(aj.ones(2))
    optimizer = aj.optim.SGD([p], lr=0.1, momentum=0.9)
    p.grad = aj.ones(2)
    optimizer.step()
    other, saved = aj.ones(2), optimizer.state_dict()
    other.grad = aj.ones(2)
    with aj.optim.swap_in_optimizer_params_and_state(optimizer, {"p": other}, saved):
        optimizer.step()
    np.testing.assert_allclose(other.numpy(), 1 - 0.1 * 1.9, rtol=1e-6)
    assert optimizer.param_groups[0]["params"][0] is p
    np.testing.assert_allclose(p.detach().numpy(), 0.9, rtol=1e-6)
    with pytest.raises(RuntimeError, match="parameter groups"):  # noqa: SIM117
        with aj.optim.swap_in_optimizer_params_and_state(optimizer, {}, {"state": {}, "param_groups": []}):
            pass
