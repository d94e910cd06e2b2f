"""How long a container outside is may change at every call: the length is an input of the step, as a number drawn is.

Each program asks for the length of something that its own calls, or others, change; eager and compiled calls give the
same, and what changes at every call does not capture at every call.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj

Jit = Callable[[Callable[..., Any]], Any]
CALLS = 60
MOST_CAPTURES = 12  # four until a length counts as changing, and the ways that the decisions go


def every_fifth(jit: Jit) -> tuple[Any, Callable[[int], Any]]:
    losses: list[Any] = []

    def step(x: aj.Tensor) -> aj.Tensor:
        y = x * 2
        losses.append(y.sum())
        return y - 1 if len(losses) % 5 == 0 else y

    return (compiled := jit(step)), lambda k: compiled(aj.ones(2) * k)


def among_random_decisions(jit: Jit) -> tuple[Any, Callable[[int], Any]]:
    """More ways than are captured: most calls run line by line, given what has been drawn for them."""
    losses: list[Any] = []

    def step(x: aj.Tensor) -> aj.Tensor:
        for k in range(8):
            if random.random() < 0.5:
                x = x + k
        losses.append(x.sum())
        return x - len(losses) if len(losses) % 5 == 0 else x

    return (compiled := jit(step)), lambda k: compiled(aj.ones(2) * k)


def beside_an_iterator_that_ends(jit: Jit) -> tuple[Any, Callable[[int], Any]]:
    """Calls that find nothing in it run line by line, given the length."""
    losses: list[Any] = []
    items = iter(range(20))

    def step(x: aj.Tensor) -> aj.Tensor:
        losses.append(x.sum())
        if len(losses) % 5 == 0:
            x = x - len(losses)
        try:
            return x + next(items)
        except StopIteration:
            return x

    return (compiled := jit(step)), lambda k: compiled(aj.ones(2) * k)


def lengths_that_are_computed_with(jit: Jit) -> tuple[Any, Callable[[int], Any]]:
    seen: deque[int] = deque()

    def step(x: aj.Tensor) -> aj.Tensor:
        before = len(seen)
        seen.append(1)
        return x * len(seen) + before

    return (compiled := jit(step)), lambda k: compiled(aj.ones(2) * k)


def a_list_that_is_emptied(jit: Jit) -> tuple[Any, Callable[[int], Any]]:
    kept: list[Any] = []

    def step(x: aj.Tensor) -> aj.Tensor:
        kept.append(x)
        if len(kept) < 7:
            return x
        del kept[:]
        return x + 1

    return (compiled := jit(step)), lambda k: compiled(aj.ones(2) * k)


def a_buffer_that_others_fill(jit: Jit) -> tuple[Any, Callable[[int], Any]]:
    memory: list[int] = []

    def step(x: aj.Tensor) -> Any:
        if len(memory) < 20:
            return None
        return x * random.random()

    compiled = jit(step)

    def call(k: int) -> Any:
        memory.append(k)
        return compiled(aj.ones(2) * k)

    return compiled, call


def another_list_in_its_place(jit: Jit) -> tuple[Any, Callable[[int], Any]]:
    holder: dict[str, list[int]] = {"items": []}

    def step(x: aj.Tensor) -> aj.Tensor:
        holder["items"].append(1)
        return x + (len(holder["items"]) > 3)

    compiled = jit(step)

    def call(k: int) -> Any:
        if k % 11 == 10:
            holder["items"] = [0] * (k % 3)
        return compiled(aj.ones(2) * k)

    return compiled, call


def digits_of_a_length(jit: Jit) -> tuple[Any, Callable[[int], Any]]:
    items: list[int] = []

    def step(x: aj.Tensor) -> Any:
        items.append(1)
        return [x * k for k in range(len(items) % 4)], items.__len__()

    return (compiled := jit(step)), lambda k: compiled(aj.ones(2) * k)


PROGRAMS = {
    program.__name__: (program, is_bounded)
    for program, is_bounded in (
        (every_fifth, True),
        (among_random_decisions, False),
        (beside_an_iterator_that_ends, False),
        (lengths_that_are_computed_with, True),
        (a_list_that_is_emptied, True),
        (a_buffer_that_others_fill, True),
        (another_list_in_its_place, False),
        (digits_of_a_length, False),
    )
}


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value.tolist() if isinstance(value, aj.Tensor) else value


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_length_that_changes_is_an_input(name: str) -> None:
    program, is_bounded = PROGRAMS[name]
    found = []
    step: Any = None
    for jit in (lambda f: f, aj.jit):
        random.seed(3)
        step, call = program(jit)
        found.append([(_plain(call(k)), random.random()) for k in range(CALLS)])
    assert found[0] == found[1]
    if is_bounded:
        assert step.stats()["captures"] <= MOST_CAPTURES
        assert step.stats()["native_calls"] > CALLS // 2


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_call_line_by_line_is_given_the_length_and_finds_the_container_as_it_is(name: str) -> None:
    """Comparison with eager mode runs every call both ways, with the same draws."""
    program, _ = PROGRAMS[name]
    found = []
    for jit in (lambda f: f, lambda f: aj.jit(f, verify="always")):
        random.seed(3)
        _, call = program(jit)
        found.append([(_plain(call(k)), random.random()) for k in range(30)])
    assert found[0] == found[1]
