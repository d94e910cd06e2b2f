"""Factorisations multiply back, and every differentiable function passes gradcheck."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import autojit as aj


def matrix() -> aj.Tensor:
    values = np.random.default_rng(0).standard_normal((3, 3)) + 2 * np.eye(3)
    return aj.tensor(values, requires_grad=True)


def symmetric(a: aj.Tensor) -> aj.Tensor:
    return a @ a.mT + aj.eye(3, dtype=aj.float64)


def test_factors_multiply_back() -> None:
    a = matrix().detach()
    q, r = aj.linalg.qr(a)
    u, s, vh = aj.linalg.svd(a, full_matrices=False)
    values, vectors = aj.linalg.eigh(symmetric(a))
    lower = aj.linalg.cholesky(symmetric(a))
    for found, expected in (
        (q @ r, a),
        (u * s @ vh, a),
        (vectors * values @ vectors.mT, symmetric(a)),
        (lower @ lower.mT, symmetric(a)),
        (a @ aj.linalg.inv(a), aj.eye(3, dtype=aj.float64)),
        (a @ aj.linalg.solve(a, a), a),
    ):
        np.testing.assert_allclose(found.numpy(), expected.numpy(), atol=1e-12)


FUNCTIONS: dict[str, Callable[[aj.Tensor], aj.Tensor]] = {
    "det": aj.linalg.det,
    "inv": aj.linalg.inv,
    "cholesky": lambda a: aj.linalg.cholesky(symmetric(a)),
    "eigvalsh": lambda a: aj.linalg.eigvalsh(symmetric(a)),
    "svdvals": aj.linalg.svdvals,
    "solve": lambda a: aj.linalg.solve(a, a.mT),
    "logabsdet": lambda a: aj.linalg.slogdet(a).logabsdet,
    "frobenius": aj.linalg.norm,
    "nuclear": lambda a: aj.linalg.norm(a, "nuc"),
    "power": lambda a: aj.linalg.matrix_power(a, 3),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives(name: str) -> None:
    assert aj.autograd.gradcheck(FUNCTIONS[name], matrix(), atol=1e-4)


def test_errors() -> None:
    with pytest.raises(RuntimeError):
        aj.linalg.inv(aj.zeros(2, 2))
    with pytest.raises(RuntimeError):
        aj.linalg.det(aj.ones(2, 2, dtype=aj.int64))
