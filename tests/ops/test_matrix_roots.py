"""Roots and polar factors: what defines them holds, and derivatives of every order exist where values coincide."""

from __future__ import annotations

import numpy as np
import pytest

import autojit as aj
from autojit.ops import lyapunov, matrix_sqrth, polar
from tests.ops.laws import check_derivatives
from tests.ops.running import record, run


def semidefinite(n: int, rank: int, is_complex: bool = False) -> np.ndarray:
    generator = np.random.default_rng(n * rank)
    x = generator.standard_normal((2, n, rank)) + 1j * is_complex * generator.standard_normal((2, n, rank))
    return (x if is_complex else x.real) @ (x if is_complex else x.real).conj().swapaxes(-1, -2)


@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize(("n", "rank"), [(4, 4), (3, 1), (1, 1), (2, 0)])
def test_a_root_is_hermitian_and_its_square_the_matrix(n: int, rank: int, is_complex: bool) -> None:
    a = semidefinite(n, rank, is_complex)
    root = run(matrix_sqrth, a)
    np.testing.assert_allclose(root @ root, a, atol=1e-12)
    np.testing.assert_allclose(root, root.conj().swapaxes(-1, -2), atol=1e-14)
    assert np.linalg.eigvalsh(root).min(initial=0) > -1e-12


@pytest.mark.parametrize("shape", [(3, 3), (5, 2), (2, 4, 1), (3, 0)])
def test_polar_factors_are_orthonormal_and_semidefinite(shape: tuple[int, ...]) -> None:
    a = np.random.default_rng(sum(shape)).standard_normal(shape)
    u, h = run(polar, a)
    np.testing.assert_allclose(u @ h, a, atol=1e-12)
    np.testing.assert_allclose(u.swapaxes(-1, -2) @ u, np.broadcast_to(np.eye(shape[-1]), h.shape), atol=1e-12)
    assert np.linalg.eigvalsh(h).min(initial=0) > -1e-12


def test_equal_eigenvalues_and_singular_values_have_derivatives() -> None:
    unit = np.eye(3) * 2.0
    check_derivatives(record(matrix_sqrth, unit), [unit])
    for a in (unit, np.eye(4, 2)):
        check_derivatives(record(polar, a), [a])
    check_derivatives(record(lyapunov, unit, unit + 1.0), [unit, unit + 1.0])


@pytest.mark.parametrize("function", [lambda a: aj.linalg.matrix_sqrth(a @ a.mT + aj.eye(3)), aj.linalg.polar])
def test_second_derivatives_are_right_eagerly_and_compiled(function: object) -> None:
    a = aj.eye(3, dtype=aj.float64).mul(1.5).requires_grad_()
    assert aj.autograd.gradcheck(function, a) and aj.autograd.gradgradcheck(function, a)  # type: ignore[arg-type]


def test_the_lower_triangle_is_read_and_indefinite_matrices_count_as_on_the_edge() -> None:
    a = aj.tensor([[2.0, 7.0], [1.0, 3.0]], dtype=aj.float64)
    root = aj.linalg.matrix_sqrth(a)
    np.testing.assert_allclose((root @ root).numpy(), [[2.0, 1.0], [1.0, 3.0]], atol=1e-14)
    np.testing.assert_array_equal(aj.linalg.matrix_sqrth(-aj.eye(2)).numpy(), np.zeros((2, 2)))
    assert aj.linalg.matrix_sqrth(aj.full((2, 2), float("nan"))).isnan().all()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: aj.linalg.polar(aj.ones(2, 3)), "at least as many rows as columns, but got 2 by 3"),
        (lambda: aj.linalg.polar(aj.ones(3)), "at least 2 dimensions"),
        (lambda: aj.linalg.polar(aj.full((2, 2), float("nan"))), "failed to converge"),
        (lambda: aj.linalg.matrix_sqrth(aj.ones(2, 3)), "square matrices, but they are 2 by 3"),
        (lambda: aj.linalg.matrix_sqrth(aj.ones(2, 2).half()), "Low precision dtypes not supported"),
        (lambda: aj.linalg.matrix_sqrth(aj.ones(2, 2).long()), "Expected a floating point or complex tensor"),
    ],
)
def test_what_has_no_root_or_factor_is_refused(call: object, said: str) -> None:
    with pytest.raises(RuntimeError, match=said):
        call()  # type: ignore[operator]
