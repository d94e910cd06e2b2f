"""DLPack, other libraries' arrays, notebooks, SciPy's optimisers, plots."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.interop import ScipyObjective

DTYPES = [aj.bool, aj.uint8, aj.int16, aj.int64, aj.float16, aj.float32, aj.float64, aj.complex64, aj.complex128]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_memory_is_shared_with_numpy(dtype: Any) -> None:
    x = aj.arange(6).reshape(2, 3).T.to(dtype)
    array = np.from_dlpack(x)
    assert array.dtype == dtype.numpy
    assert np.shares_memory(array, x.numpy())
    back = aj.from_dlpack(array)
    assert back.stride() == x.stride()
    x.zero_()  # NumPy 2.1 gives memory of others out read-only
    assert not back.any()


def test_bfloat16_goes_through_a_capsule() -> None:
    x = aj.tensor([1.5, -2.0], dtype=aj.bfloat16)
    back = aj.from_dlpack(aj.utils.dlpack.to_dlpack(x))
    assert back.dtype is aj.bfloat16
    assert back.data_ptr() == x.data_ptr()
    assert x.__dlpack_device__() == (1, 0)


def test_copies_are_made_when_asked_for() -> None:
    array = np.zeros(2)
    assert aj.from_dlpack(array, copy=True).data_ptr() != array.ctypes.data
    assert aj.as_tensor(array).data_ptr() == array.ctypes.data
    assert aj.tensor(array).data_ptr() != array.ctypes.data


def test_what_cannot_be_exchanged_is_refused() -> None:
    with pytest.raises(BufferError, match="detach"):
        np.from_dlpack(aj.ones(2, requires_grad=True))
    with pytest.raises(TypeError, match="__dlpack__"):
        aj.from_dlpack([1.0])
    capsule = aj.ones(2).__dlpack__()
    aj.from_dlpack(capsule)
    with pytest.raises(ValueError, match="used before"):
        aj.from_dlpack(capsule)
    with pytest.raises(ValueError, match="negative stride"):
        aj.from_dlpack(np.arange(3.0)[::-1])
    assert np.from_dlpack(aj.arange(3).flip(0)).tolist() == [2, 1, 0]
    with pytest.raises(BufferError, match="stream"):
        aj.ones(2).__dlpack__(stream=3)

    class Elsewhere:
        def __dlpack__(self, **options: Any) -> Any:
            raise AssertionError

        def __dlpack_device__(self) -> tuple[int, int]:
            return 8, 0

    with pytest.raises(BufferError, match="device 8"):
        aj.from_dlpack(Elsewhere())


def test_arrays_of_other_libraries_keep_their_dtype() -> None:
    class Foreign:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return np.array([1.0, 2.0])

    assert aj.tensor(Foreign()).dtype is aj.float64
    assert aj.as_tensor(Foreign(), dtype=aj.float32).dtype is aj.float32


def test_read_only_memory_is_not_written() -> None:
    array = np.zeros(2)
    array.flags.writeable = False
    x = aj.from_dlpack(array)
    with pytest.raises(RuntimeError, match="read-only"):
        x.add_(1)


def test_tensors_of_torch_come_and_go_without_a_copy() -> None:
    torch = pytest.importorskip("torch")
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64):
        theirs = torch.arange(6).reshape(2, 3).T.to(dtype)
        ours = aj.as_tensor(theirs)
        assert ours.data_ptr() == theirs.data_ptr() == torch.from_dlpack(ours).data_ptr()
        assert ours.tolist() == theirs.tolist()
    model = aj.nn.Linear(2, 3)
    model.load_state_dict(torch.nn.Linear(2, 3).state_dict())


def test_arrays_of_jax_come_and_go() -> None:
    jax = pytest.importorskip("jax")
    assert aj.as_tensor(jax.numpy.arange(3.0)).tolist() == [0.0, 1.0, 2.0]
    assert jax.numpy.from_dlpack(aj.ones(2)).tolist() == [1.0, 1.0]


def test_notebooks_show_tables() -> None:
    found = aj.arange(400.0).reshape(20, 20).requires_grad_()._repr_html_()
    assert found.count("<tr>") == 7
    assert found.count("…") == 7 + 6
    assert "f32[20, 20] · requires_grad" in found
    several = aj.arange(48.0).reshape(4, 3, 2, 2)._repr_html_()
    assert several.count("<table") == 4
    assert "[0, 0]" in several and "[3, 2]" in several and "47" in several
    assert aj.ones(0, 2, 2)._repr_html_().startswith("<pre>tensor(")
    assert "&lt;AddBackward0&gt;" in (aj.tensor(1.0, requires_grad=True) + 1)._repr_html_()
    step = aj.jit(lambda x: x + 1)
    step(aj.ones(2))
    assert "<b>&lt;lambda&gt;: compiled" in step.explain()._repr_html_()


def rosenbrock(x: Any, a: float = 1.0) -> Any:
    """A valley that bends."""
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (a - x[:-1]) ** 2)


@pytest.mark.parametrize("compiled", [True, False])
def test_optimisers_of_scipy_take_an_objective(compiled: bool) -> None:
    optimize = pytest.importorskip("scipy.optimize")
    objective = ScipyObjective(rosenbrock, compiled=compiled)
    start = np.array([0.5, -0.3, 0.8])
    value, gradient = objective(start)
    assert value == pytest.approx(optimize.rosen(start))
    np.testing.assert_allclose(gradient, optimize.rosen_der(start))
    np.testing.assert_allclose(objective.hess(start), optimize.rosen_hess(start), atol=1e-9)
    np.testing.assert_allclose(objective.hessp(start, start), optimize.rosen_hess(start) @ start)
    for method, more in (
        ("L-BFGS-B", {}),
        ("trust-exact", {"hess": objective.hess}),
        ("Newton-CG", {"hessp": objective.hessp}),
    ):
        found = optimize.minimize(objective, start, jac=True, method=method, **more)
        np.testing.assert_allclose(found.x, 1.0, atol=1e-3)
    shaped = ScipyObjective(lambda x: (x - aj.eye(2)).square().sum(), shape=(2, 2), compiled=compiled)
    np.testing.assert_allclose(optimize.minimize(shaped, np.zeros(4), jac=True).x, [1, 0, 0, 1], atol=1e-5)
    with pytest.raises(RuntimeError, match="one number"):
        ScipyObjective(lambda x: x, compiled=compiled)(start)


def diffusing(x: Any) -> Any:
    """Changes arrays that derivatives need, step by step."""
    u = x.copy()
    v = np.sin(u)
    for _ in range(3):
        lap = np.zeros_like(u)
        lap[1:-1] = u[:-2] + u[2:] - 2 * u[1:-1]
        u = u + 0.1 * (lap - u * v**2)
        v[1:-1] += 0.1 * (u * v**2)[1:-1]
        u[[0, -1]] = 0
    return np.sum(u**2) + np.mean(v)


@pytest.mark.parametrize("compiled", [True, False])
def test_an_objective_may_change_its_arrays_in_place(compiled: bool) -> None:
    objective, x = ScipyObjective(diffusing, compiled=compiled), np.array([0.3, -0.8, 1.1, 0.4, -0.2])
    steps = 1e-6 * np.eye(5)
    wanted = [(diffusing(x + h) - diffusing(x - h)) / 2e-6 for h in steps]
    np.testing.assert_allclose(objective(x)[1], wanted, atol=1e-8)
    curvature = [(objective(x + h)[1] - objective(x - h)[1]) / 2e-6 for h in steps]
    np.testing.assert_allclose(objective.hessp(x, x), np.array(curvature) @ x, atol=1e-6)


def test_tensors_are_plotted(tmp_path: Any) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    x = aj.arange(6.0).reshape(2, 3)
    figure, axes = plt.subplots(2, 4)
    axes[0, 0].plot(x[0], x[1])
    axes[0, 1].plot(x.detach())
    axes[0, 2].scatter(x[0], x[1], c=x[0])
    axes[0, 3].imshow(x)
    axes[1, 0].hist(x.reshape(-1))
    axes[1, 1].bar(x[0], x[1])
    axes[1, 2].errorbar(x[0], x[1], yerr=x[0])
    axes[1, 3].fill_between(x[0], x[1])
    figure.savefig(tmp_path / "plot.png")
    plt.close(figure)


def test_compiled_functions_take_other_libraries_arrays() -> None:
    class Lent:
        def __init__(self, array: Any) -> None:
            self.array = array

        def __dlpack__(self, **options: Any) -> Any:
            return self.array.__dlpack__()

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    array = np.arange(3.0)
    double = aj.jit(lambda x: 2 * x)
    assert double(Lent(array)).tolist() == [0.0, 2.0, 4.0]
    array[0] = 5.0
    assert double(Lent(array)).tolist() == [10.0, 2.0, 4.0]
    assert double.stats()["captures"] == 1
