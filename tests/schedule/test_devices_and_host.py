"""Steps on a device: what the host computes is before or behind all that the device is told, where that is free."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

import pytest

import autojit as aj
from autojit import nn
from autojit.core.device import CPU
from autojit.schedule.kernels import CopyKernel, Kernel, device_of
from autojit.testing import second_device

OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda p: aj.optim.SGD(p, 0.1, momentum=0.9),
    "adam": lambda p: aj.optim.Adam(p, 1e-2),
    "adamw": lambda p: aj.optim.AdamW(p, 1e-2),
}


@pytest.fixture
def there() -> Iterator[str]:
    with second_device("there") as name:
        yield name


def is_launched(kernel: Kernel) -> bool:
    """Whether a device does a kernel by itself."""
    is_transfer = isinstance(kernel, CopyKernel) and kernel.source.type.device != kernel.target.type.device
    return device_of(kernel) != CPU and not is_transfer


def runs_of(step: Any) -> int:
    """How many times a device is told something, if everything that follows each other is told at once."""
    return sum(is_there for is_there, _ in groupby(step.compiled.schedule.kernels, key=is_launched))


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_training_step_tells_its_device_everything_at_once(there: str, kind: str) -> None:
    aj.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.LayerNorm(8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 3)).to(there)
    updates = OPTIMIZERS[kind](model.parameters())
    x, y = aj.randn(7, 5, device=there), aj.randint(0, 3, (7,), device=there)

    @aj.jit
    def step(x: aj.Tensor, y: aj.Tensor) -> aj.Tensor:
        updates.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        updates.step()
        return loss

    for _ in range(3):
        step(x, y)
    (compiled,) = step.steps()
    kernels = compiled.compiled.schedule.kernels
    assert any(is_launched(k) for k in kernels) and any(device_of(k) == CPU for k in kernels)
    assert runs_of(compiled) == 1
    states = [s["step"].item() for s in updates.state.values() if "step" in s]
    assert states == [3.0] * len(states)


def test_a_counter_is_as_before_when_the_device_reports_an_error(there: str) -> None:
    count = aj.zeros((), device="cpu")
    table = aj.arange(6.0, device=there)

    @aj.jit
    def step(index: aj.Tensor) -> aj.Tensor:
        count.add_(1)
        return table[index] * count

    good, bad = aj.tensor([1, 5], device=there), aj.tensor([1, 6], device=there)
    assert step(good).tolist() == [1.0, 5.0]
    for _ in range(2):
        with pytest.raises(IndexError):
            step(bad)
        assert count.item() == 1
    assert step(good).tolist() == [2.0, 10.0]
    assert runs_of(step.steps()[0]) == 1


def test_what_the_host_makes_of_results_comes_behind_and_splits_only_what_waits_for_it(there: str) -> None:
    @aj.jit
    def step(x: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        total = x.sum().cpu()
        return (x * 2).cumsum(0) + 1, x * (total + 1).to(there)

    x = aj.arange(4.0, device=there)
    first, second = step(x)
    assert (first.tolist(), second.tolist()) == ([1.0, 3.0, 7.0, 13.0], [0.0, 7.0, 14.0, 21.0])
    assert runs_of(step.steps()[0]) <= 2
