"""Packed LU and QR unpack to their factors, multiply and solve; what differentiates does so twice."""

from __future__ import annotations

import numpy as np
import pytest

import autojit as aj


def draws(*shape: int, is_complex: bool = False, seed: int = 0) -> aj.Tensor:
    generator = np.random.default_rng(seed)
    x = generator.standard_normal(shape)
    return aj.from_numpy(x + 1j * generator.standard_normal(shape) if is_complex else x)


@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 3), (3, 5)])
@pytest.mark.parametrize("is_complex", [False, True])
def test_lu_unpacks_to_its_factors(shape: tuple[int, ...], is_complex: bool) -> None:
    a = draws(*shape, is_complex=is_complex)
    p, lower, upper = aj.lu_unpack(*aj.linalg.lu_factor(a))
    np.testing.assert_allclose((p @ lower @ upper).numpy(), a.numpy(), atol=1e-12)
    assert aj.lu_unpack(*aj.linalg.lu_factor(a), unpack_data=False).L.numel() == 0
    assert aj.lu_unpack(*aj.linalg.lu_factor(a), unpack_pivots=False).P.numel() == 0


def test_lu_under_its_older_names() -> None:
    a, b = draws(2, 3, 3), draws(2, 3, 1, seed=1)
    with pytest.warns(UserWarning):
        packed, pivots, info = a.lu(get_infos=True)
    np.testing.assert_allclose((a @ b.lu_solve(packed, pivots)).numpy(), b.numpy(), atol=1e-12)
    assert info.eq(0).all()
    with pytest.warns(UserWarning), pytest.raises(RuntimeError, match="without pivoting"):
        aj.lu(a, pivot=False)
    with pytest.raises(RuntimeError, match="int32"):
        aj.lu_unpack(packed, pivots.long())


@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 2), (2, 4)])
def test_qr_in_packed_form(shape: tuple[int, ...]) -> None:
    a = draws(*shape)
    packed, tau = aj.geqrf(a)
    m, n = shape[-2:]
    identity = aj.eye(m, dtype=aj.float64).expand(*shape[:-2], m, m)
    q = aj.ormqr(packed[..., : min(m, n)], tau, identity)
    np.testing.assert_allclose((q @ packed.triu()).numpy(), a.numpy(), atol=1e-12)
    if m >= n:
        np.testing.assert_allclose(aj.orgqr(packed, tau).numpy(), q[..., :n].numpy(), atol=1e-12)


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("transpose", [True, False])
@pytest.mark.parametrize("is_complex", [False, True])
def test_products_with_reflections(left: bool, transpose: bool, is_complex: bool) -> None:
    a = draws(4, 3, is_complex=is_complex)
    b = draws(*((4, 2) if left else (2, 4)), is_complex=is_complex, seed=1)
    packed, tau = aj.geqrf(a)
    q = aj.ormqr(packed, tau, aj.eye(4, dtype=a.dtype)).numpy()
    factor = q.conj().T if transpose else q
    expected = factor @ b.numpy() if left else b.numpy() @ factor
    np.testing.assert_allclose(aj.ormqr(packed, tau, b, left, transpose).numpy(), expected, atol=1e-12)
    given = (packed.requires_grad_(), tau.requires_grad_(), b.requires_grad_())
    aj.autograd.gradcheck(lambda *x: aj.ormqr(*x, left, transpose), given)
    aj.autograd.gradgradcheck(lambda *x: aj.ormqr(*x, left, transpose), given)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(RuntimeError, match="2 dimensions"):
        aj.geqrf(aj.ones(3))
    with pytest.raises(RuntimeError, match="tau"):
        aj.ormqr(aj.ones(3, 2), aj.ones(3), aj.ones(3, 3))
    with pytest.raises(RuntimeError, match="other"):
        aj.ormqr(aj.ones(3, 2), aj.ones(2), aj.ones(2, 3))


@pytest.mark.parametrize("name", ["eig", "symeig", "lstsq", "solve", "matrix_rank"])
def test_removed_names_say_what_replaces_them(name: str) -> None:
    arguments = (aj.eye(2), aj.eye(2)) if name in ("lstsq", "solve") else (aj.eye(2),)
    with pytest.raises(RuntimeError, match=r"now removed(.|\n)*linalg\."):
        getattr(aj, name)(*arguments)
