"""Lists that a step makes and shuffles: in every call the order that eager mode has, drawn from the same generator."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj

GENERATORS: dict[str, Callable[[], Any]] = {
    "random": lambda: random,
    "Random": lambda: random.Random(0),
    "numpy.random": lambda: np.random,
    "RandomState": lambda: np.random.RandomState(0),
    "Generator": lambda: np.random.default_rng(0),
}


def _rows(x: aj.Tensor, order: list[int]) -> Any:
    return x[order], order[0]


def _batches(x: aj.Tensor, order: list[int]) -> Any:
    return [x[order[k : k + 3]].sum(0) for k in range(0, len(order), 3)]


def _changed(x: aj.Tensor, order: list[int]) -> Any:
    last = order.pop()
    order.append(0)
    return x[aj.tensor(order)], last


@pytest.mark.parametrize("use", [_rows, _batches, _changed])
@pytest.mark.parametrize("kind", GENERATORS)
def test_places_are_shuffled_natively_as_in_eager_mode(kind: str, use: Callable[..., Any]) -> None:
    def outcomes(wrap: Callable[[Any], Any]) -> Any:
        generator = GENERATORS[kind]()
        random.seed(1)
        np.random.seed(1)

        def step(x: aj.Tensor) -> Any:
            order = list(range(len(x)))
            generator.shuffle(order)
            return use(x, order)

        compiled = wrap(step)
        found = [str(compiled(aj.arange(12.0).reshape(6, 2))) for _ in range(5)]
        rest = list(range(20))
        generator.shuffle(rest)
        return found, rest, compiled

    wanted, found = outcomes(lambda function: function), outcomes(aj.jit)
    assert found[:2] == wanted[:2]
    assert found[2].stats()["captures"] == 1


@pytest.mark.parametrize("is_outside", [False, True])
@pytest.mark.parametrize("items", ["ab", [3, 1, 2], range(5, 9)], ids=str)
def test_other_lists_have_the_order_of_eager_mode(items: Any, is_outside: bool) -> None:
    outside = list(items)

    def outcomes(wrap: Callable[[Any], Any]) -> list[Any]:
        generator = random.Random(2)
        outside[:] = items

        def step(x: aj.Tensor) -> Any:
            inside = list(items)
            generator.shuffle(inside)
            if is_outside:
                generator.shuffle(outside)
            return (x * 2).tolist(), inside

        compiled = wrap(step)
        return [(compiled(aj.ones(1)), list(outside)) for _ in range(8)]

    assert outcomes(aj.jit) == outcomes(lambda function: function)
