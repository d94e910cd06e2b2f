"""Indefinite factors multiply back and solve; failures are reported per matrix and the others stay right."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import lapack

import autojit as aj


def symmetric(n: int, is_complex: bool, hermitian: bool, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    a = generator.standard_normal((n, n)) + (1j * generator.standard_normal((n, n)) if is_complex else 0)
    a = a + (a.conj().T if hermitian else a.T)
    if seed % 2:
        a[range(n), range(n)] *= 0.01  # so that blocks of two rows are needed
    return a


@pytest.mark.parametrize("n", [1, 2, 3, 5, 12])
@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_factors_are_lapacks_and_solve(n: int, is_complex: bool, hermitian: bool, seed: int) -> None:
    a = symmetric(n, is_complex, hermitian, seed)
    factors = aj.linalg.ldl_factor(aj.from_numpy(a), hermitian=hermitian)
    (routine,) = lapack.get_lapack_funcs(("hetrf" if hermitian and is_complex else "sytrf",), (a,))
    packed, _, _ = routine(a, lower=1)
    np.testing.assert_allclose(factors.LD.numpy(), np.tril(packed), atol=1e-9, rtol=1e-9)
    b = np.random.default_rng(9).standard_normal((n, 2)).astype(a.dtype)
    x = aj.linalg.ldl_solve(*factors, aj.from_numpy(b), hermitian=hermitian)
    np.testing.assert_allclose(a @ x.numpy(), b, atol=1e-8)


def test_batches_broadcast_and_compile() -> None:
    a = np.stack([symmetric(4, False, False, seed) for seed in range(3)])
    b = aj.ones(4, 2, dtype=aj.float64)

    @aj.jit
    def solved(a: aj.Tensor) -> aj.Tensor:
        return aj.linalg.ldl_solve(*aj.linalg.ldl_factor_ex(a)[:2], b)

    np.testing.assert_allclose(a @ solved(aj.tensor(a)).numpy(), np.ones((3, 4, 2)), atol=1e-9)


def test_a_singular_block_is_reported() -> None:
    assert aj.linalg.ldl_factor_ex(aj.zeros(2, 2)).info.item() == 1
    with pytest.raises(RuntimeError, match="zero"):
        aj.linalg.ldl_factor(aj.zeros(2, 2))
    with pytest.raises(RuntimeError, match="square"):
        aj.linalg.ldl_factor(aj.ones(2, 3))
    with pytest.raises(RuntimeError, match="floating"):
        aj.linalg.ldl_factor(aj.tensor([[1]]))
    with pytest.raises(RuntimeError, match="dtype"):
        aj.linalg.ldl_solve(aj.eye(2), aj.tensor([1, 2], dtype=aj.int32), aj.ones(2, 1).double())


def test_definiteness_is_reported_per_matrix() -> None:
    good, bad, worse = np.diag([1.0, 2.0, 3.0]), np.diag([1.0, 2.0, -1.0]), np.diag([-1.0, 2.0, 3.0])
    found = aj.linalg.cholesky_ex(aj.from_numpy(np.stack([good, bad, worse])))
    assert found.info.tolist() == [0, 3, 1]
    np.testing.assert_allclose(found.L[0].numpy(), np.sqrt(good))
    with pytest.raises(RuntimeError, match="order 3"):
        aj.linalg.cholesky_ex(aj.from_numpy(bad), check_errors=True)


def test_singular_matrices_are_reported_and_do_not_spoil_gradients() -> None:
    a = aj.stack([2 * aj.eye(2), aj.ones(2, 2)]).double().requires_grad_()
    inverse, info = aj.linalg.inv_ex(a)
    assert info.tolist() == [0, 2]
    (slope,) = aj.autograd.grad(inverse[0].sum(), a)
    assert bool(slope.isfinite().all())
    solution, info = aj.linalg.solve_ex(a, aj.ones(2, 2, 1, dtype=aj.float64))
    assert info.tolist() == [0, 2]
    np.testing.assert_allclose(solution[0].detach().numpy(), [[0.5], [0.5]])
    with pytest.raises(RuntimeError, match="singular"):
        aj.linalg.inv_ex(a, check_errors=True)
    with pytest.raises(RuntimeError, match="square"):
        aj.linalg.inv_ex(aj.ones(2, 3))
