"""``explain`` says of each reason what can be done about it, and nothing of reasons that hold once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj


def ordered(x: aj.Tensor) -> Any:
    return aj.from_numpy(np.sort(x.numpy())) + x


def test_arrays_that_python_asks_for_are_told() -> None:
    step = aj.jit(ordered)
    for k in range(5):
        step(aj.arange(4.0) * k)
    page = str(step.explain())
    first, *rest = page.splitlines()
    assert first.startswith("ordered: captured ") and "Python asks for all numbers of f32[4] at " in first
    assert "use a function of autojit's there, or ask outside of the step" in page
    assert sum("split      all numbers of f32[4] at test_reasons_told.py" in line for line in rest) >= 1


def appends(seen: list[float]) -> Callable[[aj.Tensor], aj.Tensor]:
    def step(x: aj.Tensor) -> aj.Tensor:
        seen.append(float(x.sum()))
        return x

    return step


def assigns(seen: list[float]) -> Callable[[aj.Tensor], aj.Tensor]:
    count = 0

    def step(x: aj.Tensor) -> aj.Tensor:
        nonlocal count
        count += 1
        return x * count

    return step


@pytest.mark.parametrize("made", [appends, assigns])
def test_what_every_call_does_from_then_on_asks_for_nothing(made: Callable[..., Any]) -> None:
    step = aj.jit(made([]))
    for k in range(4):
        step(aj.full((3,), float(k)))
    page = str(step.explain())
    assert "every call does it from then on: nothing to do" in page and "to avoid it" not in page
    assert not any(line.rstrip().endswith(":") for line in page.splitlines())


def test_reasons_that_last_ask_for_a_mend() -> None:
    step = aj.jit(lambda x, mode: x * len(mode))
    for mode in ("a", "bc", "def"):
        step(aj.ones(2), mode)
    assert "to avoid it: pass changing values as tensors" in str(step.explain())
