"""The NumPy error and gamma functions stay within their stated error, against mpmath."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

from autojit.ops import special_reference as reference

RNG = np.random.default_rng(0)
CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], Any, float, float]] = {
    # function, exact, points, allowed error, least magnitude it is relative to
    "erf": (reference.erf, mpmath.erf, np.r_[RNG.uniform(-6, 6, 200), 10.0 ** RNG.uniform(-300, 0, 50)], 1.0, 0.0),
    "erfc": (reference.erfc, mpmath.erfc, np.r_[RNG.uniform(-6, 26, 200), RNG.uniform(-1.3, 1.3, 100)], 2.5, 0.0),
    "erfinv": (reference.erfinv, mpmath.erfinv, np.r_[RNG.uniform(-1, 1, 40), 1 - 2.0**-52], 2.0, 0.0),
    "lgamma": (reference.lgamma, mpmath.loggamma, RNG.uniform(0.001, 50, 200), 8.0, 1.0),
    "digamma": (reference.digamma, mpmath.digamma, np.r_[RNG.uniform(0, 50, 100), RNG.uniform(-5, 0, 50)], 8.0, 1.0),
    "trigamma": (
        lambda x: reference.polygamma(1, x), lambda x: mpmath.polygamma(1, x), RNG.uniform(-3, 9, 60), 8.0, 1.0,
    ),
    "polygamma 4": (
        lambda x: reference.polygamma(4, x), lambda x: mpmath.polygamma(4, x), RNG.uniform(0.1, 9, 60), 8.0, 1.0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_function_stays_within_its_stated_error(name: str) -> None:
    function, exact, points, allowed, least = CASES[name]
    with mpmath.workdps(40):
        for x, found in zip(points, function(points), strict=True):
            expected = mpmath.re(exact(mpmath.mpf(float(x))))
            unit = float(np.spacing(max(least, abs(float(expected)))))
            assert abs(mpmath.mpf(float(found)) - expected) <= allowed * unit, x


def test_edges() -> None:
    with np.errstate(all="ignore"):
        x = np.array([np.inf, -np.inf, np.nan, 0.0])
        np.testing.assert_array_equal(reference.erf(x), [1, -1, np.nan, 0])
        np.testing.assert_array_equal(reference.erfc(x), [0, 2, np.nan, 1])
        np.testing.assert_array_equal(reference.erfinv(np.array([1, -1, 2, 0.0])), [np.inf, -np.inf, np.nan, 0])
        np.testing.assert_array_equal(reference.lgamma(np.array([0.0, -1, 1, np.inf])), [np.inf, np.inf, 0, np.inf])
        np.testing.assert_array_equal(reference.digamma(np.array([0.0, -0.0, -1])), [-np.inf, np.inf, np.nan])
        np.testing.assert_array_equal(reference.polygamma(1, np.array([0.0, -1.0])), [np.inf, np.inf])
