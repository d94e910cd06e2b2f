"""Coalescing inside compiled functions: the step counts how many different places there are."""

from __future__ import annotations

from typing import Any

import numpy as np

import autojit as aj
from autojit import nn


def _sum_of_squares(indices: aj.Tensor, values: aj.Tensor) -> Any:
    once = aj.sparse_coo_tensor(indices, values, (3, 4, 2)).coalesce()
    return once.to_dense() * 2, (once * once).to_dense(), once.values().sum()


def test_coalescing_in_a_step_agrees_with_eager_in_values_and_gradients() -> None:
    compiled = aj.jit(_sum_of_squares)
    for places in ([[0, 1, 0, 2], [1, 2, 1, 3]], [[0, 1, 2, 2], [0, 0, 0, 0]], [[1, 1, 1, 1], [3, 3, 3, 3]]):
        found = []
        for function in (_sum_of_squares, compiled):
            values = aj.arange(8.0).reshape(4, 2).requires_grad_()
            doubled, squares, total = function(aj.tensor(places), values)
            (doubled.sum() + 3 * squares.sum() + total).backward()
            assert values.grad is not None
            found.append([t.detach().numpy() for t in (doubled, squares, total, values.grad)])
        for a, b in zip(*found, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)
    assert compiled.stats()["fallbacks"] == 0


def test_sparse_adam_steps_inside_a_compiled_function() -> None:
    tables = [nn.Embedding(30, 4, sparse=True) for _ in range(2)]
    with aj.no_grad():
        for table in tables:
            table.weight.copy_(aj.linspace(-1, 1, 120).reshape(30, 4))
    optimizers = [aj.optim.SparseAdam(table.parameters(), lr=0.1) for table in tables]

    def step(k: int, words: aj.Tensor) -> aj.Tensor:
        optimizers[k].zero_grad()
        loss = tables[k](words).square().sum()
        loss.backward()
        optimizers[k].step()
        return loss.detach()

    compiled = aj.jit(lambda words: step(1, words))
    for k in range(8):
        words = aj.tensor([1, 2, 1, k, k + 1, 3, 3])
        np.testing.assert_allclose(compiled(words).item(), step(0, words).item(), rtol=1e-5)
    np.testing.assert_allclose(tables[1].weight.detach().numpy(), tables[0].weight.detach().numpy(), rtol=1e-5)
    assert compiled.stats()["captures"] == 1
    assert compiled.stats()["fallbacks"] == 0
