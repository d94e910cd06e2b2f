"""Ints that begin as counters do: what only decides with them has a step for each way from the first call on."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import autojit as aj
from autojit import nn

WAYS: dict[str, tuple[Callable[[int], object], int]] = {
    "every fourth": (lambda i: (i + 1) % 4 == 0, 2),
    "the first and the last": (lambda i: "first" if i % 4 == 0 else "last" if i % 4 == 3 else None, 3),
    "from some call on": (lambda i: i > 5, 2),
    "never asked": (lambda i: None, 1),
    "by its truth": (lambda i: bool(i), 2),
}


@pytest.mark.parametrize("begin", [0, 1])
@pytest.mark.parametrize("name", WAYS)
def test_each_way_is_captured_once(name: str, begin: int) -> None:
    way, ways = WAYS[name]
    factors: dict[object, float] = {None: 2.0, False: 3.0, True: 4.0, "first": 5.0, "last": 6.0}

    @aj.jit
    def step(x: aj.Tensor, i: int) -> aj.Tensor:
        return x * factors[way(i)]

    values = range(begin, begin + 12)
    for i in values:
        assert step(aj.ones(2), i).tolist() == [factors[way(i)]] * 2
    assert step.stats()["captures"] == len({way(i) for i in values}) <= ways
    assert step.stats()["splits"] == 0


@pytest.mark.parametrize("begin", [0, 1])
def test_what_is_computed_with_such_an_int_is_fixed_at_first_as_any_int(begin: int) -> None:
    """It is a choice as long as it does not change: nothing tells of the capture that was a trial."""
    runs: list[int] = []

    def choose(x: aj.Tensor, axis: int, factor: int) -> Any:
        runs.append(axis)
        return x.sum(axis) * factor, x.size(axis) + factor

    step = aj.jit(choose)
    for _ in range(3):
        got, count = step(aj.ones(2, 3), begin, begin)
        assert (got.tolist(), count) == ((x := aj.ones(2, 3).sum(begin) * begin).tolist(), (2, 3)[begin] + begin)
        assert got.shape == x.shape
    assert step.stats()["captures"] == 1
    assert runs == [begin] * 3, "what a function changes outside is changed once a call"
    assert "argument axis" not in str(step.explain())


def test_a_trial_that_runs_line_by_line_is_no_reason_to_do_so() -> None:
    @aj.jit
    def look_up(x: aj.Tensor, i: int) -> aj.Tensor:
        return x * len(f"{i:>{i + 3}}") + hash((i, "name")) * 0

    for _ in range(3):
        assert look_up(aj.ones(1), 0).item() == 3
    assert look_up.stats()["captures"] == 1


def test_gradient_accumulation_needs_a_step_for_each_of_its_three_kinds_of_calls() -> None:
    """The one that meets no gradients, those that add to some, the one that steps."""

    def losses(compiled: bool) -> tuple[list[float], Any]:
        aj.manual_seed(0)
        model = nn.Linear(8, 4)
        optimizer = aj.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(x: aj.Tensor, y: aj.Tensor, i: int) -> aj.Tensor:
            loss = nn.functional.cross_entropy(model(x), y) / 4
            loss.backward()
            if (i + 1) % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()
            return loss

        call = aj.jit(step) if compiled else step
        x, y = aj.randn(16, 8), aj.randint(0, 4, (16,))
        return [call(x, y, i).item() for i in range(16)], call

    expected, _ = losses(False)
    got, step = losses(True)
    assert got == pytest.approx(expected, rel=1e-6)
    assert step.stats()["captures"] == 3


def test_an_int_that_only_decides_stays_open_when_places_are_found_later() -> None:
    """The step takes what it assigns to from then on, before the int: that is still one that counts."""
    kept = SimpleNamespace(name="")

    @aj.jit
    def step(x: aj.Tensor, i: int) -> aj.Tensor:
        if i % 4 == 3:
            kept.name = "fourth"
        return x * (2 if i % 4 == 2 else 3)

    for i in range(16):
        assert step(aj.ones(1), i).item() == (2.0 if i % 4 == 2 else 3.0)
    assert kept.name == "fourth"
    assert step.stats()["captures"] <= 6  # two ways before it was found, three afterwards, and what the place holds
