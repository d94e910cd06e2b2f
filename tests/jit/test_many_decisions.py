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
