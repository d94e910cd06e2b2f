"""Numbers that a step computes: Python's functions and divisions of them raise what Python raises, without a split.

Every function of ``math`` that steps know, at the edges of where it is defined, and divisions by zero: calls give what
they give eagerly, errors included, and one capture serves all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit.jit.traced_math import RULES

EDGES = (1.0, 0.25, 0.0, -1.0, 3.0, -2.0, math.inf, -math.inf, math.nan, 800.0, 0.5, -0.0, 1.5)
DIVISIONS: dict[str, Callable[[float], Any]] = {
    "one over": lambda v: 1.0 / v,
    "over one": lambda v: v / 1.0,
    "of both": lambda v: (v + 1) / (v * v),
    "of ints": lambda v: 1 / int(v) if v == v and abs(v) < math.inf else 0.0,
    "chain": lambda v: math.sqrt(v) / v + math.log(v),
}
FUNCTIONS = {name: getattr(math, name) for name in RULES if hasattr(math, name)}


def _told(function: Callable[..., Any], x: aj.Tensor) -> Any:
    try:
        found = function(x)
    except (ValueError, OverflowError, ZeroDivisionError) as error:
        return type(error), str(error).splitlines()[0]
    return found


@pytest.mark.parametrize("name", sorted({*FUNCTIONS, *DIVISIONS}))
def test_edges(name: str) -> None:
    function = FUNCTIONS.get(name) or DIVISIONS[name]

    def of_sum(x: aj.Tensor) -> Any:
        return function(x.sum().item())

    step = aj.jit(of_sum)
    for value in EDGES:
        x = aj.tensor([value, 0.0], dtype=aj.float64)
        found, wanted = _told(step, x), _told(of_sum, x)
        if isinstance(wanted, float):
            assert found == pytest.approx(wanted, rel=1e-12, nan_ok=True), value
        else:
            assert found == wanted, value
    if name != "of ints":
        assert step.stats()["captures"] == 1
        assert step.stats()["splits"] == 0


def test_an_error_that_the_function_catches_splits() -> None:
    @aj.jit
    def inverse(x: aj.Tensor) -> Any:
        try:
            return 1.0 / x.sum().item()
        except ZeroDivisionError:
            return -1.0

    found = [inverse(aj.tensor([v, 0.0])) for v in (2.0, 0.0, 4.0, 0.0, 2.0)]
    assert found == [0.5, -1.0, 0.25, -1.0, 0.5]


def test_nothing_is_changed_by_a_call_that_fails() -> None:
    weight, kept = aj.tensor([1.0, 2.0]), []

    @aj.jit
    def step(x: aj.Tensor) -> Any:
        rate = 1.0 / x.sum().item()
        weight.sub_(rate * x)
        kept.append(rate)
        return rate

    step(aj.tensor([1.0, 1.0]))
    before = weight.tolist()
    for _ in range(3):
        with pytest.raises(ZeroDivisionError, match="division by zero"):
            step(aj.zeros(2))
        assert weight.tolist() == before and kept == [0.5]
    assert step(aj.tensor([1.0, 3.0])) == 0.25
    assert weight.tolist() == [before[0] - 0.25, before[1] - 0.75]


@pytest.mark.parametrize("shape", [(), (1,), (4,), (2, 2), (3, 5), (17,)])
@pytest.mark.parametrize("dtype", [aj.float32, aj.float64, aj.float16, aj.int64])
def test_short_lists_are_numbers_of_the_step(shape: tuple[int, ...], dtype: aj.dtype) -> None:
    def doubled(x: aj.Tensor) -> Any:
        return (x * 2).tolist(), sum(v * 2.0 for v in (x * 3).flatten().tolist())

    step = aj.jit(doubled)
    for k in range(5):
        x = (aj.arange(math.prod(shape)).reshape(shape) - k).to(dtype)
        assert repr(step(x)) == repr(doubled(x))
    limit = 4 if dtype is aj.int64 else 16
    assert (step.stats()["captures"] == 1) is (math.prod(shape) <= limit)
