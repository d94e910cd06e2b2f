"""Open extents beside empty ones, in halves and thirds, in derivatives: whatever step serves them, the same values."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
import autojit.nn.functional as F

PIECES: dict[str, Callable[[aj.Tensor], aj.Tensor]] = {
    "every other": lambda x: x[::2],
    "every other of every other": lambda x: x[::2][::2],
    "odd and third": lambda x: aj.cat([x[1::2], x[::3]]),
    "means of pairs": lambda x: F.avg_pool1d(x[None, None], 2)[0, 0],
    "means of padded": lambda x: F.avg_pool1d(x[None, None], 3, 2, 1)[0, 0],
    "largest of pairs": lambda x: F.max_pool1d(x[None, None], 2, ceil_mode=True)[0, 0],
    "written in place": lambda x: _added_to_every_other(x.clone()),
    "product of halves": lambda x: aj.outer(x[::2], x[1::2]).reshape(-1),
    "windows": lambda x: x.unfold(0, 2, 2).reshape(-1),
    "padded": lambda x: F.pad(x[None], (1, 2))[0, ::2],
    "chunks": lambda x: sum((c.sum() * (k + 1) for k, c in enumerate(x.chunk(3))), x),
    "parts": lambda x: sum((c.sum() * (k + 1) for k, c in enumerate(x.tensor_split(3))), x),
    "differences": lambda x: x.diff()[::2],
    "rolled": lambda x: aj.roll(x[::2], 1) * x[::2],
    "the middle": lambda x: x[x.shape[0] // 2 :] * x[: x.shape[0] - x.shape[0] // 2],
    "strided convolution": lambda x: F.conv1d(x[None, None], x.new_ones(1, 1, 3), stride=2, padding=1)[0, 0],
    "stacked": lambda x: aj.stack([x, x * 2], 1)[:, ::2].reshape(-1)[::3],
    "where": lambda x: aj.where(x[::2] > 2, x[::2], 0.0),
    "chosen beside all": lambda x: aj.where(x > 3, x, x[x > 3].sum()),
    "all chosen": lambda x: x[x > -1] * x,
    "flipped": lambda x: x.flip(0)[1:] - x[:-1],
}  # fmt: skip


def _added_to_every_other(x: aj.Tensor) -> aj.Tensor:
    x[..., ::2] += 1
    return x


def _derivatives(function: Callable[[aj.Tensor], aj.Tensor], x: aj.Tensor) -> tuple[aj.Tensor, ...]:
    y = function(x)
    (slope,) = aj.autograd.grad((y**3).sum(), [x], create_graph=True)
    (second,) = aj.autograd.grad((slope**2).sum(), [x])
    return y.detach(), slope.detach(), second


def check(function: Callable[[Any], Any], compiled: Callable[[Any], Any], x: aj.Tensor) -> None:
    try:
        expected = function(x)
    except RuntimeError:
        with pytest.raises(RuntimeError):
            compiled(x)
        return
    for a, b in zip(compiled(x), expected, strict=True):
        assert a.shape == b.shape
        assert aj.allclose(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", PIECES)
@pytest.mark.parametrize("is_inside", [True, False], ids=["derivative inside", "derivative outside"])
def test_parts_of_open_axes_and_their_derivatives(name: str, is_inside: bool) -> None:
    piece = PIECES[name]
    inside, outside = aj.jit(lambda x: _derivatives(piece, x)), aj.jit(piece)
    for n in (5, 6, 7, 12, 13, 2, 3, 8):
        x = (aj.arange(float(n), dtype=aj.float64) + 0.5).requires_grad_()
        check(lambda x: _derivatives(piece, x), inside if is_inside else lambda x: _derivatives(outside, x), x)


@pytest.mark.parametrize("seed", range(8))
def test_pieces_of_pieces(seed: int) -> None:
    rng = random.Random(f"pieces {seed}")
    chain = [rng.choice([*PIECES.values()]) for _ in range(2)]

    def function(x: aj.Tensor) -> aj.Tensor:
        for piece in chain:
            x = piece(x) * 0.5
        return x

    compiled = aj.jit(lambda x: _derivatives(function, x))
    for n in (6, 7, 9, 16, 5):
        x = (aj.arange(float(n), dtype=aj.float64) + 0.5).requires_grad_()
        check(lambda x: _derivatives(function, x), compiled, x)


BESIDE: dict[str, Callable[[aj.Tensor], aj.Tensor]] = {
    "product": lambda x: x * 2,
    "sum": lambda x: x.sum(0),
    "softmax": lambda x: x.softmax(-1),
    "transposed": lambda x: x.t().contiguous() + 1,
    "matmul": lambda x: x @ x.t(),
    "cumsum": lambda x: x.cumsum(0),
    "joined": lambda x: aj.cat([x, x], 1),
    "flat": lambda x: x.reshape(-1) * 3,
    "row added": lambda x: x + aj.ones(x.shape[1]),
    "mask": lambda x: x[x > 0],
    "mean": lambda x: x.mean(),
}


@pytest.mark.parametrize("name", BESIDE)
@pytest.mark.parametrize(
    "shapes",
    [
        [(3, 0), (7, 0), (4, 0), (2, 2), (5, 0)],
        [(16, 1), (21, 1), (16, 0), (5, 1), (0, 1), (1, 1)],
        [(0, 3), (0, 5), (1, 4), (4, 1), (0, 0), (2, 6)],
    ],
    ids=["beside 0", "beside 1 and 0", "0 beside open"],
)
def test_an_open_axis_beside_an_empty_one(name: str, shapes: list[tuple[int, int]]) -> None:
    function = BESIDE[name]
    compiled = aj.jit(function)
    for shape in shapes:
        x = aj.arange(float(shape[0] * shape[1])).reshape(shape)
        expected, found = function(x), compiled(x)
        assert found.shape == expected.shape
        assert aj.allclose(found, expected, equal_nan=True), (shape, found, expected)


@pytest.mark.parametrize("mapped", [lambda r: r[r > 0], lambda r: r.nonzero(), lambda r: aj.unique(r)])
def test_results_of_different_lengths_in_a_batch_are_refused_alike(mapped: Callable[[aj.Tensor], aj.Tensor]) -> None:
    function = lambda x: aj.func.vmap(mapped)(x)
    for run in (function, aj.jit(function)):
        with pytest.raises(RuntimeError, match="examples of a batch would have results of different"):
            run(aj.tensor([[1.0, -1.0], [2.0, 3.0]]))
