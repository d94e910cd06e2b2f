"""Cotangents of pieces of a tensor are added in place: the gradient is that of the rules, and nobody sees it grow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.autograd import pieces


def cut(x: Any, draw: np.random.Generator) -> Any:
    """Some part of a tensor of three axes, or all of it."""
    k, n = int(draw.integers(0, x.shape[0])), int(draw.integers(1, 3))
    ways = [
        lambda: x[k], lambda: x[:, k], lambda: x[k, ::n], lambda: x[k : k + 1], lambda: x[..., k, 1], lambda: x,
        lambda: x.narrow(2, 0, n), lambda: x * 2, lambda: x[k].view(-1)[n:], lambda: x[[k, k]], lambda: x[k, k, 2],
    ]  # fmt: skip
    chosen = int(draw.integers(0, len(ways)))
    return x.permute(2, 0, 1)[k] if chosen == 5 else ways[chosen]()


@pytest.mark.parametrize("is_leaf", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_gradients_of_pieces_are_those_of_the_rules(seed: int, is_leaf: bool) -> None:
    x = aj.tensor(np.random.default_rng(seed).normal(size=(4, 4, 5))).requires_grad_()

    def loss() -> Any:
        draw = np.random.default_rng(seed + 10)
        base = x if is_leaf else x * x
        parts = [cut(base, draw) for _ in range(9)]
        return sum((part.sin() * (number + 1)).sum() for number, part in enumerate(parts))

    (wanted,) = aj.autograd.grad(loss(), x, create_graph=True)  # by the rules: it has a history itself
    (found,) = aj.autograd.grad(loss(), x)
    loss().backward()
    compiled = aj.jit(lambda: aj.autograd.grad(loss(), x)[0])()
    for one in (found, x.grad, compiled):
        np.testing.assert_allclose(one.numpy(), wanted.detach().numpy(), rtol=1e-12, atol=1e-14)


def test_a_sum_of_pieces_is_seen_once_all_have_come() -> None:
    x = aj.arange(12.0).reshape(4, 3).requires_grad_()
    y = x * 1
    seen: list[Any] = []
    y.register_hook(lambda grad: seen.append(grad.clone()))
    kept = y[0] + y[1] * 2
    loss = kept.sum() + y[1].sum() + y.sum()
    for _ in range(2):
        loss.backward(retain_graph=True)
    expected = np.array([[2.0] * 3, [4.0] * 3, [1.0] * 3, [1.0] * 3])
    assert len(seen) == 2
    np.testing.assert_array_equal(seen[0].numpy(), expected)
    np.testing.assert_array_equal(x.grad.numpy(), 2 * expected)


def test_what_came_before_the_pieces_is_not_written_to() -> None:
    x = aj.zeros(4, 3, requires_grad=True)
    given = aj.ones(4, 3)
    y = x * 1
    piece = y[2]
    aj.autograd.backward([y, piece.sum() * 2], [given, aj.tensor(1.0)])
    np.testing.assert_array_equal(given.numpy(), np.ones((4, 3)))
    np.testing.assert_array_equal(x.grad.numpy()[2], [3.0] * 3)


def test_the_rows_of_a_loop_are_added_in_one_array(monkeypatch: pytest.MonkeyPatch) -> None:
    sums: list[Any] = []
    add = pieces.Pieces.add

    def noted(self: Any, *given: Any) -> Any:
        sums.append(add(self, *given))
        return sums[-1]

    monkeypatch.setattr(pieces.Pieces, "add", noted)
    x = aj.zeros(50, 3, requires_grad=True)
    aj.scan(lambda total, row: (total + row, row * 2), aj.zeros(3), x)[0].sum().backward()
    assert len(sums) == 50 and all(total is sums[0] for total in sums)
    np.testing.assert_array_equal(x.grad.numpy(), np.ones((50, 3)))
