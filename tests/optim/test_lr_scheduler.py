"""Schedules: each follows its closed form, composites follow their parts, states resume, slots are kept in step."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import nn, optim
from autojit.optim import lr_scheduler as schedules
from autojit.tensor.state import guard_epoch


def _optimizer(**options: Any) -> optim.SGD:
    return optim.SGD([nn.Parameter(aj.zeros(1))], lr=0.8, momentum=0.9, **options)


def _rates(make: Callable[[optim.Optimizer], Any], steps: int) -> list[float]:
    optimizer = _optimizer()
    schedule = make(optimizer)
    found = [optimizer.param_groups[0]["lr"]]
    for _ in range(steps):
        optimizer.step()
        schedule.step()
        found.append(optimizer.param_groups[0]["lr"])
        assert schedule.get_last_lr() == [found[-1]]
    return found


def _restarts(epoch: int) -> float:
    start, length = 0, 3
    while epoch >= start + length:
        start, length = start + length, length * 2
    return 0.1 + 0.7 * (1 + math.cos(math.pi * (epoch - start) / length)) / 2


CASES: dict[str, tuple[Callable[[optim.Optimizer], Any], Callable[[int], float]]] = {
    "lambda": (lambda o: schedules.LambdaLR(o, lambda e: 1 / (1 + e)), lambda e: 0.8 / (1 + e)),
    "multiplicative": (lambda o: schedules.MultiplicativeLR(o, lambda e: 0.9), lambda e: 0.8 * 0.9**e),
    "step": (lambda o: schedules.StepLR(o, 3, 0.5), lambda e: 0.8 * 0.5 ** (e // 3)),
    "multi_step": (
        lambda o: schedules.MultiStepLR(o, [2, 5, 5], 0.5),
        lambda e: 0.8 * 0.5 ** ((e >= 2) + 2 * (e >= 5)),
    ),
    "constant": (lambda o: schedules.ConstantLR(o, 0.5, 4), lambda e: 0.4 if e < 4 else 0.8),
    "linear": (lambda o: schedules.LinearLR(o, 0.25, 1.0, 6), lambda e: 0.8 * (0.25 + 0.75 * min(e, 6) / 6)),
    "exponential": (lambda o: schedules.ExponentialLR(o, 0.7), lambda e: 0.8 * 0.7**e),
    "polynomial": (lambda o: schedules.PolynomialLR(o, 8, 2.0), lambda e: 0.8 * (1 - min(e, 8) / 8) ** 2),
    "cosine": (
        lambda o: schedules.CosineAnnealingLR(o, 5, 0.1),
        lambda e: 0.1 + 0.7 * (1 + math.cos(math.pi * e / 5)) / 2,
    ),
    "restarts": (lambda o: schedules.CosineAnnealingWarmRestarts(o, 3, 2, 0.1), _restarts),
    "cyclic": (
        lambda o: schedules.CyclicLR(o, 0.1, 0.5, 4),
        lambda e: 0.1 + 0.4 * (1 - abs((e % 8) / 4 - 1)),
    ),
    "sequential": (
        lambda o: schedules.SequentialLR(o, [schedules.ConstantLR(o, 0.5, 10), schedules.ExponentialLR(o, 0.5)], [3]),
        lambda e: 0.4 if e < 3 else 0.8 * 0.5 ** (e - 3),
    ),
    "chained": (
        lambda o: schedules.ChainedScheduler([schedules.ConstantLR(o, 0.5, 4), schedules.ExponentialLR(o, 0.9)]),
        lambda e: (0.4 if e < 4 else 0.8) * 0.9**e,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_schedule_follows_its_closed_form(name: str) -> None:
    make, expected = CASES[name]
    np.testing.assert_allclose(_rates(make, 13), [expected(e) for e in range(14)], rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("name", sorted(set(CASES) - {"lambda", "multiplicative"}))
def test_state_dict_resumes_a_schedule(name: str) -> None:
    make, expected = CASES[name]
    optimizer = _optimizer()
    schedule = make(optimizer)
    for _ in range(5):
        optimizer.step()
        schedule.step()
    other = _optimizer()
    resumed = make(other)
    resumed.load_state_dict(schedule.state_dict())
    other.load_state_dict(optimizer.state_dict())
    for epoch in range(6, 9):
        resumed.step()
        assert other.param_groups[0]["lr"] == pytest.approx(expected(epoch), rel=1e-9)


def test_one_cycle_goes_up_and_down_and_moves_the_momentum_against_it() -> None:
    optimizer = _optimizer()
    schedule = schedules.OneCycleLR(optimizer, max_lr=1.0, total_steps=11, pct_start=0.4)
    rates, momenta = [], []
    for _ in range(11):
        rates.append(optimizer.param_groups[0]["lr"])
        momenta.append(optimizer.param_groups[0]["momentum"])
        optimizer.step()
        if len(rates) < 11:
            schedule.step()
    top = int(np.argmax(rates))
    assert rates[0] == pytest.approx(0.04)
    assert rates[-1] == pytest.approx(4e-6)
    assert momenta[0] == momenta[-1] == pytest.approx(0.95)
    assert int(np.argmin(momenta)) == top
    assert np.all(np.diff(rates[: top + 1]) > 0)
    assert np.all(np.diff(rates[top:]) < 0)
    schedule.step()
    with pytest.raises(ValueError, match="Tried to step 12 times"):
        schedule.step()


def test_plateau_waits_for_patience_and_respects_the_least_rate() -> None:
    optimizer = _optimizer()
    schedule = schedules.ReduceLROnPlateau(optimizer, factor=0.5, patience=1, min_lr=0.3)
    rates = []
    for metric in (1.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.2):
        schedule.step(metric)
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates == [0.8, 0.8, 0.8, 0.4, 0.4, 0.3, 0.3]


def test_schedules_write_the_slots_of_compiled_steps_without_bumping_the_epoch() -> None:
    optimizer = _optimizer()
    schedule = schedules.ExponentialLR(optimizer, 0.5)
    slot, before = optimizer.param_groups[0].slot("lr"), int(guard_epoch[0])
    optimizer.step()
    schedule.step()
    assert float(slot) == 0.4
    assert int(guard_epoch[0]) == before


def test_wrong_order_warns_once() -> None:
    optimizer = _optimizer()
    schedule = schedules.StepLR(optimizer, 2)
    with pytest.warns(UserWarning, match=r"`lr_scheduler.step\(\)` before `optimizer.step\(\)`"):
        schedule.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        schedule.step()


def test_misuse_is_named() -> None:
    optimizer, other = _optimizer(), _optimizer()
    with pytest.raises(TypeError, match="int is not an Optimizer"):
        schedules.StepLR(3, 1)  # type: ignore[arg-type]
    with pytest.raises(KeyError, match="param 'initial_lr' is not specified"):
        schedules.StepLR(optimizer, 1, last_epoch=4)
    with pytest.raises(ValueError, match="expects all schedulers to belong to the same optimizer"):
        schedules.ChainedScheduler([schedules.StepLR(optimizer, 1), schedules.StepLR(other, 1)])
    with pytest.raises(ValueError, match="Expected 1 lr_lambdas, but got 2"):
        schedules.LambdaLR(optimizer, [abs, abs])


def test_schedules_may_derive_from_the_old_name() -> None:
    class Halves(schedules._LRScheduler):
        def get_lr(self) -> list[float]:
            return [base * 0.5**self.last_epoch for base in self.base_lrs]

    optimizer = optim.SGD([aj.zeros(1, requires_grad=True)], lr=1.0)
    schedule = Halves(optimizer)
    rates = []
    for _ in range(3):
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    assert rates == [1.0, 0.5, 0.25]
    assert isinstance(schedule, schedules.LRScheduler)
