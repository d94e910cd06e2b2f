"""Quantiles agree with NumPy in every interpolation, and are differentiable in both operands."""

from __future__ import annotations

import numpy as np
import pytest

import autojit as aj


@pytest.mark.parametrize("method", ["linear", "lower", "higher", "midpoint", "nearest"])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_quantiles_are_numpys(method: str, axis: int | None) -> None:
    values, points = np.random.default_rng(0).standard_normal((4, 6)), np.array([0.0, 0.3, 0.5, 1.0])
    found = aj.quantile(aj.tensor(values), aj.tensor(points), axis, keepdim=True, interpolation=method)
    expected = np.quantile(values, points, axis, keepdims=True, method=method)  # type: ignore[call-overload]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-14)
    one = aj.quantile(aj.tensor(values), 0.3, axis, interpolation=method)
    np.testing.assert_allclose(one.numpy(), expected[1].reshape(one.shape), rtol=1e-14)


def test_quantiles_have_right_derivatives_also_by_the_place() -> None:
    x = aj.tensor(np.random.default_rng(1).permutation(6) * 1.0, requires_grad=True)
    q = aj.tensor([0.13, 0.77], dtype=aj.float64, requires_grad=True)
    assert aj.autograd.gradcheck(lambda x, q: aj.quantile(x, q), (x, q))


def test_a_row_with_nan_gives_nan() -> None:
    found = aj.quantile(aj.tensor([[1.0, float("nan"), 0.0], [1.0, 2.0, 3.0]]), 0.0, 1)
    assert found.isnan().tolist() == [True, False]


def test_a_place_outside_the_unit_interval_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="range"):
        aj.quantile(aj.ones(3), aj.tensor([0.5, 1.5]))
