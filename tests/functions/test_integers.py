"""Common factors, mantissas and positions equal NumPy's; the mantissa differentiates."""

from __future__ import annotations

import math

import numpy as np
import pytest

import autojit as aj


@pytest.mark.parametrize("name", ["gcd", "lcm"])
def test_common_factors_are_numpys(name: str) -> None:
    x, y = aj.tensor([[12], [-6], [0]]), aj.tensor([8, 5, 0, -4], dtype=aj.int32)
    expected = getattr(np, name)(x.numpy(), y.numpy())
    for found in (getattr(aj, name)(x, y), getattr(x, name)(y), aj.jit(getattr(aj, name))(x, y)):
        np.testing.assert_array_equal(found.numpy(), expected)
        assert found.dtype is aj.int64
    z = x.clone()
    assert getattr(z, f"{name}_")(aj.tensor(8)) is z
    np.testing.assert_array_equal(z.numpy(), getattr(np, name)(x.numpy(), 8))
    with pytest.raises(NotImplementedError, match=f"{name}_cpu"):
        getattr(aj, name)(aj.ones(2), y)
    with pytest.raises(TypeError, match="must be Tensor"):
        getattr(aj, name)(x, 3)


@pytest.mark.parametrize("dtype", [aj.float16, aj.bfloat16, aj.float32, aj.float64])
def test_mantissa_and_exponent_are_numpys(dtype: aj.dtype) -> None:
    values = [0.0, -0.0, 1.0, -3.0, 0.1, 1e-7, 6e4, math.inf, -math.inf, math.nan]
    if dtype in (aj.float32, aj.float64):
        values += [1e-42, 3e38, 1.17549435e-38]
    if dtype is aj.float64:
        values += [5e-324, 1.7e308, 2.2250738585072014e-308]
    x = aj.tensor(values, dtype=dtype)
    mantissa, exponent = np.frexp(x.double().numpy())
    for found in (aj.frexp(x), aj.jit(aj.frexp)(x)):
        np.testing.assert_array_equal(found.mantissa.double().numpy(), mantissa)
        np.testing.assert_array_equal(np.signbit(found.mantissa.double().numpy()[:2]), [False, True])
        np.testing.assert_array_equal(found.exponent.numpy(), exponent)
        assert found.mantissa.dtype is dtype
        assert found.exponent.dtype is aj.int32


def test_the_mantissa_differentiates() -> None:
    x = aj.tensor([0.3, -5.0, 100.0], dtype=aj.float64, requires_grad=True)
    aj.autograd.gradcheck(lambda x: aj.frexp(x).mantissa, (x,))
    aj.autograd.gradgradcheck(lambda x: aj.frexp(x * x).mantissa, (x,))
    with pytest.raises(RuntimeError, match="floating-point"):
        aj.frexp(aj.tensor([1]))


def test_positions_of_a_fixed_number() -> None:
    x = aj.tensor([[1, 0, 2], [0, 3, 0]])
    expected = np.argwhere(x.numpy())
    compiled = aj.jit(lambda x: aj.nonzero_static(x, size=2))
    np.testing.assert_array_equal(compiled(x).numpy(), expected[:2])
    np.testing.assert_array_equal(compiled(x * 0 + 1).numpy(), [[0, 0], [0, 1]])
    np.testing.assert_array_equal(x.nonzero_static(size=5).numpy(), [*expected, [-1, -1], [-1, -1]])
    assert aj.nonzero_static(aj.tensor(1), size=2).shape == (2, 0)
    np.testing.assert_array_equal(aj.nonzero_static(aj.zeros(0, 2), size=1, fill_value=7).numpy(), [[7, 7]])
    with pytest.raises(RuntimeError, match="non-negative"):
        aj.nonzero_static(x, size=-1)


def test_flat_positions_by_axis() -> None:
    flat = aj.arange(24).reshape(2, 12)
    for found, expected in zip(
        aj.unravel_index(flat, (2, 3, 4)), np.unravel_index(flat.numpy(), (2, 3, 4)), strict=True
    ):
        np.testing.assert_array_equal(found.numpy(), expected)
    assert [p.item() for p in aj.unravel_index(aj.tensor(-1), (2, 3))] == [1, 2]
    with pytest.raises(TypeError, match="integer"):
        aj.unravel_index(aj.ones(1), (2, 3))
    with pytest.raises(ValueError, match="negative"):
        aj.unravel_index(flat, (-2, 3))
