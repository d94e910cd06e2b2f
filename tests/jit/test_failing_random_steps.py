"""Steps put together at random, each with one call whose data it refuses: that call changes nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit.runtime.faults import PlantedError, planting

ROWS, COLUMNS = 6, 4
State = dict[str, Any]
Line = Callable[[State, dict[str, Any]], Any]


def lines(draw: random.Random) -> list[Line]:
    """Statements of a step in the order in which it runs them; an argument that a check reads is a name of its own."""
    names = ["a", "b", "c"]
    made: list[Line] = []
    for number in range(draw.randint(3, 9)):
        kind = draw.choice(KINDS)
        made.append(kind(draw.choice(names), draw.choice(names), f"{kind.__name__}{number}", draw))
    return made


def update(to: str, of: str, name: str, draw: random.Random) -> Line:
    factor = draw.choice([0.5, -0.25])
    return lambda s, given: s[to].mul_(0.75).add_(factor * s[of].tanh())


def look_up(to: str, of: str, name: str, draw: random.Random) -> Line:
    return lambda s, given: s[to].add_(0.1 * s[of][given[name]])


def write(to: str, of: str, name: str, draw: random.Random) -> Line:
    return lambda s, given: s[to].index_copy_(0, given[name][:3], s[of][:3] * 0.5)


def fold(to: str, of: str, name: str, draw: random.Random) -> Line:
    return lambda s, given: s[to].index_add_(0, given[name], s[of].sin())


def divide(to: str, of: str, name: str, draw: random.Random) -> Line:
    return lambda s, given: s[to].add_((s["n"] // given[name]).sum())


def count(to: str, of: str, name: str, draw: random.Random) -> Line:
    return lambda s, given: s["n"].add_(1)


def weigh(to: str, of: str, name: str, draw: random.Random) -> Line:
    loss = aj.nn.functional.binary_cross_entropy
    return lambda s, given: s[to].sub_(0.01 * loss(given[name] * aj.sigmoid(s[of]), aj.ones(ROWS, COLUMNS)))


def classify(to: str, of: str, name: str, draw: random.Random) -> Line:
    loss = aj.nn.functional.cross_entropy
    return lambda s, given: s[to].sub_(0.01 * loss(s[of], given[name] % COLUMNS + 9 * (given[name] >= ROWS)))


def mix(to: str, of: str, name: str, draw: random.Random) -> Line:
    return lambda s, given: s[to].copy_(s[of] @ (s[to].mT @ s[of]) * 0.01)


def normalise(to: str, of: str, name: str, draw: random.Random) -> Line:
    return lambda s, given: s[to].sub_(s[of].mean(0)).div_(1 + s[of].var(0))


def repeat(to: str, of: str, name: str, draw: random.Random) -> Line:
    def line(s: State, given: dict[str, Any]) -> None:
        table = s[of].clone()

        def body(carry: Any, k: Any) -> tuple[Any, Any]:
            new = 0.5 * carry + table[k]
            return new, new.sum()

        last, _ = aj.control_flow.scan(body, s[to][0].clone(), given[name])
        s[to][1].copy_(last)

    return line


def learn(to: str, of: str, name: str, draw: random.Random) -> Line:
    def line(s: State, given: dict[str, Any]) -> None:
        (slope,) = aj.autograd.grad(((s["p"] * s[of])[given[name]] ** 2).sum(), (s["p"],))
        with aj.no_grad():
            s["p"].sub_(0.01 * slope)

    return line


KINDS = (update, look_up, write, fold, divide, count, weigh, classify, mix, normalise, repeat, learn)
SPOILT: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(
        ("look_up", "write", "fold", "classify", "repeat", "learn"), lambda x: x + aj.tensor([0, 0, 9, 0, 0, 0])
    ),
    "divide": lambda x: x * 0,
    "weigh": lambda x: x * float("nan"),
}


def argument(name: str) -> Any:
    kind = name.rstrip("0123456789")
    if kind == "divide":
        return aj.tensor(2)
    return aj.ones(()) if kind == "weigh" else aj.arange(ROWS)


def state() -> State:
    grid = (aj.arange(ROWS * COLUMNS).reshape(ROWS, COLUMNS) % 7 - 3.0) / 5
    made: State = {name: grid * (k + 1) for k, name in enumerate("abc")}
    return {**made, "p": aj.nn.Parameter(grid + 0.1), "n": aj.tensor([5])}


def contents(s: State) -> list[Any]:
    return [(name, t.detach().numpy().tobytes(), t._version, t._grad) for name, t in s.items()]


def values(s: State) -> list[bytes]:
    return [t.detach().numpy().tobytes() for t in s.values()]


SEEDS = [*range(12), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(12, 600))]


def arguments(program: list[Line]) -> dict[str, Any]:
    """By name, what the lines of a step take."""
    cells = [dict(zip(line.__code__.co_freevars, line.__closure__ or (), strict=True)) for line in program]
    names = [found["name"].cell_contents for found in cells if "name" in found]
    return {name: argument(name) for name in names}


def compiled(program: list[Line], s: State) -> Callable[[dict[str, Any]], Any]:
    def run(given: dict[str, Any]) -> Any:
        for line in program:
            line(s, given)
        return s["a"].sum() * 2

    return aj.jit(run)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_call_that_a_step_refuses_changes_nothing(seed: int) -> None:
    program = lines(random.Random(seed))
    given = arguments(program)
    mine, twin = state(), state()
    run, other = compiled(program, mine), compiled(program, twin)
    for _ in range(4):
        run(given)
        other(given)
    for name, good in given.items():
        bad = {**given, name: SPOILT[name.rstrip("0123456789")](good)}
        before = contents(mine)
        with pytest.raises((IndexError, RuntimeError)):
            run(bad)
        assert contents(mine) == before, name
    run(given)
    other(given)
    assert values(mine) == values(twin)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_fault_behind_any_kernel_of_a_step_changes_nothing(seed: int) -> None:
    program = lines(random.Random(seed))
    given = arguments(program)
    mine, twin = state(), state()
    calls = 4
    with planting() as faults:
        run = compiled(program, mine)
        for _ in range(3):
            run(given)
        for site, label in enumerate(faults.labels):
            before = contents(mine)
            with faults.armed(site):
                try:
                    run(given)
                    calls += 1
                except PlantedError:
                    assert contents(mine) == before, label
        run(given)
    other = compiled(program, twin)
    for _ in range(calls):
        other(given)
    assert values(mine) == values(twin)
