"""When a step is captured again and when it is not, and Python's own control flow on values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import optim
from tests.acceptance.programs import PROGRAMS, leaf, outcome


def test_a_schedule_of_hyper_parameters_never_captures_again() -> None:
    def losses(wrap: Callable[[Any], Any]) -> tuple[list[float], Any]:
        aj.manual_seed(0)
        model = aj.nn.Sequential(aj.nn.Linear(6, 8), aj.nn.Tanh(), aj.nn.Linear(8, 1))
        optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=50)
        x = aj.tensor(np.random.default_rng(0).normal(size=(12, 6)).astype(np.float32))

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        step = wrap(step)
        found = []
        for k in range(50):
            found.append(float(step(x)))
            schedule.step()
            if k == 30:
                optimizer.param_groups[0]["momentum"] = 0.5
        return found, step

    expected, _ = losses(lambda f: f)
    found, step = losses(aj.jit)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert step.stats()["captures"] == 1
    assert step.stats()["native_calls"] >= 48


def test_a_second_batch_size_reuses_kernels_that_do_not_depend_on_it(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOJIT_CACHE_DIR", str(tmp_path / "cache"))
    aj.manual_seed(0)
    model = aj.nn.Sequential(aj.nn.Linear(37, 53), aj.nn.ReLU(), aj.nn.Linear(53, 11))
    optimizer = optim.AdamW(model.parameters(), lr=0.01)

    @aj.jit
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    misses = []
    for batch in (19, 23):
        before = aj.cache.stats()
        step(aj.randn(batch, 37))
        misses.append((aj.cache.stats() - before).misses)
    assert misses[1] < misses[0]
    assert step.stats()["captures"] <= 2


def test_gradients_that_arguments_gather_are_added_to_natively_and_belong_to_each_tensor() -> None:
    def step(x: Any) -> Any:
        loss = (x * x).sum()
        loss.backward()
        return loss.detach()

    rng = np.random.default_rng(0)
    order = [0, 0, 1, 0, 1, 1, 2, 2, 2, *([3] * 6), *range(4, 20), 0, 3]
    values = rng.normal(size=(20, 4))

    def gradients(call: Callable[[Any], Any]) -> list[Any]:
        points = [leaf(v) for v in values]
        for k in order:
            call(points[k])
        return [p.grad.numpy() for p in points]

    jitted = aj.jit(step)
    for found, expected in zip(gradients(jitted), gradients(step), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-14)
    assert jitted.stats()["native_calls"] >= 4
    assert jitted.stats()["captures"] <= 10


def test_leaves_made_inside_a_step_end_with_it() -> None:
    """Forces inside an integrator: the inner leaf also receives the outer gradient, and dies with the step."""
    start, push = aj.ones(4, dtype=aj.float64), leaf(np.linspace(0.1, 0.4, 4))

    def step() -> Any:
        push.grad = None
        q = start.detach().requires_grad_(True)
        (slope,) = aj.autograd.grad((q**3).sum(), (q,), create_graph=True)
        loss = ((start + push - 0.1 * slope) ** 2).sum()
        loss.backward()
        return loss.detach(), q.grad, push.grad.clone()

    jitted = aj.jit(step)
    expected = step()
    for _ in range(4):
        for a, b in zip(jitted(), expected, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-14)
    assert jitted.stats()["captures"] == 1
    assert start.grad is None


def test_sizes_seen_before_are_not_captured_again() -> None:
    step = aj.jit(lambda x: (x * x).sum())
    for _ in range(3):
        for batch in (4, 7, 9):
            assert float(step(aj.ones(batch))) == batch
    assert step.stats()["captures"] <= 3


def test_python_branches_on_values_are_followed() -> None:
    weight = leaf(np.array([1.0, 2.0]))

    def step(x: Any) -> Any:
        loss = (x * weight).sum()
        loss.backward()
        with aj.no_grad():
            if loss > 0:
                weight.sub_(0.1 * weight.grad)
                found = loss * 2
            else:
                weight.add_(weight.grad)
                found = -loss
            weight.grad = None
        return found.detach()

    rng = np.random.default_rng(0)
    inputs = [aj.tensor(rng.normal(size=2)) for _ in range(30)]
    start = weight.detach().numpy().copy()
    expected = [float(step(x)) for x in inputs]
    trained = weight.detach().numpy().copy()
    with aj.no_grad():
        weight.copy_(aj.tensor(start))
    jitted = aj.jit(step)
    np.testing.assert_allclose([float(jitted(x)) for x in inputs], expected, rtol=1e-12)
    np.testing.assert_allclose(weight.detach().numpy(), trained, rtol=1e-12)
    assert jitted.stats()["captures"] <= 2
    assert jitted.stats()["fallbacks"] == 0


def test_a_loop_until_convergence_is_followed() -> None:
    def root(a: Any) -> Any:
        x, rounds = a, 0
        while abs(x * x - a) > 1e-9:
            x = 0.5 * (x + a / x)
            rounds += 1
        return x, rounds

    jitted = aj.jit(root)
    for a in (2.0, 3.0, 100.0, 2.0, 50.0):
        found, rounds = jitted(aj.tensor(a, dtype=aj.float64))
        expected, wanted = root(aj.tensor(a, dtype=aj.float64))
        assert float(found) == pytest.approx(float(expected), rel=1e-15)
        assert rounds == wanted


def test_item_gives_the_value_of_each_call() -> None:
    def step(x: Any) -> Any:
        total = x.sum().item()
        return x / total, total

    jitted = aj.jit(step)
    for k in range(1, 6):
        found, total = jitted(aj.full((4,), float(k)))
        np.testing.assert_allclose(found.numpy(), np.full(4, 0.25))
        assert total == pytest.approx(4.0 * k)


def test_a_value_formatted_by_python_is_that_of_each_call() -> None:
    said: list[str] = []

    def step(x: Any) -> Any:
        said.append(f"{x.sum().item():.1f}")
        return x * 2

    jitted = aj.jit(step)
    for k in (1.0, 2.0, 1.0):
        jitted(aj.full((3,), k))
    assert said[:2] == ["3.0", "6.0"]


def test_a_closure_that_changes_is_noticed() -> None:
    factor = 2.0

    def step(x: Any) -> Any:
        return x * factor

    jitted = aj.jit(step)
    assert float(jitted(aj.tensor(1.0))) == 2.0
    factor = 5.0
    assert float(jitted(aj.tensor(1.0))) == 5.0
    assert "factor" in jitted.explain()


def test_training_mode_is_noticed() -> None:
    model = aj.nn.Sequential(aj.nn.Linear(4, 4), aj.nn.Dropout(0.5))
    jitted = aj.jit(lambda x: model(x).detach())
    x = aj.ones(3, 4)
    jitted(x)
    model.eval()
    np.testing.assert_allclose(jitted(x).numpy(), model(x).detach().numpy(), rtol=1e-6)
    model.train()
    assert (jitted(x).numpy() == 0).any()


def test_programs_are_captured_once_each_however_long_they_run() -> None:
    for name in ("mlp_adam", "leapfrog"):
        steps: list[Any] = []
        outcome(PROGRAMS[name].build("tiny"), lambda f: steps.append(aj.jit(f)) or steps[0], steps=60)  # noqa: B023
        assert steps[0].stats()["captures"] == 1
