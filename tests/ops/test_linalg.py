from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import autojit as aj
from autojit.ir import evaluate
from autojit.ops import (
    LinAlgError,
    cholesky,
    cholesky_inverse,
    cholesky_solve,
    det,
    diag,
    diag_embed,
    eigh,
    inv,
    logdet,
    matmul,
    matrix_power,
    matrix_rank,
    mul,
    pinv,
    qr,
    slogdet,
    solve,
    svd,
    trace,
    triangular_solve,
    tril,
    triu,
    vander,
)  # fmt: skip
from autojit.ops.linalg import hermitian_part
from autojit.ops.matmul import adjoint_matrix
from autojit.ops.triangles import scale_columns
from tests.ops.laws import check_derivatives
from tests.ops.running import normal, record, run

Array = NDArray[Any]


def invertible(*shape: int, seed: int = 0) -> Array:
    return normal(*shape, seed=seed) + 3 * np.eye(shape[-1])


def positive(n: int) -> Array:
    x = normal(n, n)
    return x @ x.T + np.eye(n)


def test_systems_are_solved() -> None:
    a, b = invertible(2, 3, 3), normal(2, 3, 4, seed=1)
    np.testing.assert_allclose(a @ run(solve, a, b), b, atol=1e-12)
    np.testing.assert_allclose(run(lambda a, b: solve(a, b, left=False), a, b.mT) @ a, b.mT, atol=1e-12)
    np.testing.assert_allclose(run(solve, a[0], b[0, :, 0]), np.linalg.solve(a[0], b[0, :, 0]))
    np.testing.assert_allclose(run(solve, a[0], b), np.linalg.solve(a[:1], b))
    np.testing.assert_allclose(a @ run(inv, a), np.broadcast_to(np.eye(3), a.shape), atol=1e-12)


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("unit", [False, True])
def test_triangular_systems_read_one_triangle(upper: bool, left: bool, unit: bool) -> None:
    a, b = invertible(3, 3), normal(3, 3, seed=1)
    triangle = np.triu(a) if upper else np.tril(a)
    if unit:
        np.fill_diagonal(triangle, 1)
    x = run(lambda a, b: triangular_solve(a, b, upper, left, unit), a, b)
    np.testing.assert_allclose(triangle @ x if left else x @ triangle, b, atol=1e-12)


def test_cholesky_family() -> None:
    a, b = positive(4), normal(4, 2)
    factor = run(cholesky, a)
    np.testing.assert_allclose(factor @ factor.T, a)
    np.testing.assert_allclose(run(lambda a: cholesky(a, upper=True), a), factor.T)
    np.testing.assert_allclose(run(cholesky_solve, b, factor), np.linalg.solve(a, b))
    np.testing.assert_allclose(run(cholesky_inverse, factor), np.linalg.inv(a))
    with pytest.raises(LinAlgError, match="positive-definite"):
        run(cholesky, -a)


def test_determinants() -> None:
    a = invertible(2, 3, 3)
    np.testing.assert_allclose(run(det, a), np.linalg.det(a))
    sign, logarithm = run(slogdet, a)
    np.testing.assert_allclose(sign * np.exp(logarithm), np.linalg.det(a))
    np.testing.assert_allclose(run(logdet, positive(3)), np.log(np.linalg.det(positive(3))))


def test_a_singular_matrix_has_a_finite_gradient_of_its_determinant() -> None:
    from autojit.transforms.adjoint import adjoint

    a = np.outer([1.0, 2.0, 3.0], [1.0, 0.0, -1.0]) + np.diag([0.0, 0.0, 1.0])
    (a_bar,) = evaluate(adjoint(record(det, a)), [a, np.float64(1.0)])
    minors = [
        [np.linalg.det(np.delete(np.delete(a, i, 0), j, 1)) * (-1) ** (i + j) for j in range(3)] for i in range(3)
    ]
    np.testing.assert_allclose(a_bar, minors, atol=1e-12)


def test_a_singular_system_is_an_error_of_torchs_type() -> None:
    with pytest.raises(RuntimeError, match="singular"):
        run(inv, np.zeros((2, 2)))


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5), (2, 4, 3)])
def test_decompositions_multiply_back(shape: tuple[int, ...]) -> None:
    a = normal(*shape)
    q, r = run(qr, a)
    np.testing.assert_allclose(q @ r, a, atol=1e-12)
    np.testing.assert_allclose(np.tril(r, -1), 0, atol=1e-12)
    u, s, vh = run(svd, a)
    np.testing.assert_allclose((u * s[..., None, :]) @ vh, a, atol=1e-12)
    np.testing.assert_allclose(run(pinv, a), np.linalg.pinv(a), atol=1e-12)
    assert np.all(run(matrix_rank, a) == min(shape[-2:]))


def test_eigh_of_a_symmetric_matrix() -> None:
    a = positive(4)
    values, vectors = run(eigh, a)
    np.testing.assert_allclose((vectors * values) @ vectors.T, a, atol=1e-12)


def phase_free(function: str) -> Callable[..., Any]:
    """Functions of complex decompositions that do not depend on the phases LAPACK chooses."""

    def of_eigh(a: Any) -> Any:
        values, v = eigh(a)
        weights = mul(values, values)
        return matmul(scale_columns(v, _complex(weights)), adjoint_matrix(v)), values

    def of_svd(a: Any) -> Any:
        u, s, vh = svd(a)
        return matmul(scale_columns(u, _complex(mul(s, s))), vh), s

    def of_qr(a: Any) -> Any:
        q, r = qr(a)
        return matmul(q, adjoint_matrix(q)), matmul(hermitian_part(r), r)

    return {"eigh": of_eigh, "svd": of_svd, "qr": of_qr}[function]


def _complex(x: Any) -> Any:
    from autojit.core.dtypes import complex128
    from autojit.ops import cast

    return cast(x, complex128)


@pytest.mark.parametrize(
    ("name", "shape"), [("eigh", (3, 3)), ("svd", (3, 3)), ("svd", (4, 2)), ("svd", (2, 4)), ("qr", (4, 2))]
)
def test_complex_decompositions_have_right_derivatives(name: str, shape: tuple[int, int]) -> None:
    a = normal(*shape) + 1j * normal(*shape, seed=1)
    check_derivatives(record(phase_free(name), a), [a])


@pytest.mark.parametrize("shape", [(3, 5), (4, 4)])
def test_wide_qr_and_pinv_have_right_derivatives(shape: tuple[int, int]) -> None:
    a = normal(*shape)
    check_derivatives(record(qr, a), [a])
    check_derivatives(record(pinv, a), [a])


def test_triangles_and_diagonals_agree_with_numpy() -> None:
    x, v = normal(2, 3, 4), normal(4)
    for k in (-2, 0, 1):
        np.testing.assert_array_equal(run(lambda x, k=k: tril(x, k), x), np.tril(x, k))
        np.testing.assert_array_equal(run(lambda x, k=k: triu(x, k), x), np.triu(x, k))
        np.testing.assert_array_equal(run(lambda v, k=k: diag(v, k), v), np.diag(v, k))
    np.testing.assert_array_equal(run(diag, x[0]), np.diag(x[0]))
    assert run(lambda x: diag_embed(x, 1, 0, 2), x).shape == (5, 2, 5, 3)
    np.testing.assert_allclose(run(trace, x[0]), np.trace(x[0]))
    np.testing.assert_allclose(run(lambda v: vander(v, 3), v), np.vander(v, 3))


@pytest.mark.parametrize("exponent", [-3, 0, 1, 5])
def test_matrix_power_agrees_with_numpy(exponent: int) -> None:
    a = invertible(3, 3)
    np.testing.assert_allclose(run(lambda a: matrix_power(a, exponent), a), np.linalg.matrix_power(a, exponent))


def test_second_derivatives_of_a_singular_determinant_are_not_finite_instead_of_an_error() -> None:
    def curvature(a: Any) -> Any:
        (slope,) = aj.autograd.grad(aj.linalg.det(a), a, create_graph=True)
        return aj.autograd.grad(slope.square().sum(), a)[0]

    singular = aj.tensor([[1.0, 2.0], [2.0, 4.0]], dtype=aj.float64).requires_grad_()
    regular = aj.tensor([[1.0, 2.0], [2.0, 5.0]], dtype=aj.float64).requires_grad_()
    for second in (curvature, aj.jit(curvature)):
        assert not second(singular).isfinite().any()
        np.testing.assert_allclose(second(regular).numpy(), 2 * regular.detach().numpy(), rtol=1e-12)
