"""Averaged weights are the averages stated; statistics are recomputed; the schedule ends at its rate."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.optim import swa_utils


def taken(averaged: swa_utils.AveragedModel, model: aj.nn.Module, values: list[float]) -> float:
    for value in values:
        aj.nn.init.constant_(model.weight, value)
        averaged.update_parameters(model)
    return float(averaged.module.weight.item())


@pytest.mark.parametrize("rule", ["default", "avg_fn", "multi_avg_fn"])
def test_weights_are_averaged_equally(rule: str) -> None:
    rules: dict[str, dict[str, Any]] = {
        "default": {},
        "avg_fn": {"avg_fn": swa_utils.get_swa_avg_fn()},
        "multi_avg_fn": {"multi_avg_fn": swa_utils.get_swa_multi_avg_fn()},
    }
    model = aj.nn.Linear(1, 1, bias=False)
    averaged = swa_utils.AveragedModel(model, **rules[rule])
    assert taken(averaged, model, [1.0, 2.0, 6.0]) == pytest.approx(3.0)
    assert averaged.n_averaged.item() == 3
    assert averaged(aj.ones(1)).item() == pytest.approx(3.0)
    assert list(averaged.state_dict()) == ["n_averaged", "module.weight"]


@pytest.mark.parametrize("rule", ["avg_fn", "multi_avg_fn"])
def test_weights_fade_exponentially(rule: str) -> None:
    function = swa_utils.get_ema_avg_fn(0.75) if rule == "avg_fn" else swa_utils.get_ema_multi_avg_fn(0.75)
    model = aj.nn.Linear(1, 1, bias=False)
    averaged = swa_utils.AveragedModel(model, **{rule: function})
    assert taken(averaged, model, [4.0, 8.0, 1.0]) == pytest.approx(0.75 * 5.0 + 0.25)


@pytest.mark.parametrize("use_buffers", [False, True])
def test_buffers_are_copied_or_averaged(use_buffers: bool) -> None:
    model = aj.nn.BatchNorm1d(1)
    averaged = swa_utils.AveragedModel(model, use_buffers=use_buffers)
    for value in (2.0, 4.0):
        assert model.running_mean is not None
        model.running_mean.fill_(value)
        averaged.update_parameters(model)
    assert averaged.module.running_mean.item() == (3.0 if use_buffers else 4.0)


def test_statistics_are_those_of_the_whole_pass() -> None:
    model = aj.nn.Sequential(aj.nn.BatchNorm1d(1)).eval()
    batches = [aj.tensor([[1.0], [3.0]]), aj.tensor([[5.0], [7.0]])]
    swa_utils.update_bn([(x, None) for x in batches], model)
    assert model[0].running_mean.item() == pytest.approx(4.0)
    assert model[0].momentum == 0.1
    assert not model.training
    swa_utils.update_bn(batches, aj.nn.Linear(1, 1))


@pytest.mark.parametrize("strategy", ["cos", "linear"])
def test_rates_anneal_to_the_final_one(strategy: str) -> None:
    optimizer = aj.optim.SGD([aj.zeros(1, requires_grad=True)], lr=1.0)
    schedule = swa_utils.SWALR(optimizer, swa_lr=0.2, anneal_epochs=4, anneal_strategy=strategy)
    rates = []
    for _ in range(6):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        schedule.step()
    weights = [min(t / 4, 1) if strategy == "linear" else (1 - math.cos(math.pi * min(t / 4, 1))) / 2 for t in range(6)]
    np.testing.assert_allclose(rates, [0.2 * w + (1 - w) for w in weights])


def test_errors() -> None:
    optimizer = aj.optim.SGD([aj.zeros(1, requires_grad=True)], lr=1.0)
    with pytest.raises(ValueError, match="Invalid decay value"):
        swa_utils.get_ema_avg_fn(1.5)
    with pytest.raises(ValueError, match="anneal_strategy must by one of"):
        swa_utils.SWALR(optimizer, 0.1, anneal_strategy="step")
    with pytest.raises(ValueError, match="anneal_epochs"):
        swa_utils.SWALR(optimizer, 0.1, anneal_epochs=-1)
    with pytest.raises(ValueError, match="same length"):
        swa_utils.SWALR(optimizer, [0.1, 0.2])
    with pytest.raises(AssertionError, match="Only one of"):
        swa_utils.AveragedModel(
            aj.nn.Linear(1, 1), avg_fn=swa_utils.get_swa_avg_fn(), multi_avg_fn=swa_utils.get_swa_multi_avg_fn()
        )


@pytest.mark.parametrize("kind", ["ema", "swa", "user's", "user's in place"])
def test_averages_inside_of_a_step_are_those_of_eager_mode(kind: str) -> None:
    """Also the first, which is the weights themselves."""

    def run(jit: Any) -> tuple[list[Any], Any]:
        model = aj.nn.Sequential(aj.nn.Linear(2, 3), aj.nn.BatchNorm1d(3))
        with aj.no_grad():
            for p in model.parameters():
                p.copy_(aj.arange(1.0, p.numel() + 1).reshape(p.shape))
        made = {
            "ema": lambda: swa_utils.AveragedModel(
                model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True
            ),
            "swa": lambda: swa_utils.AveragedModel(model),
            "user's": lambda: swa_utils.AveragedModel(model, avg_fn=lambda a, p, n: 0.1 * p + 0.9 * a),
            "user's in place": lambda: swa_utils.AveragedModel(
                model, multi_avg_fn=lambda a, p, n: [x.lerp_(y, 0.5) for x, y in zip(a, p, strict=True)]
            ),
        }
        averaged = made[kind]()

        @jit
        def step(x: Any) -> None:
            for p in model.parameters():
                p.grad = None
            model(x).square().sum().backward()
            with aj.no_grad():
                for p in model.parameters():
                    p -= 0.1 * p.grad
            averaged.update_parameters(model)

        found = []
        for k in range(5):
            step(aj.arange(6.0).reshape(3, 2) + k * k)
            found.append([t.tolist() for t in averaged.state_dict().values()])
        return found, step

    (expected, _), (found, step) = run(lambda f: f), run(aj.jit)
    for a, b in zip(expected, found, strict=True):
        for x, y in zip(a, b, strict=True):
            aj.testing.assert_close(aj.tensor(x), aj.tensor(y))
    assert kind.startswith("user") or step.stats()["splits"] == 0
