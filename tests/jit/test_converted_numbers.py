"""``int(x)`` and ``float(x)`` of tensors and numbers of a step: as in eager mode, and no captures for every value."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from tests.jit.agreement import Program, agree, plain

VALUES = [2.5, -7.75, 1e15, 0.0, 3.0, -0.25]
DTYPES = [aj.float64, aj.float32, aj.float16, aj.int64, aj.uint8]


def _uses(number: Any) -> list[Any]:
    """What Python does with a number without a look at its digits, and what it is."""
    return [number, number * 2 - 1, -number, abs(number), type(number) is int, [number, {"n": number}]]


def _conversions(x: aj.Tensor) -> list[Any]:
    element = x.sum()
    numbers = [
        float(element),
        int(element),
        float(int(element)),
        int(float(element)),
        int(element.item()),
        float(len(x)),
    ]
    return [*map(_uses, numbers), x * float(element), x / (1 + abs(int(element)))]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_numbers_of_tensors_are_numbers_of_the_step(dtype: aj.dtype) -> None:
    calls = [(aj.tensor([value if dtype.is_floating_point else abs(int(value)) % 200]).to(dtype),) for value in VALUES]
    if dtype is aj.float16:
        calls = [call for call in calls if call[0].isfinite().all()]
    agree(lambda: Program(_conversions, calls), captures=1)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e30, 2.0**63, -(2.0**63)])
def test_floats_without_an_int_of_64_bits(bad: float) -> None:
    ways: list[Callable[[aj.Tensor], int]] = [
        lambda t: int(t),
        lambda t: round(float(t)),
        lambda t: math.floor(t.item()),
        lambda t: int(float(t)) + 1,
    ]

    def whole(x: aj.Tensor, way: int) -> Any:
        try:
            return x * 0, ways[way](x.sum())
        except (ValueError, OverflowError) as error:
            return type(error), str(error)

    step = aj.jit(whole)
    for way in range(len(ways)):
        for value in (1.5, bad, -2.5, bad):
            x = aj.tensor([value], dtype=aj.float64)
            assert str(plain(step(x, way))) == str(plain(whole(x, way)))


def test_what_has_no_single_value_or_its_own_conversion() -> None:
    class Percent(aj.Tensor):
        def __float__(self) -> float:
            return 100 * super().__float__()

    agree(lambda: Program(lambda x: x * float(aj.Tensor.as_subclass(x, Percent)[0]), [(aj.tensor([2.0]),)]))
    for function in (lambda x: int(x), lambda x: float(x)):
        for x in (aj.ones(2), aj.ones(0)):
            raised = []
            for run in (function, aj.jit(function)):
                with pytest.raises((ValueError, RuntimeError)) as error:
                    run(x)
                raised.append(error.type)
            assert raised[0] is raised[1]
