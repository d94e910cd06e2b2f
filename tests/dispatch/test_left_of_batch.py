"""A tensor that stands for each element of a batch has no values afterwards: every use of it says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit._higher_order_ops import associative_scan

Run = Callable[[Callable[[aj.Tensor], aj.Tensor], aj.Tensor], Any]

BATCHES: dict[str, Run] = {
    "vmap": lambda f, x: aj.vmap(f)(x),
    "nested vmap": lambda f, x: aj.vmap(aj.vmap(f))(x[None]),
    "associative_scan": lambda f, x: associative_scan(lambda a, b: f(a) + b, x, 0),
}
LEFT: dict[str, Callable[[aj.Tensor], aj.Tensor]] = {
    "argument": lambda x: x,
    "result": lambda x: x * 3,
    "view": lambda x: x[..., None],
    "written": lambda x: x.clone().add_(1),
}
USES: dict[str, Callable[[aj.Tensor, aj.Tensor], Any]] = {
    "pair": lambda left, x: left + 1,
    "second": lambda left, x: x * left,
    "single": lambda left, x: left.exp(),
    "view": lambda left, x: left.reshape(-1),
    "several results": lambda left, x: left.reshape(-1).sort(),
    "composite": lambda left, x: aj.nn.functional.gelu(left),
    "joined": lambda left, x: aj.stack([left, left]),
    "chosen": lambda left, x: aj.where(left > 0, 1, 2),
    "in another batch": lambda left, x: aj.vmap(lambda row: row.sum() + left)(x),
    "in place": lambda left, x: left.add_(1),
    "written from": lambda left, x: x.clone().copy_(left.sum()),
}


def left_behind(batch: str, left: str, x: aj.Tensor) -> aj.Tensor:
    kept = []

    def f(row: aj.Tensor) -> aj.Tensor:
        kept.append(LEFT[left](row))
        return row * 2

    BATCHES[batch](f, x)
    return kept[0]


@pytest.mark.parametrize("place", ["eager", "in a step", "from outside of a step"])
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("left", LEFT)
@pytest.mark.parametrize("batch", BATCHES)
def test_a_use_after_the_batch_is_refused_in_words(batch: str, left: str, use: str, place: str) -> None:
    x = aj.ones(4, 3)
    with pytest.raises(RuntimeError, match="one element of a batch") as caught:
        if place == "eager":
            USES[use](left_behind(batch, left, x), x)
        elif place == "in a step":
            aj.jit(lambda x: USES[use](left_behind(batch, left, x), x))(x)
        else:
            kept = left_behind(batch, left, x)
            aj.jit(lambda x: USES[use](kept, x))(x)
    assert "test_left_of_batch.py" in str(caught.value) and "return it" in str(caught.value)


@pytest.mark.parametrize("left", LEFT)
@pytest.mark.parametrize("batch", BATCHES)
def test_a_step_does_not_return_one(batch: str, left: str) -> None:
    with pytest.raises(RuntimeError, match="one element of a batch"):
        aj.jit(lambda x: left_behind(batch, left, x))(aj.ones(4, 3))
