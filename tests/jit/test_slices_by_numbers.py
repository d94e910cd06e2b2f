"""Subscripts whose bounds are ints that count: a cache is written and read at a position.

Law: a step gives what eager mode gives, wherever the position is, and as long as it is in the axis a position that
counts costs no captures: slices whose bounds move together have a length, as plain ones have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj

LENGTH = 12


def written(x: Any, index: Any, value: Any) -> Any:
    made = x.clone()
    made[index] = value
    return made


SLICES: dict[str, Callable[[Any, int], Any]] = {
    "read": lambda x, p: x[p : p + 3],
    "read back": lambda x, p: x[p - 2 : p + 1],
    "up to": lambda x, p: x[: p + 1].sum(0),
    "from": lambda x, p: x[p:].sum(0),
    "of two axes": lambda x, p: x[p : p + 2, 1:],
    "a row of it": lambda x, p: x[p : p + 2][1],
    "moved bounds": lambda x, p: x[(p + 1) - 1 : 2 + p],
    "shaped by the difference": lambda x, p: x[p : p + 4].reshape(((p + 4) - p) // 2, 2, -1),
    "written": lambda x, p: written(x, slice(p, p + 2), x[:2]),
    "written with a number": lambda x, p: written(x, slice(p, p + 2), 7.0),
    "added to": lambda x, p: written(x, slice(p, p + 1), x[p : p + 1] + x[:1]),
    "added to a plain one": lambda x, p: x[p : p + 3] * x[:3] + x[3:6],
    "attended to": lambda x, p: (x[p : p + 1] @ x[: p + 1].T).softmax(-1) @ x[: p + 1],
    "two of them": lambda x, p: x[p : p + 2] * x[p + 1 : p + 3],
    "through narrow": lambda x, p: x.narrow(0, p, 2),
}


@pytest.mark.parametrize("name", SLICES)
def test_slices_at_a_position_that_counts(name: str) -> None:
    function = SLICES[name]
    step = aj.jit(function)
    x = aj.arange(36.0).reshape(LENGTH, 3)
    for position in range(LENGTH - 3):
        assert step(x, position).tolist() == function(x, position).tolist(), position
    captures = step.stats()["captures"]
    assert captures <= 4, step.explain()
    counted = name in ("through narrow",)
    assert counted or step.stats()["splits"] == 0, step.explain()
    for position in (LENGTH - 2, LENGTH - 1, LENGTH, LENGTH + 1, LENGTH + 5, -1, -3, 2):
        found = []
        for run in (function, step):
            try:
                found.append(run(x, position).tolist())
            except (RuntimeError, IndexError):
                found.append("an error")
        assert found[0] == found[1], position


def test_a_cache_costs_three_captures_and_one_for_other_lengths() -> None:
    cache = aj.zeros(2, 24, 3)

    def attend(x: Any, position: int) -> Any:
        rows, count = x.shape[:2]
        cache[:rows, position : position + count] = x
        known = cache[:rows, : position + count]
        scores = x @ known.mT
        if count > 1:
            hidden = aj.full((count, count), float("-inf")).triu(1)
            scores = scores + aj.hstack([aj.zeros((count, position)), hidden])
        return scores.softmax(-1) @ known

    def run(function: Callable[..., Any]) -> list[Any]:
        cache.zero_()
        generator = aj.Generator().manual_seed(0)
        found = []
        for lengths in ((4, 1, 1, 1, 1, 1), (5, 1, 1, 1), (3, 3, 3, 4, 5, 1, 1)):
            position = 0
            for length in lengths:
                found.append(function(aj.rand(2, length, 3, generator=generator), position))
                position += length
        return found

    step = aj.jit(attend)
    for a, b in zip(run(attend), run(step), strict=True):
        aj.testing.assert_close(a, b)
    assert step.stats()["captures"] <= 6, step.explain()


def test_slices_of_open_length_are_written_to_an_axis_of_fixed_length() -> None:
    cache = aj.zeros(9, 2)

    def put(x: Any) -> Any:
        cache[: len(x)] = x
        return cache[: len(x)].sum(), cache.sum()

    step = aj.jit(put)
    for length in (3, 4, 5, 9, 2, 7):
        x = aj.ones(length, 2) * length
        assert [t.tolist() for t in put(x)] == [t.tolist() for t in step(x)]
    assert step.stats()["captures"] == 2, step.explain()
    with pytest.raises(RuntimeError):
        step(aj.ones(10, 2))
