"""``distributed.nn``: collectives whose gradient answers what each rank has sent by the sum of all ranks' gradients."""

from __future__ import annotations

from typing import Any

import pytest

import autojit as aj
from autojit.distributed import nn

RANKS = 3


def _slopes(compute: Any) -> list[tuple[list[float], list[float]]]:
    """What each rank computes of ``(1, 2) * (rank + 1)``, and its gradient if rank r weighs its results by r + 1."""

    def on_rank(world: Any) -> tuple[list[float], list[float]]:
        x = (aj.tensor([1.0, 2.0]) * (world.rank + 1)).requires_grad_()
        y = compute(x, world.rank)
        (y * (world.rank + 1)).sum().backward()
        assert x.grad is not None
        return y.tolist(), x.grad.tolist()

    found: list[tuple[list[float], list[float]]] = aj.distributed.run_ranks(RANKS, on_rank)
    return found


def test_reductions_sum_the_gradients_of_all_ranks() -> None:
    for y, slope in _slopes(lambda x, rank: nn.all_reduce(x)):
        assert y == [6.0, 12.0] and slope == [6.0, 6.0]
    for rank, (y, slope) in enumerate(_slopes(lambda x, rank: nn.all_reduce(x, aj.distributed.ReduceOp.MAX))):
        assert y == [3.0, 6.0] and slope == ([6.0, 6.0] if rank == RANKS - 1 else [0.0, 0.0])
    with pytest.raises(ValueError, match="no derivative"):
        nn.all_reduce(aj.ones(1), "avg")


def test_gathered_and_sent_tensors_have_gradients() -> None:
    for y, slope in _slopes(lambda x, rank: aj.stack(nn.all_gather(x)).sum(0)):
        assert y == [6.0, 12.0] and slope == [6.0, 6.0]
    for rank, (y, slope) in enumerate(_slopes(lambda x, rank: nn.broadcast(x, 1))):
        assert y == [2.0, 4.0] and slope == ([6.0, 6.0] if rank == 1 else [0.0, 0.0])
    for rank, (y, slope) in enumerate(_slopes(lambda x, rank: nn.reduce_scatter(x, [x, 2 * x, 3 * x]))):
        assert y == [6.0 * (rank + 1), 12.0 * (rank + 1)] and slope == [14.0, 14.0]
    for rank, (y, slope) in enumerate(_slopes(lambda x, rank: sum(nn.all_to_all([x] * RANKS, [x, 2 * x, 3 * x])))):
        assert y == [6.0 * (rank + 1), 12.0 * (rank + 1)] and slope == [14.0, 14.0]
