"""A capture takes time that grows with its decisions and nodes, not with their product; else calls run line by line."""

from __future__ import annotations

import random
from typing import Any

import pytest

import autojit as aj
from autojit.jit import repeated_work
from autojit.jit.captures import nodes_of
from autojit.jit.function import JitFunction


def compiled_nodes(step: JitFunction) -> int:
    """Of all parts of all captures."""
    nodes = [node for root in step.roots.values() for node in nodes_of(root.branch)]
    return sum(len(part.graph.nodes) for node in nodes for part in node.parts)


def peeled(x: Any) -> Any:
    """Takes the largest and all near it, until none is left: the size of what is left comes from the data."""
    left, kept = x, []
    while left.numel() > 0:
        kept.append(left.max())
        left = left[left < kept[-1] - 0.5]
    return aj.stack(kept)


def halved(x: Any, turns: int) -> Any:
    """Decides in each turn on values whose sizes are known."""
    for _ in range(turns):
        x = x * 0.5 if x.sum() > 1.0 else x.sin() + 2.0
    return x


@pytest.mark.parametrize("n", (1, 3, 12, 40))
def test_parts_that_repeat_each_other_are_compiled_while_that_is_little(n: int) -> None:
    step = aj.jit(peeled)
    for k in range(4):
        x = aj.arange(n, dtype=aj.float32) + k
        assert step(x).tolist() == peeled(x).tolist()
    assert compiled_nodes(step) <= 2 * repeated_work.REPEATED
    assert (step.stats()["captures"] > 0) == (n <= 3)
    assert ("depend on the data" in step.explain()) == (n > 3)


def test_a_function_whose_captures_would_repeat_too_much_is_given_up_after_a_few() -> None:
    step = aj.jit(peeled)
    for k in range(40):
        x = aj.arange(20 + k % 5, dtype=aj.float32)
        assert step(x).tolist() == peeled(x).tolist()
    assert step.payoff.begun <= 8
    assert step.stats()["captures"] == 0


def test_decisions_on_values_of_known_sizes_are_compiled_in_linear_time() -> None:
    nodes = []
    for turns in (8, 16, 32):
        step = aj.jit(halved)
        x = aj.linspace(0.0, 9.0, 7)
        assert step(x, turns).tolist() == halved(x, turns).tolist()
        assert step.stats()["captures"] == 1
        nodes.append(compiled_nodes(step))
    assert nodes[2] - nodes[1] <= 2 * (nodes[1] - nodes[0]) + 8


def test_what_a_given_up_capture_has_drawn_is_drawn_once() -> None:
    def function(x: Any) -> Any:
        return peeled(x) * random.random()

    step = aj.jit(function)
    x = aj.arange(20, dtype=aj.float32)
    random.seed(3)
    expected = [function(x).tolist() for _ in range(5)]
    after = random.random()
    random.seed(3)
    assert [step(x).tolist() for _ in range(5)] == expected
    assert random.random() == after


def test_what_lines_change_outside_is_changed_once_by_a_given_up_capture() -> None:
    calls = [0]
    total = aj.zeros(())

    @aj.jit
    def step(x: Any) -> Any:
        calls[0] += 1
        total.add_(x.sum())
        return peeled(x)

    for k in range(1, 6):
        step(aj.arange(20, dtype=aj.float32))
        assert calls == [k]
        assert total.item() == 190.0 * k


def ranked(x: Any, rounds: int) -> tuple[Any, ...]:
    """Python sorts by scores, as a beam search does, and goes on with the best."""
    found: list[float] = []
    for _ in range(rounds):
        x = (x * 1.5).tanh()
        found = sorted([*found, *x.tolist()], reverse=True)[: x.numel()]
        x = x + found[0]
    return tuple(found)


@pytest.mark.parametrize("rounds", (2, 9))
def test_many_digits_are_no_reason_to_compile(rounds: int) -> None:
    """No other call has the same floats, and compiled code rounds some in another way."""
    step = aj.jit(ranked)
    for k in range(6):
        x = aj.randn(4, generator=aj.Generator().manual_seed(k))
        assert step(x, rounds) == pytest.approx(ranked(x, rounds), rel=1e-5)
    is_few = 4 * rounds <= repeated_work.MOST_DIGITS
    assert (step.stats()["captures"] > 0) == is_few
    assert ("digits of" in step.explain()) == (not is_few)


def test_digits_of_state_that_stays_are_compiled() -> None:
    """A table that Python reads anew in every call is the same in every call."""
    table = aj.arange(60.0)

    def anchored(x: Any) -> Any:
        return x * sum(t for t in table.tolist() if t > 30)

    step = aj.jit(anchored)
    for k in range(6):
        x = aj.full((3,), float(k))
        assert bool((step(x) == anchored(x)).all())
    assert step.stats()["captures"] == 1
