"""Functions composed of others agree with NumPy and have right gradients; in-place names exist and write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.autograd import gradcheck


def matrix(*shape: int) -> aj.Tensor:
    return aj.tensor(np.random.default_rng(0).uniform(0.3, 1.7, shape), requires_grad=True)


X, Y = matrix(4, 3), matrix(2, 3)
VALUES: list[tuple[Callable[[], Any], Any]] = [
    (lambda: aj.deg2rad(X), np.deg2rad(X.detach().numpy())),
    (lambda: aj.rad2deg(X), np.rad2deg(X.detach().numpy())),
    (lambda: aj.sinc(X), np.sinc(X.detach().numpy())),
    (lambda: aj.logaddexp2(X, X * 2), np.logaddexp2(X.detach().numpy(), 2 * X.detach().numpy())),
    (lambda: aj.diagflat(Y), np.diagflat(Y.detach().numpy())),
    (lambda: aj.trapz(X), np.trapezoid(X.detach().numpy())),
    (lambda: aj.cov(X), np.cov(X.detach().numpy())),
    (lambda: aj.corrcoef(X), np.corrcoef(X.detach().numpy())),
    (lambda: aj.cross(Y, Y * Y), np.cross(Y.detach().numpy(), Y.detach().numpy() ** 2)),
    (lambda: aj.dstack([X, X]), np.dstack([X.detach().numpy()] * 2)),
    (lambda: aj.cdist(X, Y), np.linalg.norm(X.detach().numpy()[:, None] - Y.detach().numpy()[None], axis=-1)),
    (lambda: aj.block_diag(Y, Y)[2:, 3:], Y.detach().numpy()),
    (lambda: aj.chain_matmul(X, X.t(), X), X.detach().numpy() @ X.detach().numpy().T @ X.detach().numpy()),
    (lambda: aj.combinations(X[0]), [[X[0, i].item(), X[0, j].item()] for i, j in ((0, 1), (0, 2), (1, 2))]),
]


@pytest.mark.parametrize(("compute", "expected"), VALUES)
def test_values_are_numpys(compute: Callable[[], aj.Tensor], expected: Any) -> None:
    np.testing.assert_allclose(compute().detach().numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize(
    "function",
    [
        aj.sinc, aj.deg2rad, lambda x: aj.mvlgamma(x + 3, 2), lambda x: aj.cdist(x, x[:2] * 0.5), aj.pdist,
        lambda x: aj.pdist(x, 1.5), lambda x: aj.renorm(x, 2, 0, 1.0), aj.cov, aj.corrcoef, aj.trapezoid,
        lambda x: aj.prelu(x - 1, aj.tensor([0.25], dtype=aj.float64)), lambda x: aj.ldexp(x, aj.tensor(3.0)),
        lambda x: aj.block_diag(x, x * x), lambda x: aj.cartesian_prod(x[0], x[1]),
        lambda x: aj.addbmm(x[:2, :2], x.reshape(2, 2, 3), x.reshape(2, 3, 2)),
    ],
)  # fmt: skip
def test_gradients_are_right(function: Callable[[aj.Tensor], aj.Tensor]) -> None:
    assert gradcheck(function, matrix(4, 3))


def test_distances_of_equal_points_have_gradient_zero() -> None:
    x = aj.zeros(2, 3, requires_grad=True)
    aj.cdist(x, x.detach()).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[0.0] * 3] * 2


def test_in_place_forms_write() -> None:
    x = aj.tensor([1.0, 2.0])
    x.true_divide_(2.0).arctan_().sgn_()
    assert x.tolist() == [1.0, 1.0]
    assert aj.tensor([1.0, 2.0]).greater_(1.5).tolist() == [0.0, 1.0]
    assert aj.zeros(3, 3).fill_diagonal_(2.0).trace().item() == 6.0
    assert aj.zeros(7, 3).fill_diagonal_(1.0, wrap=True)[4:].tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert aj.zeros(2).apply_(lambda v: v + 3).map_(aj.ones(2), lambda a, b: a - b).tolist() == [2.0, 2.0]
    with pytest.raises(RuntimeError, match="requires grad"):
        aj.ones(1, requires_grad=True).apply_(abs)
