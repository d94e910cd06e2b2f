"""Where the axes of a subscript go does not depend on the mode: a tensor without axes picks as a number does.

Its axis is gone before it is asked whether the index tensors with axes stand side by side.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

import autojit as aj

ITEMS: tuple[Any, ...] = (0, [1, 0, 1], slice(1, None), None)  # a number stands for a tensor without axes


def subscripts() -> list[tuple[Any, ...]]:
    found = [items for length in (2, 3, 4) for items in product(ITEMS, repeat=length)]
    return [items for items in found if 0 in items and [1, 0, 1] in items and sum(i is not None for i in items) <= 3]


def test_a_tensor_without_axes_picks_as_a_number_does_eager_and_compiled() -> None:
    x = aj.arange(24.0).reshape(2, 3, 4)
    wanted = [x[items] for items in subscripts()]
    index, picks = aj.tensor([1, 0, 1]), aj.tensor(0)

    def taken(x: Any, index: Any, picks: Any) -> list[Any]:
        kept = {0: picks}
        return [
            x[tuple(index if isinstance(i, list) else i if isinstance(i, slice) else kept.get(i) for i in items)]
            for items in subscripts()
        ]

    for run in (taken, aj.jit(taken)):
        for items, y, z in zip(subscripts(), wanted, run(x, index, picks), strict=True):
            assert y.shape == z.shape, items
            np.testing.assert_array_equal(z.numpy(), y.numpy(), str(items))


def test_places_picked_so_are_written_as_by_numbers() -> None:
    values = aj.arange(1.0, 5.0)

    def written(picks: Any) -> list[Any]:
        found = []
        for items in subscripts():
            key = tuple(picks if i == 0 and isinstance(i, int) else i for i in items)
            x = aj.zeros(2, 3, 4)
            shape = aj.zeros(2, 3, 4)[items].shape
            x[key] = values[: shape[-1]] if shape[-1] <= 4 else 1.0
            found.append(x)
        return found

    for y, z in zip(written(0), aj.jit(written)(aj.tensor(0)), strict=True):
        np.testing.assert_array_equal(z.numpy(), y.numpy())
