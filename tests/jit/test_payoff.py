"""Captures that serve no second call are made rarely, and what calls give does not depend on it."""

from __future__ import annotations

import random
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

import autojit as aj
from autojit.jit import payoff
from autojit.jit.captures import Captures, nodes_of
from autojit.jit.decision import Decision
from autojit.jit.native_calls import NativeCalls
from autojit.jit.payoff import Payoff

FREE = 3
KINDS = list(product((False, True), repeat=6))[1:]


@pytest.fixture(autouse=True)
def few_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payoff, "FREE", FREE)


def total(batch: list[Any]) -> Any:
    return sum(x.sum() for x in batch if x is not None)


def batch(kind: tuple[bool, ...], value: float) -> list[Any]:
    return [aj.full((2,), value) if is_there else None for is_there in kind]


def test_a_new_kind_in_every_call_costs_few_captures_and_those_that_come_again_are_compiled() -> None:
    step = aj.jit(total)
    for k, kind in enumerate(KINDS):
        assert step(batch(kind, float(k))).item() == 2.0 * k * sum(kind)
    captures = step.stats()["captures"]
    assert captures <= FREE + len(KINDS).bit_length()
    assert "served no second call" in step.explain()
    for k in range(2 * len(KINDS)):
        assert step(batch(KINDS[0], float(k))).item() == 2.0 * k * sum(KINDS[0])
    assert step.stats()["native_calls"] > len(KINDS)
    for kind in KINDS:
        step(batch(kind, 1.0))
    assert step.stats()["captures"] == len(KINDS) > captures


def test_what_is_read_and_changes_every_time_costs_few_captures() -> None:
    names = [f"name {k}" for k in range(40)]
    name = ""

    @aj.jit
    def step(x: Any) -> Any:
        return x * len(name)

    for name in names:
        assert step(aj.ones(1)).item() == len(name)
    assert step.stats()["captures"] <= FREE + len(names).bit_length()


def test_kinds_that_come_again_are_all_captured() -> None:
    step = aj.jit(total)
    for _ in range(3):
        for kind in KINDS[:12]:
            step(batch(kind, 1.0))
            step(batch(kind, 2.0))
    assert step.stats()["captures"] == 12
    assert "line by line" not in step.explain()


def test_who_asks_for_one_step_a_call_gets_it() -> None:
    step = aj.jit(total, fullgraph=True)
    for kind in KINDS[:10]:
        assert step(batch(kind, 1.0)).item() == 2.0 * sum(kind)
    assert step.stats()["captures"] == 10


READ = [0]


def _read_after_decision(x: Any, k: int) -> Any:
    return x * READ[0] if x.sum() > 0 else -x


def _read_beside_served(x: Any, k: int) -> Any:
    return x * READ[0] if x.sum() > 0 and k % 2 else x + 1


def _two_decisions(x: Any, k: int) -> Any:
    return x * int(x.sum()) if x.sum() > 0 else x


def _digits_of_a_read(x: Any, k: int) -> Any:
    return x * int(x.sum() + READ[0])


@pytest.mark.filterwarnings("ignore:(?s)jit. .* served no second call")
@pytest.mark.parametrize("function", (_read_after_decision, _read_beside_served, _two_decisions, _digits_of_a_read))
def test_whatever_is_new_in_every_call_is_captured_ever_more_rarely(function: Any) -> None:
    step, calls = aj.jit(function), 18
    for k in range(calls):
        for x, READ[0] in ((aj.tensor([1.0 + k, 2.0]), k), (aj.tensor([[-3.0]]), 0)):  # one kind pays for itself alone
            assert step(x, 1).tolist() == function(x, 1).tolist()
    assert (
        step.stats()["captures"] <= 3 * FREE + calls.bit_length()
    )  # the place that is read becomes an argument at some time
    assert "served no second call" in step.explain()
    decisions = [node for root in step.roots.values() for node in nodes_of(root.branch) if isinstance(node, Decision)]
    assert all(len(node.children) <= step.stats()["captures"] for node in decisions)


@pytest.mark.filterwarnings("ignore:(?s)jit. .* served no second call")
def test_outcomes_that_come_again_are_captured() -> None:
    step = aj.jit(lambda x: x * hash(x.sum().item()))
    for _ in range(3):
        for k in range(6):
            assert step(aj.tensor([float(k)])).tolist() == [float(k * k)]
    assert step.stats()["captures"] == 6


class Step:
    calls, earlier_calls, n_nodes = 1, 0, 1
    capture = SimpleNamespace(arguments=(), trace=SimpleNamespace(splits=()))


class LargeStep(Step):
    n_nodes = 4 * payoff.NODES


def test_large_captures_are_waited_for_longer_but_the_first_ones_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payoff, "FREE", 16)
    paid, waits = Payoff(NativeCalls()), []
    steps: list[Any] = [LargeStep() for _ in range(6)]
    for step in steps:
        waits.append(0)
        while paid.waits(Captures(), [], [], []):
            waits[-1] += 1
        paid.captured(step)
    assert waits == [0] * payoff.FREE_AT_LEAST + [5, 10]


def test_waiting_doubles_and_ends() -> None:
    paid, waits = Payoff(NativeCalls()), []
    steps: list[Any] = [Step() for _ in range(FREE + 6)]
    for step in steps[:-1]:
        waits.append(0)
        while paid.waits(Captures(), [], [], []):
            waits[-1] += 1
        paid.captured(step)
    assert waits == [0] * FREE + [1, 2, 4, 8, 16]
    new = Captures()
    assert paid.waits(new, [], [], [])
    assert not paid.waits(new, [], [], [])  # it comes again
    assert paid.waits(Captures(), [], [], [])
    for step in steps[:-1:2]:  # every second capture serves
        step.calls = 2
    assert not paid.waits(Captures(), [], [], [])
    assert paid.in_vain() == 0


@pytest.mark.parametrize("begun", (payoff.FIRST, payoff.FIRST + 1))
@pytest.mark.parametrize("kind", (Step, LargeStep))
def test_a_capture_has_paid_when_its_step_has_served_as_many_calls_as_it_costs(kind: type[Step], begun: int) -> None:
    paid, step = Payoff(NativeCalls()), kind()
    paid.begun = begun
    given: Any = step
    paid.captured(given)
    pays = payoff.PAYS if kind is LargeStep and begun > payoff.FIRST else 1
    for step.calls in range(1, pays + 1):
        assert paid.in_vain() == 1
    step.calls = pays + 1
    assert paid.in_vain() == 0


def deep(ways: int) -> Any:
    """Many ops, of which draws choose: each call takes one of ``2**ways`` ways."""

    def function(x: Any) -> Any:
        for _ in range(ways):
            if random.random() < 0.5:
                for _ in range(payoff.NODES // 2):
                    x = x.sin() + 1.0
        return x

    return function


@pytest.mark.filterwarnings("ignore:(?s)jit. .* served no second call")
def test_ways_that_cost_more_than_they_save_are_given_up_and_calls_are_drawn_for_no_longer() -> None:
    step, calls = aj.jit(deep(6)), 250
    random.seed(1)
    expected = [deep(6)(aj.ones(2)).tolist() for _ in range(calls)]
    after = random.random()
    random.seed(1)
    assert [step(aj.ones(2)).tolist() for _ in range(calls)] == expected
    assert random.random() == after
    assert 0 < step.stats()["captures"] <= 10
    looked_at = step.stats()["python_calls"] + step.stats()["native_calls"]
    assert looked_at <= calls // 2  # the others ran as they are written


@pytest.mark.filterwarnings("ignore:(?s)jit. .* served no second call")
def test_two_ways_that_are_drawn_are_both_compiled() -> None:
    step, calls = aj.jit(deep(1)), 250
    random.seed(1)
    expected = [deep(1)(aj.ones(2)).tolist() for _ in range(calls)]
    random.seed(1)
    assert [step(aj.ones(2)).tolist() for _ in range(calls)] == expected
    assert step.stats()["native_calls"] > calls * 3 // 4


@pytest.mark.filterwarnings("ignore:(?s)jit. .* served no second call")
def test_decisions_that_come_twice_do_not_pay_for_large_captures() -> None:
    def counted(x: Any) -> Any:
        y = x
        for k in range(12):
            for _ in range(8):
                y = y.sin() + y
            y = y * (1 + hash((x > k / 3).sum().item()))
        return y.sum()

    step, numbers, calls = aj.jit(counted), random.Random(0), 120
    for _ in range(calls // 2):
        x = aj.tensor([numbers.random() * 4 for _ in range(4)])
        for _ in range(2):  # what decides comes a second time, and then no more
            assert step(x).item() == pytest.approx(counted(x).item(), rel=1e-6)
    assert step.stats()["captures"] <= FREE + 2 * calls.bit_length()


@pytest.mark.filterwarnings("ignore:(?s)jit. .* served no second call")
@pytest.mark.parametrize("kinds, most", [(20, 20), (400, 40)])
def test_kinds_by_the_hundred_that_come_again_are_not_all_captured(kinds: int, most: int) -> None:
    """A few kinds that take turns are captured once each; hundreds of large ones would cost more than they save."""

    def named(x: aj.Tensor, name: str) -> aj.Tensor:
        for k in range(70):
            x = x.sin() + len(name) + k
        return x

    step, numbers = aj.jit(named), random.Random(0)
    for _ in range(500):
        name = f"kind {numbers.randrange(kinds)}"
        assert step(aj.ones(2), name).shape == (2,)
    assert step.stats()["captures"] <= most
