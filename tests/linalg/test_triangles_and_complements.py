"""Factorisations that read one triangle, and the forms with square factors."""

from __future__ import annotations

import numpy as np
import pytest

import autojit as aj

A = np.array([[2.0, 5.0, 1.0], [1.0, 3.0, 0.5], [0.3, 0.2, 4.0]])
LOWER = np.tril(A) + np.tril(A, -1).T
UPPER = np.triu(A) + np.triu(A, 1).T
TALL = np.arange(6.0).reshape(3, 2)


@pytest.mark.parametrize("compiled", [False, True])
def test_one_triangle_is_read(compiled: bool) -> None:
    run = aj.jit if compiled else (lambda f: f)
    a = aj.tensor(A)
    np.testing.assert_allclose(run(aj.linalg.eigvalsh)(a).numpy(), np.linalg.eigvalsh(LOWER))
    np.testing.assert_allclose(run(lambda x: aj.linalg.eigh(x, UPLO="U")[0])(a).numpy(), np.linalg.eigvalsh(UPPER))
    np.testing.assert_allclose(run(aj.linalg.cholesky)(a).numpy(), np.linalg.cholesky(LOWER))
    np.testing.assert_allclose(run(aj.cholesky)(a).numpy(), np.linalg.cholesky(LOWER))


def test_the_upper_factor_reads_the_upper_triangle() -> None:
    with pytest.raises(aj.linalg.LinAlgError):
        aj.linalg.cholesky(aj.tensor(A), upper=True)
    c = np.array([[4.0, 1.0], [9.0, 3.0]])
    wanted = np.linalg.cholesky(np.array([[4.0, 1.0], [1.0, 3.0]])).T
    np.testing.assert_allclose(aj.linalg.cholesky(aj.tensor(c), upper=True).numpy(), wanted)


def test_gradients_are_those_by_a_symmetric_matrix() -> None:
    a = aj.tensor(A, requires_grad=True)
    (g,) = aj.autograd.grad(aj.linalg.eigvalsh(a).pow(2).sum(), a, create_graph=True)
    np.testing.assert_allclose(g.detach().numpy(), 2 * LOWER, atol=1e-12)
    (h,) = aj.autograd.grad(g.pow(2).sum(), a)
    np.testing.assert_allclose(h.numpy(), 8 * LOWER, atol=1e-10)


def test_complete_factors_are_square_and_orthonormal() -> None:
    q, r = aj.linalg.qr(aj.tensor(TALL), "complete")
    assert (q.shape, r.shape) == ((3, 3), (3, 2))
    np.testing.assert_allclose((q @ r).numpy(), TALL, atol=1e-12)
    np.testing.assert_allclose((q.mT @ q).numpy(), np.eye(3), atol=1e-12)
    empty, r_alone = aj.linalg.qr(aj.tensor(TALL), "r")
    assert empty.shape == (0,)
    np.testing.assert_allclose(np.abs(r_alone.numpy()), np.abs(np.linalg.qr(TALL, "r")), atol=1e-12)
    wide = aj.tensor(TALL.T, requires_grad=True)
    assert aj.autograd.gradcheck(lambda x: aj.linalg.qr(x, "complete").R.abs(), wide)
    with pytest.raises(RuntimeError, match="mode"):
        aj.linalg.qr(aj.tensor(TALL), "full")


def test_svd_has_a_full_form() -> None:
    u, s, v = aj.svd(aj.tensor(TALL), some=False)
    assert (u.shape, v.shape) == ((3, 3), (2, 2))
    np.testing.assert_allclose((u[:, :2] @ s.diag() @ v.mT).numpy(), TALL, atol=1e-12)
    assert aj.qr(aj.tensor(TALL), some=False).Q.shape == (3, 3)
