"""A container that a step changes or hands on is guarded as itself: an equal one that replaces it is another."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import autojit as aj

Step = Callable[[Any, Any], Any]


def _assigns_an_item(at: Any, x: Any) -> Any:
    at.numbers[0] = at.numbers[0] + 1
    return x * at.numbers[0]


STEPS: dict[str, Step] = {
    "appends": lambda at, x: (at.empty.append(1), x * 1)[1],
    "appends numbers": lambda at, x: (at.numbers.append(x.sum().item()), x * 1)[1],
    "extends": lambda at, x: (at.numbers.extend([3.0]), x * len(at.numbers))[1],
    "assigns an item": _assigns_an_item,
    "appends inside a tuple": lambda at, x: (at.pair[1].append(4.0), x * 1)[1],
    "returns a list": lambda at, x: (at.numbers, x * 1),
    "returns an array": lambda at, x: (at.array, x * 1),
    "reads": lambda at, x: x * at.numbers[0] + sum(at.numbers),
    "changes an array": lambda at, x: (aj.from_numpy(at.array).add_(x.sum()), x * 1)[1],
}


def _renew(at: Any, k: int, kept: list[Any]) -> None:
    """Equal containers, where equal means what the old ones hold by now."""
    kept.append(SimpleNamespace(**vars(at)))
    if k % 2:  # the old ones are emptied first, so that new empty ones equal them
        at.empty.clear()
        at.numbers[:] = [1.0]
        at.pair[1].clear()
        at.array[:] = 0
    at.empty, at.numbers, at.array = list(at.empty), list(at.numbers), at.array.copy()
    at.pair = (1, list(at.pair[1]))


def _program(step: Step, jit: Callable[[Any], Any]) -> list[Any]:
    at = SimpleNamespace(empty=[], numbers=[1.0], pair=(1, [2.0]), array=np.zeros(2))
    run = jit(lambda x: step(at, x))
    found: list[Any] = []
    kept: list[Any] = []
    for k in range(6):
        result = run(aj.ones(2, dtype=aj.float64))
        shown = result[0] if isinstance(result, tuple) else None
        found.append((shown is at.numbers, shown is at.array))
        found.append((result[1] if isinstance(result, tuple) else result).tolist())
        _renew(at, k, kept)
        found += [(list(x.empty), list(x.numbers), x.pair[1][:], x.array.tolist()) for x in (*kept, at)]
    return found


@pytest.mark.parametrize("name", STEPS)
def test_a_container_that_was_replaced_by_an_equal_one_is_left_alone(name: str) -> None:
    """Seed 3004326: the list that a step appends to was cleared, and replaced by an empty one."""
    assert _program(STEPS[name], aj.jit) == _program(STEPS[name], lambda f: f)


def test_an_equal_container_that_is_only_read_needs_no_other_capture() -> None:
    at = SimpleNamespace(numbers=[1.0, 2.0])
    step = aj.jit(lambda x: x * at.numbers[0] + at.numbers[1])
    for _ in range(5):
        at.numbers = [1.0, 2.0]
        assert step(aj.ones(1)).item() == 3
    assert step.stats()["captures"] == 1
