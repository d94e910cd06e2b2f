"""Tensors outside that share memory when a step is captured, or later, and no longer: every call as in eager mode."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from tests.covering import covering

STEPS = {
    "one is changed": "b.mul_(2)",
    "both are": "a.add_(1); b.mul_(3)",
    "by a view": "a[0] = 5; b[1:].mul_(2)",
    "by .data": "a.data.add_(1); b.detach().mul_(3)",
    "decided": "b.mul_(2 if a.sum() > 3 else 3)",
    "decided by the other": "b.add_(1)\n    if b.sum() > 8:\n        a.mul_(0.5)",
    "swapped": "t = a * 2; a.copy_(b); b.copy_(t)",
    "an optimiser": "optimiser.zero_grad(); (w * a).sum().backward(); optimiser.step(); b.add_(w.detach())",
    "read only": "pass",
}
BETWEEN: dict[str, Callable[[Any, Any, Any], None]] = {
    "a gets b's": lambda a, b, big: setattr(a, "data", b.data),
    "b gets a's": lambda a, b, big: setattr(b, "data", a.data),
    "a gets its own": lambda a, b, big: setattr(a, "data", aj.ones(2) * 2),
    "b gets its own": lambda a, b, big: setattr(b, "data", aj.ones(2) * 3),
    "a part of more": lambda a, b, big: setattr(a, "data", big[:2]),
    "an overlapping one": lambda a, b, big: setattr(b, "data", big[1:3]),
    "the same part": lambda a, b, big: setattr(b, "data", big[:2]),
    "another part": lambda a, b, big: setattr(b, "data", big[2:]),
    "of an array": lambda a, b, big: setattr(a, "data", aj.from_numpy(np.ones(2, np.float32))),
    "set_": lambda a, b, big: a.set_(b.detach()),
    "nothing": lambda a, b, big: None,
}


def _seen(body: str, between: list[str], jit: Callable[[Any], Any]) -> list[Any]:
    a, b, big = aj.ones(2), aj.ones(2) * 2, aj.arange(4.0)
    w = aj.nn.Parameter(aj.ones(2))
    names: dict[str, Any] = {"a": a, "b": b, "w": w, "optimiser": aj.optim.SGD([w], lr=0.5), "__name__": __name__}
    exec(f"def step():\n    {body}\n    return a * 1, b * 1, w.detach() * 1", names)
    step, found = jit(names["step"]), []
    for change in between:
        BETWEEN[change](a, b, big)
        found.append([t.tolist() for t in (*step(), a, b, big, w)])
    return found


@covering("first, second", BETWEEN, BETWEEN, every=2)
def test_memory_that_is_given_between_calls(first: str, second: str) -> None:
    for body in STEPS.values():
        between = [first, "nothing", second, "nothing", first, "nothing"]
        assert _seen(body, between, aj.jit) == _seen(body, between, lambda f: f), body


@pytest.mark.parametrize("seed", range(40))
def test_random_gifts(seed: int) -> None:
    rng = random.Random(f"shared {seed}")
    between = [rng.choice([*BETWEEN, "nothing"]) for _ in range(10)]
    body = "; ".join(rng.choice([STEPS[k] for k in ("one is changed", "both are", "by a view", "by .data", "swapped")])
                     for _ in range(2))  # fmt: skip
    assert _seen(body, between, aj.jit) == _seen(body, between, lambda f: f), (body, between)


def test_memory_that_stays_shared_needs_one_capture() -> None:
    a, b = aj.ones(2), aj.ones(2)
    a.data = b.data

    @aj.jit
    def step() -> Any:
        b.mul_(2)
        return a * 1

    for k in range(8):
        assert step().tolist() == [2.0 ** (k + 1)] * 2
    assert step.stats()["captures"] == 1
    assert step.stats()["native_calls"] >= 6
