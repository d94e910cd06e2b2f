"""Bessel functions of the second kind and the Airy function against SciPy, with derivatives of every order."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special as reference

import autojit as aj

BESSEL = [("bessel_y0", reference.y0), ("bessel_y1", reference.y1)]


@pytest.mark.parametrize(("name", "expected"), BESSEL)
def test_bessel_functions_of_the_second_kind(name: str, expected: np.ufunc) -> None:
    x = np.concatenate([np.logspace(-12, 2, 500), np.linspace(0.01, 60, 700)])
    found = getattr(aj.special, name)(aj.from_numpy(x)).numpy()
    amplitude = np.maximum(np.abs(expected(x)), np.minimum(1, 1 / np.sqrt(x)))
    assert (np.abs(found - expected(x)) / amplitude).max() < 1e-14
    edges = getattr(aj.special, name)(aj.tensor([-1.0, 0.0, np.inf, np.nan])).numpy()
    np.testing.assert_array_equal(edges, [np.nan, -np.inf, 0.0, np.nan])
    assert getattr(aj.special, name)(aj.tensor([1])).dtype is aj.float32


def test_the_airy_function() -> None:
    x = np.concatenate([np.linspace(-40, 0, 500), np.linspace(0, 20, 500)])
    expected = reference.airy(x)[0]
    amplitude = np.where(x < 0, np.minimum(1, np.abs(x - 1e-9) ** -0.25), np.abs(expected))
    found = aj.special.airy_ai(aj.from_numpy(x)).numpy()
    assert (np.abs(found - expected) / amplitude).max() < 1e-13
    edges = aj.special.airy_ai(aj.tensor([-np.inf, np.inf, np.nan])).numpy()
    np.testing.assert_array_equal(edges, [0.0, 0.0, np.nan])


@pytest.mark.parametrize("name", ["bessel_y0", "bessel_y1", "airy_ai"])
def test_derivatives_to_second_order(name: str) -> None:
    x = aj.tensor([0.4, 1.5, 7.0], dtype=aj.float64, requires_grad=True)
    aj.autograd.gradcheck(getattr(aj.special, name), (x,))
    aj.autograd.gradgradcheck(getattr(aj.special, name), (x,))
