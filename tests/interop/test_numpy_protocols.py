"""NumPy programs over tensors: in-place changes, what has no form, which dtype comes out, what stays NumPy's."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import autojit as aj

POINTS = np.random.default_rng(0).normal(size=(5, 3)) * 2


def lennard_jones(x: Any) -> Any:
    """Energy of atoms at ``x``."""
    r = x[:, None, :] - x[None, :, :]
    d2 = np.sum(r * r, axis=-1) + np.eye(len(x))
    inv6 = (1.0 / d2) ** 3
    return np.sum(np.triu(4 * (inv6**2 - inv6), 1))


def springs(x: Any) -> Any:
    """A chain, its forces gathered in place."""
    f = np.zeros_like(x)
    d = x[1:] - x[:-1]
    f[1:] += d
    f[:-1] -= d
    f[0] = x[0] * 2
    f *= 0.5
    np.add.at(f, [0, 0, 1], np.ones((3, x.shape[1])) * x[2])
    np.maximum(f, -5, out=f)
    np.multiply(f, x, out=f)
    lengths = np.linalg.norm(d, axis=1)
    return 0.5 * np.sum((lengths - 1.0) ** 2) + np.einsum("ij,ij->", f, f)


def magnet(x: Any) -> Any:
    """Neighbours on a torus."""
    s = np.tanh(x)
    near = np.roll(s, 1, 0) + np.roll(s, -1, 0) + np.roll(s, 1, 1) + np.roll(s, -1, 1)
    rows = np.concatenate([s, s**2], axis=1)
    return -0.5 * np.mean(s * near) + np.where(s > 0, s, 0).sum() + rows.prod(axis=1).sum()


def filled_by_slices(x: Any) -> Any:
    """What slices, masks and functions with a target write."""
    out = np.empty(x.shape, like=x)
    out[::2] = np.exp(x[::2])
    out[1::2] = x[::2][:2] * x[1::2]
    out[out > 3.0] = 3.0
    np.fill_diagonal(out[:3], x[0, 0])
    np.copyto(out[4], x[0], where=x[1] > 0)
    np.put_along_axis(out, np.array([[0], [1], [2], [0], [1]]), 2 * x[:, :1], axis=1)
    np.clip(out, -2.0, 2.5, out=out)
    return np.sum(out * np.arange(15.0).reshape(5, 3))


ENERGIES = [lennard_jones, springs, magnet, filled_by_slices]


@pytest.mark.parametrize("energy", ENERGIES, ids=lambda f: f.__name__)
def test_an_energy_function_differentiates_unchanged(energy: Any) -> None:
    x = aj.tensor(POINTS, requires_grad=True)
    assert float(energy(x)) == pytest.approx(energy(POINTS), rel=1e-12)
    assert aj.autograd.gradcheck(energy, (x,))
    assert aj.autograd.gradgradcheck(energy, (x,))


@pytest.mark.parametrize("energy", ENERGIES, ids=lambda f: f.__name__)
def test_an_energy_function_compiles_unchanged(energy: Any) -> None:
    x = aj.tensor(POINTS, requires_grad=True)
    step = aj.jit(lambda x: aj.autograd.grad(energy(x), (x,))[0])
    for _ in range(3):
        found = step(x)
    (wanted,) = aj.autograd.grad(energy(x), (x,))
    np.testing.assert_allclose(found, wanted, rtol=1e-9)
    assert step.stats()["splits"] == 0
    assert step.stats()["captures"] == 1


def test_numbers_do_not_widen_and_arrays_meet_as_tensors() -> None:
    x, n = aj.ones(3), aj.tensor([1, 2, 3])
    assert (np.float64(2) * x).dtype is aj.float32
    assert np.multiply(x, np.pi).dtype is aj.float32
    assert (np.arange(3) * x).dtype is aj.float32
    assert (np.ones(3) * x).dtype is aj.float64
    assert np.sqrt(n).dtype is aj.float64
    assert np.divide(n, n).dtype is aj.float64
    assert np.mean(n).dtype is aj.float64
    assert np.sum(aj.ones(2, dtype=aj.int32)).dtype is aj.int64
    assert np.add(x, x, dtype=np.float64).dtype is aj.float64
    assert np.exp(aj.ones(2, dtype=aj.bfloat16)).dtype is aj.bfloat16


def test_a_gradient_is_never_lost_to_an_array() -> None:
    x, array = aj.ones(3, requires_grad=True), np.zeros(3)
    with pytest.raises(TypeError, match="zeros_like"):
        array += x
    with pytest.raises(TypeError, match="zeros_like"):
        np.exp(x, out=array)
    with pytest.raises(TypeError, match=r"as_tensor\(array\)"):
        np.copyto(array, x)
    with pytest.raises(TypeError, match=r"np\.histogramdd"):
        np.histogramdd(x[:, None])
    with pytest.raises(RuntimeError, match="requires grad"):
        np.asarray(x)
    array += x.detach()
    assert array.tolist() == [1.0, 1.0, 1.0]


def test_what_has_no_form_computes_with_values() -> None:
    x = aj.tensor([1.0, 2.0, 4.0])
    counts, _ = np.histogramdd(x[:, None], bins=2)
    assert isinstance(counts, np.ndarray)
    assert np.frexp(x)[1].tolist() == [1, 2, 3]
    special = pytest.importorskip("scipy.special")
    assert np.allclose(special.jv(2, x), special.jv(2, x.numpy()))
    with pytest.raises(TypeError, match="jv: this ufunc has no derivative"):
        special.jv(2, aj.ones(2, requires_grad=True))


def test_numpy_code_composes_with_transforms() -> None:
    def row(r: Any) -> Any:
        out = np.zeros_like(r)
        out[1:] = r[:-1] * np.sin(r[1:])
        out[0] = np.where(r[0] > 0.5, r[0], 2.0)
        return np.sum(np.cumsum(out) ** 2) + np.linalg.norm(np.concatenate([r, r**2])) + np.max(r)

    x = aj.tensor([[0.3, 0.9, -0.4], [1.2, 0.1, 0.6]], dtype=aj.float64)
    np.testing.assert_allclose(aj.func.vmap(row)(x), [float(row(r)) for r in x.numpy()])
    slopes = aj.func.vmap(aj.func.grad(row))(x)
    np.testing.assert_allclose(slopes[1], aj.func.grad(row)(x[1]))
    np.testing.assert_allclose(aj.func.jacfwd(row)(x[0]), slopes[0])
    hessian = aj.func.hessian(row)(x[0])
    np.testing.assert_allclose(hessian, aj.func.jacrev(aj.func.grad(row))(x[0]), atol=1e-12)
    compiled = aj.jit(aj.func.vmap(aj.func.hessian(row)))
    np.testing.assert_allclose(compiled(x)[0], hessian, atol=1e-12)


def test_a_ufunc_is_not_known_by_its_name_alone() -> None:
    def erf(x: Any) -> Any:
        return x + 1

    mine = np.frompyfunc(erf, 1, 1)
    assert list(mine(aj.tensor([1.0]))) == [2.0]
    with pytest.raises(TypeError, match="no derivative"):
        mine(aj.ones(1, requires_grad=True))


def test_ufuncs_of_scipy_differentiate() -> None:
    special = pytest.importorskip("scipy.special")
    x = aj.tensor([0.3, 0.7, 1.9], dtype=aj.float64, requires_grad=True)
    for name in (
        "erf",
        "erfc",
        "expit",
        "gammaln",
        "psi",
        "i0",
        "j0",
        "ndtr",
        "log_ndtr",
        "entr",
        "exprel",
        "log_expit",
    ):
        ufunc = getattr(special, name)
        np.testing.assert_allclose(ufunc(x).detach(), ufunc(x.detach().numpy()), rtol=1e-10)
        assert aj.autograd.gradcheck(ufunc, (x,))
    assert aj.autograd.gradcheck(lambda x: special.xlogy(x, x), (x,))


def test_the_unsupported_part_of_a_function_is_named() -> None:
    x = aj.rand(4)
    for call in (
        lambda: np.pad(x, 1, mode="maximum"), lambda: np.quantile(x, 0.5, method="weibull"),
        lambda: np.linalg.qr(aj.eye(2), mode="raw"), lambda: np.matmul(aj.eye(2), aj.eye(2), axes=[(0, 1)] * 3),
        lambda: np.hypot.at(x, [0], 1.0), lambda: np.exp(x, signature="d->d"),
    ):  # fmt: skip
        with pytest.raises(TypeError, match="np\\."):
            call()
    with pytest.raises(np.exceptions.AxisError):
        np.sum(x, axis=3)
    with pytest.raises(ValueError, match="identity"):
        np.max(aj.empty(0))
    with pytest.raises(ValueError, match="shape"):
        np.add(x, x, out=aj.empty(3))


def test_at_counts_a_place_as_often_as_it_occurs() -> None:
    for ufunc, value in ((np.add, 2.0), (np.subtract, 2.0), (np.multiply, 3.0), (np.maximum, 1.5), (np.minimum, 0.5)):
        array, tensor = np.ones((3, 2)), aj.ones(3, 2, dtype=aj.float64)
        ufunc.at(array, ([0, 0, 2], [1, 1, 0]), value)
        ufunc.at(tensor, ([0, 0, 2], [1, 1, 0]), value)
        np.testing.assert_array_equal(tensor, array)
    target = aj.ones(3)
    np.negative.at(target, [0, 2])
    assert target.tolist() == [-1.0, 1.0, -1.0]


def test_classes_with_a_protocol_of_their_own_are_asked() -> None:
    class Mine:
        __array_priority__ = 0

        def __array_ufunc__(self, *call: Any, **options: Any) -> str:
            return "mine"

        def __array_function__(self, *call: Any) -> str:
            return "mine"

    assert np.add(aj.ones(2), Mine()) == "mine"
    assert np.concatenate([aj.ones(2), Mine()]) == "mine"


def test_scripts_written_for_torch_keep_working() -> None:
    x = aj.arange(6.0).reshape(2, 3)
    np.testing.assert_allclose(x, x.numpy())
    np.testing.assert_array_equal(x, x)
    assert np.array_equal(x, x.numpy())
    assert np.shares_memory(np.asarray(x), x.numpy())
    assert np.asarray(x, dtype=np.float64).dtype == np.float64
    assert np.array([x[0], x[1]]).shape == (2, 3)
    assert float(np.mean(x.detach())) == 2.5
    assert f"{np.mean(x):.2f}" == "2.50"
    assert np.arange(3)[aj.tensor([0, 2])].tolist() == [0, 2]
    with pytest.raises(ValueError, match="only one element"):
        float(x)


def test_copies_and_pickles() -> None:
    x = aj.ones(2, requires_grad=True)
    x.tag = "mine"
    same = copy.copy(x)
    assert same.data_ptr() == x.data_ptr()
    assert (same.requires_grad, same.tag) == (True, "mine")
    assert pickle.loads(pickle.dumps(x)).tolist() == [1.0, 1.0]


def test_inside_a_step_values_for_numpy_split_it_visibly() -> None:
    step = aj.jit(lambda x: x * float(np.histogramdd(x.detach()[:, None], bins=1)[0].sum()))
    with pytest.raises(TypeError, match=r"outside of aj\.jit"):
        step(aj.ones(3))
    with pytest.raises(TypeError, match="cannot follow"):
        aj.jit(lambda x: np.exp(x, out=np.zeros(3)))(aj.ones(3))
