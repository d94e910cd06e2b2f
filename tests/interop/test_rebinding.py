"""``autojit.numpy`` and ``on_tensors``: programs that make arrays and fill them differentiate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import numpy as over_tensors
from autojit.interop import ScipyObjective, on_tensors

SCALE = 3.0
zeros = np.zeros


def pair_forces(x: Any) -> Any:
    """Forces of springs between all pairs, filled one by one."""
    forces = np.zeros(len(x))
    for i in range(len(x)):
        for j in range(i):
            apart = x[i] - x[j]
            forces[i] -= SCALE * apart
            forces[j] += SCALE * apart**3
    return forces


def action(x: Any) -> Any:
    """Uses another function of its module, and NumPy's functions under their own names."""
    weights = np.linspace(0.5, 1.5, len(x))
    table = zeros((2, len(x)))
    table[0] = pair_forces(x)
    table[1, ::2] = x[::2]
    rest = np.array([x[0], 1.0, np.sum(x)])
    return np.sum(weights * table[0] ** 2) + np.einsum("ij,j->", table, weights) + rest @ rest


X = np.array([0.3, -1.2, 0.8, 2.0])


def test_a_program_that_fills_arrays_differentiates_unchanged() -> None:
    function = on_tensors(action)
    x = aj.tensor(X, requires_grad=True)
    assert float(function(x)) == pytest.approx(float(action(X)))
    assert aj.autograd.gradcheck(function, (x,))
    assert aj.autograd.gradgradcheck(function, (x,))
    step = aj.jit(lambda x: aj.autograd.grad(function(x), (x,))[0])
    for _ in range(2):
        found = step(x)
    np.testing.assert_allclose(found, aj.autograd.grad(function(x), (x,))[0])
    assert (step.stats()["splits"], step.stats()["fallbacks"]) == (0, 0)


def test_it_is_minimised_by_scipy() -> None:
    optimize = pytest.importorskip("scipy.optimize")
    found = optimize.minimize(ScipyObjective(on_tensors(action)), X, jac=True, method="L-BFGS-B")
    assert found.success
    np.testing.assert_allclose(optimize.approx_fprime(found.x, action), 0.0, atol=1e-3)


def test_closures_defaults_and_names_are_kept() -> None:
    factor = 2.0

    def inner(x: Any, *, power: int = 2) -> Any:
        """Doc."""
        return factor * np.full(2, x) ** power

    function = on_tensors(inner)
    assert (function.__name__, function.__doc__) == ("inner", "Doc.")
    assert isinstance(function(3.0), aj.Tensor)
    assert function(3.0, power=1).tolist() == [6.0, 6.0]
    assert isinstance(inner(3.0), np.ndarray)
    with pytest.raises(TypeError, match="written in Python"):
        on_tensors(np.sin)


def test_the_namespace_is_numpys() -> None:
    assert over_tensors.pi == np.pi
    assert over_tensors.linalg is np.linalg
    assert over_tensors.zeros(2).dtype is aj.float64
    assert over_tensors.arange(3).dtype is aj.int64
    assert over_tensors.ones((2, 2), dtype=np.float32).dtype is aj.float32
    x = aj.tensor(2.0, requires_grad=True)
    over_tensors.array([[x, 1.0], [x * x, 0.0]]).sum().backward()
    assert float(x.grad) == 5.0
    assert "einsum" in dir(over_tensors)
    with pytest.raises(AttributeError):
        _ = over_tensors.no_such_name
