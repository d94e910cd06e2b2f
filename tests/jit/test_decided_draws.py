"""What Python decides on numbers that it draws, or keeps in places, chooses among steps before they run.

Of every program: compiled calls give what eager ones give, draw as much from every generator, and leave places alike;
kinds of ways that come again become steps of one native call each, and ever new ones cost few captures.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.jit import payoff

RNG = np.random.default_rng(0)
STATE = SimpleNamespace(count=0, rate=0.5)


def depth(x: aj.Tensor, p: float) -> aj.Tensor:
    for k in range(3):
        if random.random() >= p:
            x = x * (k + 2)
    return x


def draws_when_drawn(x: aj.Tensor, p: float) -> aj.Tensor:
    if random.random() < p:
        x = x * random.gauss(0.0, 1.0)
        if RNG.random() < p:
            x = x - RNG.normal()
    elif np.random.rand() < p:
        x = x + random.randint(1, 6)
    return x


def forced(x: aj.Tensor, p: float) -> aj.Tensor:
    told = [random.random() < p for _ in range(3)]
    for is_told in told:
        x = x.tanh() if is_told else x.relu()
    return x * len(told)


def at_last(x: aj.Tensor, p: float) -> Any:
    rounds = 0
    while random.random() < p and rounds < 4:
        rounds += 1
        x = x / 2
    return x, rounds


def by_a_place(x: aj.Tensor, p: float) -> aj.Tensor:
    STATE.count += 1
    if STATE.count % 3 == 0:
        x = x * random.random()
    if STATE.rate * random.random() > p:
        STATE.rate *= 0.9
        x = -x
    return x


def by_an_argument(x: aj.Tensor, p: float) -> aj.Tensor:
    return x * random.random() if p > 0.4 and random.random() < p else x + random.random()


PROGRAMS = (depth, draws_when_drawn, forced, at_last, by_a_place, by_an_argument)
CALLS = 24


def rates(k: int) -> float:
    return (0.3, 0.5, 0.7)[k // 5 % 3]


def seen(program: Callable[..., Any], calls: int = CALLS, rate: Callable[[int], float] = rates) -> list[Any]:
    random.seed(1)
    np.random.seed(2)
    RNG.bit_generator.state = np.random.default_rng(3).bit_generator.state
    STATE.count, STATE.rate = 0, 0.5
    found: list[Any] = []
    for k in range(calls):
        out = program(aj.tensor([1.0 + k]), rate(k))
        found.append(out.tolist() if isinstance(out, aj.Tensor) else [out[0].tolist(), out[1]])
        found.append((random.getstate()[1][-1], RNG.bit_generator.state["state"]["state"], vars(STATE).copy()))
    return [*found, random.random(), np.random.rand(), RNG.random()]


def close(a: Any, b: Any) -> bool:
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(close, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(close(a[k], b[k]) for k in a)
    return bool(a == b or abs(a - b) <= 1e-5 * abs(a))


@pytest.mark.parametrize("program", PROGRAMS)
def test_decisions_on_draws_draw_and_give_what_eager_mode_does(program: Any) -> None:
    assert close(seen(step := aj.jit(program)), seen(program))
    assert step.stats()["captures"] <= CALLS // 2


def test_ways_that_come_again_are_native_calls() -> None:
    step = aj.jit(at_last)
    seen(step, 40, lambda k: 0.5)
    before = step.stats()
    seen(step, 20, lambda k: 0.5)
    after = step.stats()
    assert after["captures"] == before["captures"] <= 6
    assert after["native_calls"] - before["native_calls"] >= 18
    assert after["splits"] == 0


def test_ever_new_ways_cost_few_captures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payoff, "FREE", 2)

    @aj.jit
    def step(x: aj.Tensor) -> aj.Tensor:
        for k in range(8):
            if random.random() < 0.5:
                x = x + k
        return x

    random.seed(0)
    for _ in range(32):
        step(aj.ones(1))
    assert step.stats()["captures"] <= 2 + 5
    assert "served no second call" in step.explain()


def test_places_that_are_drawn_are_inputs_however_they_choose() -> None:
    """A list of numbers that chooses elements is one of a step's own: ``x[random.sample(range(8), 3)]``."""

    def step(x: aj.Tensor) -> Any:
        rows, last = random.sample(range(4), 2), random.randrange(3)
        y = x.clone()
        y[[last, 1]] += 1
        return x[rows], x[:, [last, 0]], x[rows, [0, last]], x[[last] * 40], y

    compiled, found = aj.jit(step), []
    for program in (step, compiled):
        random.seed(5)
        found.append([[t.tolist() for t in program(aj.arange(12.0).reshape(4, 3) * k)] for k in range(12)])
    assert found[0] == found[1]
    assert compiled.stats()["captures"] == 1


def _how_often(x: aj.Tensor, n: Any) -> Any:
    for _ in range(int(n) % 3):
        x = x * random.gauss(0.0, 1.0)
    return x + random.random()


def _whether(x: aj.Tensor, n: Any) -> Any:
    return x * random.random() if n > 2 else x


def _what(x: aj.Tensor, n: Any) -> Any:
    return x * random.gauss(0.0, 1.0) if n % 2 else x * np.random.rand() + random.random()


def _by_truth(x: aj.Tensor, n: Any) -> Any:
    return x * (random.random() if n else 1.0)


def _compared_with_a_draw(x: aj.Tensor, n: Any) -> Any:
    return x * 2 if random.random() > n / 4 else x + random.randrange(5)


def _with_a_clock(x: aj.Tensor, n: Any) -> Any:
    if n > 1:
        x = x * random.random()
    return x + time.time() * 0


@pytest.mark.parametrize("kind", [int, float, np.int64, np.float64, np.float32, np.uint8], ids=lambda k: k.__name__)
@pytest.mark.parametrize(
    "program", [_how_often, _whether, _what, _by_truth, _compared_with_a_draw, _with_a_clock], ids=lambda p: p.__name__
)
def test_numbers_of_every_class_decide_on_what_is_drawn(program: Callable[..., Any], kind: Any) -> None:
    """No call is given what it does not draw: the number may be baked in, or known by its sign alone."""
    numbers = [kind(n) for n in np.random.default_rng(0).integers(0, 5, size=30)]

    def run(called: Callable[..., Any]) -> list[Any]:
        random.seed(0)
        np.random.seed(0)
        return [float(called(aj.ones(2), n)[0]) for n in numbers] + [random.random(), np.random.rand()]

    assert run(aj.jit(program)) == pytest.approx(run(program), rel=1e-5)
