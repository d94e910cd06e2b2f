"""Items of arrays and buffers that exist outside: what a step assigns to them is assigned at every call."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj

MADE: dict[str, Callable[[], Any]] = {
    "floats": lambda: np.zeros(3),
    "integers": lambda: np.zeros(3, np.int64),
    "a view": lambda: np.zeros(6)[::2],
    "bytes": lambda: bytearray(3),
    "memory": lambda: memoryview(bytearray(3)),
    "array": lambda: array("d", [0.0, 0.0, 0.0]),
    "deque": lambda: deque([0, 0, 0]),
}
WRITES = {
    "a number": "held[0] = 5",
    "what is there": "held[0] = 0",
    "a number of the step": "held[int(x.shape[0]) - 2] = int(x[0].item())",
    "twice": "held[0] = 1; held[0] = 2",
    "after it was read": "x = x * float(held[0]); held[0] = 3",
    "and reads it": "held[0] = 3; x = x * float(held[0])",
    "an item": "held[0] = held[1] + 1",
}
OF_ARRAYS = {
    "all": "held[:] = 0",
    "a tensor": "held[1] = x.sum()",
    "a row": "held[:3] = x",
    "some": "held[[0, 1]] = [1, 2]",
    "by a mask": "held[np.array([True, False, True])] = 4",
    "every one": "held[...] = x.sum().item()",
    "filled": "held.fill(0)",
    "sorted": "held.sort()",
    "in place": "held *= 0",
    "added in place": "held += 1",
    "an item in place": "held[0] += 1",
}


def _check(made: Callable[[], Any], statement: str) -> None:
    def shown(jit: Callable[[Any], Any]) -> list[Any]:
        held, found = made(), []
        names: dict[str, Any] = {"held": held, "np": np, "__name__": __name__}
        exec(f"def step(x):\n    global held\n    {statement}\n    return x * 1", names)
        step = jit(names["step"])
        for k in range(6):
            found.append(step(aj.tensor([2.0 + k, 1.0, 3.0])).tolist())
            found.append(list(held))
            if k in (1, 3):
                held[k - 1] = 7
        return found

    assert shown(aj.jit) == shown(lambda function: function)


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("kind", MADE)
def test_every_call_assigns(kind: str, write: str) -> None:
    _check(MADE[kind], WRITES[write])


@pytest.mark.parametrize("write", OF_ARRAYS)
@pytest.mark.parametrize("kind", ["floats", "a view"])
def test_every_call_changes_an_array(kind: str, write: str) -> None:
    _check(MADE[kind], OF_ARRAYS[write])


def test_a_buffer_that_goes_round_costs_one_capture() -> None:
    rewards, place = np.zeros(8), {"next": 0}

    @aj.jit
    def step(x: Any) -> Any:
        rewards[3] = x.sum().item()
        place["next"] += 1
        return x * 2

    for k in range(6):
        step(aj.ones(2) * k)
        assert rewards[3] == 2 * k
    assert step.stats()["captures"] <= 2


@pytest.mark.parametrize("look", ["x * held", "x * float(held[0])", "x * float(seen[0])", "x * shared"])
def test_a_step_that_looks_at_what_it_has_written_runs_line_by_line(look: str) -> None:
    def shown(jit: Callable[[Any], Any]) -> list[Any]:
        held, found = np.zeros(3), []
        names: dict[str, Any] = {"held": held, "seen": held[:2], "shared": aj.from_numpy(held), "__name__": __name__}
        exec(f"def step(x):\n    held[0] = x.sum().item()\n    return {look}", names)
        step = jit(names["step"])
        for k in range(3):
            found.append((step(aj.ones(3, dtype=aj.float64) * k).tolist(), held.tolist()))
        if jit is aj.jit:
            assert "also looks at it" in step.explain()
        return found

    assert shown(aj.jit) == shown(lambda function: function)
