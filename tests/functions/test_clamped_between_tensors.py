"""``clamp`` with bounds that are tensors: who has the derivative where they meet, cross, or cannot be compared."""

from __future__ import annotations

import itertools
import math

import pytest

import autojit as aj

BOUNDS = (0.0, 1.0, math.nan)
GRID = list(itertools.product((-1.0, 0.0, 0.5, 1.0, 2.0, math.nan), BOUNDS, BOUNDS))


def shares(x: float, low: float, high: float) -> tuple[float, float, float]:
    """What ``x``, ``low`` and ``high`` have of a cotangent in PyTorch."""
    shared = 0.5 if low < high else 0.0
    of_x = 0.0 if x < low or x > high else 0.5 if shared and x in (low, high) else 1.0
    of_low = 1.0 if x < low <= high else shared * (x == low)
    of_high = 1.0 if low > high or (x > high and low <= high) else shared * (x == high)
    return of_x, of_low, of_high


def operands() -> list[aj.Tensor]:
    return [aj.tensor(column, dtype=aj.float64, requires_grad=True) for column in zip(*GRID, strict=True)]


@pytest.mark.parametrize("is_compiled", [False, True])
def test_gradients_are_shared_as_in_torch(is_compiled: bool) -> None:
    call = aj.jit(aj.clamp) if is_compiled else aj.clamp
    for _ in range(3):
        given = operands()
        found = call(*given)
        found.backward(aj.ones_like(found))
        expected = zip(*(shares(*row) for row in GRID), strict=True)
        assert [t.grad.tolist() for t in given] == [list(column) for column in expected]


def test_tangents_are_those_of_the_gradients() -> None:
    given = operands()
    for place in range(3):
        tangents = [aj.ones_like(t) if k == place else aj.zeros_like(t) for k, t in enumerate(given)]
        _, found = aj.func.jvp(aj.clamp, tuple(t.detach() for t in given), tuple(tangents))
        assert found.tolist() == [shares(*row)[place] for row in GRID]


def test_what_was_clamped_is_between_the_bounds() -> None:
    for (x, low, high), found in zip(GRID, aj.clamp(*operands()).tolist(), strict=True):
        expected = math.nan if math.isnan(x + low + high) else min(max(x, low), high)
        assert found == expected or (math.isnan(found) and math.isnan(expected))


@pytest.mark.parametrize("dtype", [aj.float16, aj.bfloat16, aj.int32, aj.uint8])
@pytest.mark.parametrize("is_compiled", [False, True])
def test_every_kind_of_numbers_is_clamped(dtype: aj.dtype, is_compiled: bool) -> None:
    call = aj.jit(aj.clamp) if is_compiled else aj.clamp
    x, low, high = (aj.tensor(v).to(dtype) for v in ([[0.0], [3.0], [9.0]], [1.0, 2.0], [[4.0]]))
    assert call(x, low, high).tolist() == [[1, 2], [3, 3], [4, 4]]
