"""LU factors multiply back and solve systems; reflections and tensor systems equal NumPy's; all have derivatives."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import autojit as aj


def draws(*shape: int, is_complex: bool = False, seed: int = 0) -> aj.Tensor:
    generator = np.random.default_rng(seed)
    x = generator.standard_normal(shape)
    return aj.tensor(x + 1j * generator.standard_normal(shape) if is_complex else x)


SHAPES = [(3, 3), (2, 4, 3), (3, 5), (2, 2, 3, 3), (0, 3), (1, 1)]


@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_factors_multiply_back(shape: tuple[int, ...], is_complex: bool) -> None:
    a = draws(*shape, is_complex=is_complex)
    p, lower, upper = aj.linalg.lu(a)
    np.testing.assert_allclose((p.to(a.dtype) @ lower @ upper).numpy(), a.numpy(), atol=1e-12)
    # of complex entries LAPACK compares the sum of both parts, which is at most sqrt(2) times the absolute value
    assert bool((lower.abs() <= (2**0.5 if is_complex else 1) + 1e-12).all())
    packed, pivots = aj.linalg.lu_factor(a)
    np.testing.assert_allclose(packed.numpy(), aj.linalg.lu_factor_ex(a).LU.numpy())
    assert packed.shape == a.shape
    assert pivots.dtype is aj.int32


def test_without_exchanges_the_permutation_is_empty() -> None:
    a = draws(3, 3) + 3 * aj.eye(3)
    p, lower, upper = aj.linalg.lu(a, pivot=False)
    assert p.numel() == 0
    np.testing.assert_allclose((lower @ upper).numpy(), a.numpy(), atol=1e-12)


@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("left", [False, True])
def test_factors_solve_systems(left: bool, adjoint: bool) -> None:
    a, b = draws(2, 3, 3, is_complex=True), draws(3, 3, is_complex=True, seed=1)
    x = aj.linalg.lu_solve(*aj.linalg.lu_factor(a), b, left=left, adjoint=adjoint)
    matrix = a.mH if adjoint else a
    product = matrix @ x if left else x @ matrix
    np.testing.assert_allclose(product.numpy(), np.broadcast_to(b.numpy(), (2, 3, 3)), atol=1e-11)


def test_a_singular_matrix_is_reported() -> None:
    a = aj.tensor([[1.0, 2.0], [2.0, 4.0]])
    assert aj.linalg.lu_factor_ex(a).info.item() == 2
    with pytest.raises(aj.linalg.LinAlgError, match=r"U\[2,2\] is zero"):
        aj.linalg.lu_factor(a)
    with pytest.raises(RuntimeError, match="at least 2 dimensions"):
        aj.linalg.lu(aj.ones(2))


def test_reflections_multiply_to_the_orthonormal_factor() -> None:
    (packed, tau), expected = np.linalg.qr(draws(5, 3).numpy(), mode="raw"), np.linalg.qr(draws(5, 3).numpy())
    found = aj.linalg.householder_product(aj.from_numpy(packed.T.copy()), aj.from_numpy(tau))
    np.testing.assert_allclose(found.numpy(), expected.Q, atol=1e-12)
    with pytest.raises(RuntimeError, match=r"input.shape\[-2\] must be greater"):
        aj.linalg.householder_product(aj.ones(2, 3), aj.ones(2))


def test_tensors_are_solved_as_matrices() -> None:
    a, b = draws(6, 2, 3), draws(6, seed=1)
    np.testing.assert_allclose(aj.linalg.tensorsolve(a, b).numpy(), np.linalg.tensorsolve(a.numpy(), b.numpy()))
    np.testing.assert_allclose(aj.linalg.tensorinv(a, 1).numpy(), np.linalg.tensorinv(a.numpy(), 1))
    moved = a.movedim(0, 1)
    np.testing.assert_allclose(
        aj.linalg.tensorsolve(moved, b, dims=(0, 2)).numpy(), np.linalg.tensorsolve(moved.numpy(), b.numpy(), (0, 2))
    )
    with pytest.raises(RuntimeError, match="strictly positive"):
        aj.linalg.tensorinv(a, 0)


FUNCTIONS: dict[str, tuple[Callable[..., object], tuple[tuple[int, ...], ...]]] = {
    "square": (lambda a: aj.linalg.lu(a)[1:], ((3, 3),)),
    "tall": (lambda a: aj.linalg.lu(a)[1:], ((2, 4, 2),)),
    "wide": (lambda a: aj.linalg.lu_factor(a)[0], ((2, 4),)),
    "solve": (lambda a, b: aj.linalg.lu_solve(*aj.linalg.lu_factor(a), b, left=False), ((3, 3), (2, 3))),
    "reflections": (aj.linalg.householder_product, ((4, 2), (2,))),
    "tensorinv": (lambda a: aj.linalg.tensorinv(a, 1), ((4, 2, 2),)),
    "tensorsolve": (aj.linalg.tensorsolve, ((4, 2, 2), (4,))),
}


@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives(name: str, is_complex: bool) -> None:
    function, shapes = FUNCTIONS[name]
    inputs = tuple(draws(*shape, is_complex=is_complex, seed=k).requires_grad_() for k, shape in enumerate(shapes))
    assert aj.autograd.gradcheck(function, inputs, check_forward_ad=True)
    if not is_complex:
        assert aj.autograd.gradgradcheck(function, inputs, atol=1e-4)


@pytest.mark.parametrize("name", ["square", "wide", "solve", "reflections"])
def test_steps_compute_what_eager_code_does(name: str) -> None:
    function, shapes = FUNCTIONS[name]
    inputs = tuple(draws(*shape, seed=k) for k, shape in enumerate(shapes))
    jitted = aj.jit(function)
    for _ in range(3):
        found, expected = jitted(*inputs), function(*inputs)
        pairs = zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]
        for y, z in pairs:
            np.testing.assert_allclose(y.numpy(), z.numpy(), atol=1e-12)
