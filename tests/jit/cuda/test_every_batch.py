"""Programs of five kinds take batches of every size on a GPU: as few compiled steps as on the CPU, and few graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import nn
from autojit.runtime.gpu.emulator.driver import EmulatedDriver
from autojit.runtime.gpu.graphs import MOST_GRAPHS

F = nn.functional
Program = Callable[[str], Callable[[aj.Tensor], Any]]
MOST_STEPS = 3
"""The first size's, every other one's, and that of 1, whose broadcasting is its own."""


def slopes_of(module: nn.Module, loss: Callable[[aj.Tensor], aj.Tensor]) -> Callable[[aj.Tensor], Any]:
    weights = tuple(module.parameters())
    return lambda x: aj.autograd.grad(loss(x), weights)


def dense(device: str) -> Callable[[aj.Tensor], Any]:
    net = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2)).to(device)
    return slopes_of(net, lambda x: net(x).square().mean())


def convolved(device: str) -> Callable[[aj.Tensor], Any]:
    net = nn.Sequential(nn.Conv2d(1, 3, 2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(36, 2)).to(device)
    return slopes_of(net, lambda x: net(x.reshape(-1, 1, 2, 3)).square().mean())


def recurrent(device: str) -> Callable[[aj.Tensor], Any]:
    net = nn.RNN(2, 3, batch_first=True).to(device)
    return slopes_of(net, lambda x: net(x.reshape(-1, 3, 2))[0].square().mean())


def ordered(device: str) -> Callable[[aj.Tensor], Any]:
    def smallest_and_order(x: aj.Tensor) -> Any:
        values, places = x.sort(0)
        return values, places, x.flatten().topk(4)[0]

    return smallest_and_order


def masked(device: str) -> Callable[[aj.Tensor], Any]:
    net = nn.Linear(6, 2).to(device)
    return slopes_of(net, lambda x: net(x)[x[:, 0] > 0].square().sum())


PROGRAMS: dict[str, Program] = {f.__name__: f for f in (dense, convolved, recurrent, ordered, masked)}


def take(name: str, sizes: Sequence[int], driver: EmulatedDriver) -> None:
    """Batches of these sizes, in this order: results of the CPU, few compiled steps, few graphs at a time."""
    compiled = {}
    for device in ("cpu", "cuda"):
        aj.manual_seed(3)
        compiled[device] = aj.jit(PROGRAMS[name](device))
    before = driver.live_graphs
    for n in sizes:
        x = np.random.default_rng(n).standard_normal((n, 6)).astype(np.float32)
        expected, found = (step(aj.tensor(x, device=device)) for device, step in compiled.items())
        for mine, theirs in zip(expected, found, strict=True):
            np.testing.assert_allclose(theirs.cpu().numpy(), mine.numpy(), rtol=2e-3, atol=2e-5)
        assert driver.live_graphs - before <= MOST_GRAPHS * compiled["cuda"].stats()["device_entries"]
    here, there = (compiled[device].stats() for device in ("cpu", "cuda"))
    assert there["captures"] <= max(here["captures"], MOST_STEPS), compiled["cuda"].explain()
    assert (there["splits"], there["fallbacks"], there["specialised_sizes"]) == (0, 0, 0), compiled["cuda"].explain()


@pytest.mark.parametrize("name", ["recurrent", "ordered", "masked"])
def test_batches_of_some_sizes(name: str, driver: EmulatedDriver) -> None:
    take(name, (4, 7, 1, 33), driver)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_batches_of_all_sizes(name: str, driver: EmulatedDriver) -> None:
    take(name, np.random.default_rng(0).permutation(np.arange(1, 1025)).tolist(), driver)
