"""Sizes that branches and loops count in their bodies, anew in every step, and sizes counted before them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from tests.jit.test_symbolic_sizes import check_same

Loss = Callable[[aj.Tensor, aj.Tensor], aj.Tensor]


def zero() -> aj.Tensor:
    return aj.zeros((), dtype=aj.float64)


def _numbers(row: aj.Tensor) -> aj.Tensor:
    return (row.abs() * 4).long()


def _repeated(carry: aj.Tensor, row: aj.Tensor, w: aj.Tensor) -> aj.Tensor:
    names, count = aj.unique(_numbers(row), return_counts=True)
    return carry + (aj.repeat_interleave(row * w, _numbers(row)) ** 2).sum() + (names * count).sum()


def _while(x: aj.Tensor, w: aj.Tensor) -> aj.Tensor:
    def body(step: aj.Tensor, total: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        row = x[0] * w
        return step + 1, total * 0.9 + (row[x[0] > total.detach() * 0.1] ** 2).sum()

    return aj.while_loop(lambda step, total: step < 4, body, (aj.tensor(0), zero()))[1]  # type: ignore[no-any-return]


def _before(x: aj.Tensor, w: aj.Tensor) -> aj.Tensor:
    spread = aj.repeat_interleave(x[:, 0] * w[0], _numbers(x[:, 0]))
    carry, _ = aj.scan(lambda c, row: (c + row.sum() * spread, c.sum()), spread * 0, x)
    return (carry**2).sum()


BODIES: dict[str, Loss] = {
    "branch": lambda x, w: aj.cond(
        x.sum() > 0, lambda x: ((x * w)[x > 0] ** 3).sum(), lambda x: (x * w).sum() ** 2, (x,)
    ),
    "mask": lambda x, w: aj.scan(lambda c, row: (c * 0.5 + ((row * w)[row > 0] ** 3).sum(), c), zero(), x)[0],
    "repetitions": lambda x, w: aj.scan(lambda c, row: (_repeated(c, row, w), c), zero(), x)[0],
    "slice": lambda x, w: aj.scan(
        lambda c, row: (c + ((row * w)[: _numbers(row)[0].item()] ** 2).sum(), c), zero(), x
    )[0],
    "places": lambda x, w: aj.scan(
        lambda c, row: (c + (aj.arange(_numbers(row).sum().item()) * w[0] ** 2).sum(), c), zero(), x
    )[0],
    "while": _while,
    "counted before": _before,
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_bodies_that_count(name: str) -> None:
    w = aj.rand(4, dtype=aj.float64, requires_grad=True)

    def function(x: aj.Tensor) -> tuple[aj.Tensor, ...]:
        loss = BODIES[name](x, w)
        (first,) = aj.autograd.grad(loss, (w,), create_graph=True)
        (second,) = aj.autograd.grad((first**2).sum(), (w,), materialize_grads=True)
        return loss.detach(), first.detach(), second

    compiled = aj.jit(function)
    for k in range(4):
        x = aj.rand(6, 4, dtype=aj.float64) - 0.3 - 0.2 * (k == 2)
        for found, expected in zip(compiled(x), function(x), strict=True):
            check_same(found, expected, name)
    stats = compiled.stats()
    assert (stats["captures"], stats["splits"], stats["fallbacks"]) == (1, 0, 0), compiled.explain()
    assert stats["native_calls"] > 0


def test_python_decides_on_what_a_body_counts_turn_by_turn() -> None:
    def step(carry: aj.Tensor, row: aj.Tensor) -> Any:
        kept = row[row > 0]
        return (carry + 1 if kept.shape[0] > 2 else carry), carry

    x = aj.rand(3, 4) - 0.3
    (found, rows), (wanted, other_rows) = (
        run(x) for run in (aj.jit(lambda x: aj.scan(step, aj.zeros(()), x)), lambda x: aj.scan(step, aj.zeros(()), x))
    )
    assert found.item() == wanted.item()
    assert rows.tolist() == other_rows.tolist()
