"""What a call draws is drawn once, whatever its captures come to.

An attempt at a call may end anywhere in the function: sizes turn out to be fixed, an attribute is asked for first, a
loop runs turn by turn, memory is shared, a number is too wide. The next attempt, or the call line by line, is given
what this one has drawn. Each program draws before that happens; results, and what the generators give afterwards, are
those of eager mode.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj

Step = Callable[[aj.Tensor], Any]
ROWS = [None if k % 3 else k for k in range(12)]


def sizes_that_are_counted() -> Step:
    """Values for as many places as a mask has, whose number Python knows besides."""

    def step(x: aj.Tensor) -> aj.Tensor:
        rows = random.sample(ROWS, 6)
        mask = aj.tensor([row is not None for row in rows])
        found = aj.zeros(6)
        found[mask] = aj.stack([x[0] * row for row in rows if row is not None])
        return found

    return step


def sizes_of_an_argument() -> Step:
    def step(x: aj.Tensor) -> aj.Tensor:
        scale = np.random.rand()
        return x.reshape(-1, 1 if len(x) % 2 else 2).sum(0) * scale + sum(range(x.shape[0]))

    return step


def an_error_of_the_users() -> Step:
    def step(x: aj.Tensor) -> Any:
        scale = random.random()
        return (x * scale).reshape(len(x) + 1)

    return step


def a_number_that_is_too_wide() -> Step:
    def step(x: aj.Tensor) -> Any:
        wide = (random.randrange(1 << 62, 1 << 63)) * 16
        return x * float(wide % 7), wide

    return step


def an_attribute_that_is_asked_for() -> Step:
    def step(x: aj.Tensor) -> aj.Tensor:
        scale = random.random()
        return x * scale * getattr(x, "weight", 1.0)

    return step


def memory_that_is_shared() -> Step:
    def step(x: aj.Tensor) -> aj.Tensor:
        scale = random.random()
        view = x[:2]
        x.mul_(scale)
        return view + x[0]

    return step


def an_item_of_an_iterator_and_counted_sizes() -> Step:
    items = iter(range(1, 1000))

    def step(x: aj.Tensor) -> aj.Tensor:
        item = next(items)
        found = aj.zeros(4)
        found[aj.tensor([item % 2 == 0, True, False, True])] = x[: 2 + (item % 2 == 0)].detach()
        return found * item

    return step


PROGRAMS = [
    sizes_that_are_counted,
    sizes_of_an_argument,
    an_error_of_the_users,
    a_number_that_is_too_wide,
    an_attribute_that_is_asked_for,
    memory_that_is_shared,
    an_item_of_an_iterator_and_counted_sizes,
]


def _calls(step: Step) -> list[Any]:
    found: list[Any] = []
    for size in (4, 4, 6, 5, 7, 4):
        try:
            result = step(aj.arange(1.0, size + 1.0))
        except Exception as error:
            found.append(type(error).__name__)
        else:
            for part in result if type(result) is tuple else (result,):
                found += part.tolist() if isinstance(part, aj.Tensor) else [part]
        found += [random.random(), np.random.rand()]
    return found


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_call_draws_once_however_often_it_begins_again(program: Callable[[], Step]) -> None:
    found = []
    for jit in (lambda f: f, aj.jit):
        random.seed(5)
        np.random.seed(5)
        found.append(_calls(jit(program())))
    eager, compiled = found
    assert compiled == [x if type(x) is str else pytest.approx(x, rel=1e-5) for x in eager]
