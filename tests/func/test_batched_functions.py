"""vmap of functions that look at indices, views or ranks agrees with a loop over the elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
import autojit.nn.functional as F
from autojit.func import grad, vmap

X = aj.tensor(np.random.default_rng(0).normal(size=(3, 4, 5)))
T = aj.tensor([[0, 1, 2, 3], [4, 3, 2, 1], [0, 0, 4, 4]])
CASES: dict[str, Callable[..., Any]] = {
    "cross_entropy": lambda x, t: F.cross_entropy(x, t),
    "nll_loss": lambda x, t: F.nll_loss(x, t, reduction="sum", ignore_index=2),
    "select_scatter": lambda x, t: aj.select_scatter(x, x[0] * 2, 0, 1),
    "slice_scatter": lambda x, t: aj.slice_scatter(x, x[:2] * 2, 0, 1, 3),
    "diagonal_scatter": lambda x, t: aj.diagonal_scatter(x, x[:, 0]),
    "as_strided_scatter": lambda x, t: aj.as_strided_scatter(x, x[:2, :2], (2, 2), (5, 1)),
    "lstsq": lambda x, t: aj.linalg.lstsq(x.mT, x.mT[:, :1], driver="gelsd").solution,
    "polynomials": lambda x, t: aj.special.hermite_polynomial_h(x[:, 0], t),
}


@pytest.mark.parametrize("name", CASES)
def test_a_batch_is_a_loop(name: str) -> None:
    function = CASES[name]
    wanted = aj.stack([function(x, t) for x, t in zip(X, T, strict=True)])
    np.testing.assert_allclose(vmap(function)(X, T).numpy(), wanted.numpy(), atol=1e-10)
    np.testing.assert_allclose(aj.jit(vmap(function))(X, T).numpy(), wanted.numpy(), atol=1e-10)


def test_gradients_per_example() -> None:
    def loss(w: Any, x: Any, t: Any) -> Any:
        return F.cross_entropy((x @ w)[None], t[None])

    w = aj.tensor(np.random.default_rng(1).normal(size=(5, 5)))
    found = vmap(grad(loss), (None, 0, 0))(w, X[0], T[0])
    for k in range(4):
        np.testing.assert_allclose(found[k].numpy(), grad(loss)(w, X[0, k], T[0, k]).numpy(), atol=1e-12)


def test_a_target_out_of_range_is_refused_along_a_batch() -> None:
    with pytest.raises(IndexError):
        vmap(F.cross_entropy)(X, T + 3)
