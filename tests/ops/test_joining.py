from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autojit.ops import (
    chunk,
    concatenate,
    expand,
    flatten,
    moveaxis,
    narrow,
    repeat,
    repeat_interleave,
    roll,
    select,
    split,
    squeeze,
    stack,
    tensor_split,
    tile,
    transpose,
    unbind,
    unflatten,
    unsqueeze,
)  # fmt: skip
from tests.ops.running import normal, record, run

X = normal(4, 1, 6)
Y = normal(4, 2, 6, seed=1)


@pytest.mark.parametrize(
    ("function", "reference"),
    [
        (lambda x: squeeze(x), lambda x: x.squeeze()),
        (lambda x: squeeze(x, (0, 1)), lambda x: x.squeeze(1)),
        (lambda x: unsqueeze(x, -1), lambda x: x[..., None]),
        (lambda x: flatten(x, 1), lambda x: x.reshape(4, 6)),
        (lambda x: unflatten(x, -1, (2, -1)), lambda x: x.reshape(4, 1, 2, 3)),
        (lambda x: transpose(x, 0, -1), lambda x: x.swapaxes(0, -1)),
        (lambda x: moveaxis(x, (0, 1), (-1, 0)), lambda x: np.moveaxis(x, (0, 1), (-1, 0))),
        (lambda x: select(x, 2, -2), lambda x: x[:, :, -2]),
        (lambda x: narrow(x, 0, -3, 2), lambda x: x[1:3]),
        (lambda x: expand(x, (2, -1, 5, 6)), lambda x: np.broadcast_to(x, (2, 4, 5, 6))),
        (lambda x: tile(x, (2, 3)), lambda x: np.tile(x, (2, 3))),
        (lambda x: repeat(x, (2, 1, 3, 1)), lambda x: np.tile(x, (2, 1, 3, 1))),
        (lambda x: repeat_interleave(x, 3, 2), lambda x: np.repeat(x, 3, 2)),
        (lambda x: repeat_interleave(x, 2), lambda x: np.repeat(x, 2)),
        (lambda x: roll(x, (1, -8), (0, 2)), lambda x: np.roll(x, (1, -8), (0, 2))),
        (lambda x: roll(x, 7), lambda x: np.roll(x, 7)),
    ],
)
def test_shape_functions_agree_with_numpy(function: Callable[..., Any], reference: Callable[..., Any]) -> None:
    np.testing.assert_array_equal(run(function, X), reference(X))


def test_joins_agree_with_numpy() -> None:
    np.testing.assert_array_equal(run(lambda x, y: concatenate([x, y, x], 1), X, Y), np.concatenate([X, Y, X], 1))
    np.testing.assert_array_equal(run(lambda y: stack([y, y], -1), Y), np.stack([Y, Y], -1))


@pytest.mark.parametrize(
    ("function", "lengths"),
    [
        (lambda x: split(x, 4, 2), [4, 2]),
        (lambda x: split(x, [1, 0, 5], 2), [1, 0, 5]),
        (lambda x: chunk(x, 4, 2), [2, 2, 2]),
        (lambda x: tensor_split(x, 4, 2), [2, 2, 1, 1]),
        (lambda x: tensor_split(x, [1, 4], 2), [1, 3, 2]),
    ],
)
def test_pieces_join_to_the_whole(function: Callable[..., Any], lengths: list[int]) -> None:
    pieces = run(function, X)
    assert [p.shape[2] for p in pieces] == lengths
    np.testing.assert_array_equal(np.concatenate(pieces, 2), X)


def test_unbind_drops_the_axis() -> None:
    for found, expected in zip(run(lambda x: unbind(x, 2), X), np.moveaxis(X, 2, 0), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (lambda x: split(x, [1, 2], 2), RuntimeError),
        (lambda x: narrow(x, 2, 4, 3), RuntimeError),
        (lambda x: select(x, 2, 6), IndexError),
        (lambda x: concatenate([]), ValueError),
        (lambda x: stack([x, flatten(x)]), RuntimeError),
        (lambda x: expand(x, (6,)), RuntimeError),
        (lambda x: unsqueeze(x, 5), IndexError),
    ],
)
def test_errors_have_torchs_types(function: Callable[..., Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        record(function, X)
