"""Every special function against mpmath at its hard points, eager and compiled: the bounds of ``docs/notes.md``.

Points follow from rules, not from a look at errors: the zeros and poles, the places where an implementation changes its
formula (``joins``), each with neighbours at distances from one ulp to 1/8; magnitudes spaced evenly in their logarithm
over the whole dtype; denormals, infinities, NaN. Bounds are in units in the last place of the exact result, or where
``scale`` is given (a function with zeros that no formula keeps) of that scale.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import mpmath as mp
import numpy as np
import pytest
from numpy.typing import NDArray

import autojit as aj

Array = NDArray[np.float64]
S = aj.special
DIGITS = 60


class Case(NamedTuple):
    """A function: ours, mpmath's, where it is tested (sign: 1 positive only, 0 both), its joins, its bound in ulp."""

    of: Callable[[Any], Any]
    exact: Callable[[Any], Any]
    bound: float
    joins: tuple[float, ...] = (0.0,)
    low: float = -math.inf
    high: float = math.inf
    scale: Callable[[float], float] | None = None


def sinc(x: Any) -> Any:
    return mp.mpf(1) if x == 0 else mp.sinpi(x) / (mp.pi * x)


def entropy(x: Any) -> Any:
    return -x * mp.log(x) if x > 0 else (mp.mpf(0) if x == 0 else -mp.inf)


def quantile(p: Any) -> Any:
    if p in (0, 1):
        return mp.inf if p else -mp.inf
    start = mp.mpf(float(aj.special.ndtri(aj.tensor(float(p), dtype=aj.float64)).item()))
    below = mp.ncdf if p < 0.5 else lambda x: 1 - mp.ncdf(-x)
    return mp.findroot(lambda x: mp.log(below(x) / p), (start, start * (1 + mp.mpf("1e-9")) + mp.mpf("1e-18")))


def envelope(x: float) -> float:
    """How large Bessel functions are around a point, whose zeros no formula keeps."""
    return min(1.0, math.sqrt(2 / (math.pi * abs(x)))) if x else 1.0


CASES: dict[str, Case] = {
    "erf": Case(S.erf, mp.erf, 2, (0.0, 0.84375, 1.25, 6.0)),
    "erfc": Case(S.erfc, mp.erfc, 4, (-6.0, -1.25, 0.0, 0.25, 0.84375, 1.25, 26.0), high=26.5),
    "erfinv": Case(S.erfinv, lambda p: mp.erfinv(p), 4, (0.0, 0.5, 0.85, 0.99662, 0.99904), -1.0, 1.0),
    "erfcx": Case(S.erfcx, lambda x: mp.exp(x * x) * mp.erfc(x), 12, (-1.0, 0.0, 3.75, 26.0), -26.6, 1e3),
    "ndtr": Case(S.ndtr, mp.ncdf, 6, (-37.0, -8.0, -1.0, 0.0, 1.0, 8.0), -37.5),
    "lgamma": Case(aj.lgamma, lambda x: mp.loggamma(x).real, 6, (0.5, 1.0, 1.5, 2.0, 2.5, 3.5, 8.0), 1e-300, 1e300),
    "digamma": Case(aj.digamma, mp.digamma, 8, (0.9116, 1.0, 1.4616321449683622, 2.0116, 10.0), 1e-300, 1e300),
    "sinc": Case(aj.sinc, sinc, 6, (0.0, 0.25, 0.5, 1.0, 2.0, 1e6, 1e15, 2.0**53 - 1)),
    "spherical_bessel_j0": Case(
        S.spherical_bessel_j0, lambda x: mp.sin(x) / x if x else mp.mpf(1), 6, (0.0, 0.5, math.pi, 1e5)
    ),
    "entr": Case(S.entr, entropy, 4, (1.0,), 0.0),
    "ndtri": Case(S.ndtri, quantile, 8, (0.0, 1e-17, 0.000483, 0.075, 0.5, 0.9995), 1e-305, 1.0),
    "i0": Case(S.i0, lambda x: mp.besseli(0, x), 24, (0.0, 1.0, 4.0, 8.0, 12.0, 30.0), -700.0, 700.0),
    "i0e": Case(S.i0e, lambda x: mp.besseli(0, x) * mp.exp(-abs(x)), 12, (0.0, 1.0, 4.0, 8.0, 12.0, 30.0), -1e5, 1e5),
    "i1e": Case(S.i1e, lambda x: mp.besseli(1, x) * mp.exp(-abs(x)), 12, (0.0, 1.0, 4.0, 8.0, 12.0, 30.0), -1e5, 1e5),
    "bessel_j0": Case(
        S.bessel_j0, lambda x: mp.besselj(0, x), 8, (0.0, 2.404825557695773, 5.0, 8.0), -1e4, 1e4, envelope
    ),
    "bessel_j1": Case(S.bessel_j1, lambda x: mp.besselj(1, x), 8, (0.0, 3.8317059702075125, 5.0), -1e4, 1e4, envelope),
    "bessel_y0": Case(S.bessel_y0, lambda x: mp.bessely(0, x), 8, (0.8935769662791675, 5.0), 1e-300, 1e4, envelope),
    "bessel_y1": Case(S.bessel_y1, lambda x: mp.bessely(1, x), 8, (2.197141326031017, 5.0), 1e-300, 1e4, envelope),
    "modified_bessel_k0": Case(S.modified_bessel_k0, lambda x: mp.besselk(0, x), 12, (1.0, 2.0, 8.0), 1e-300, 700.0),
    "modified_bessel_k1": Case(S.modified_bessel_k1, lambda x: mp.besselk(1, x), 12, (1.0, 2.0, 8.0), 1e-300, 700.0),
    "scaled_modified_bessel_k0": Case(
        S.scaled_modified_bessel_k0, lambda x: mp.besselk(0, x) * mp.exp(x), 12, (1.0, 2.0, 8.0), 1e-300, 1e5
    ),
    "scaled_modified_bessel_k1": Case(
        S.scaled_modified_bessel_k1, lambda x: mp.besselk(1, x) * mp.exp(x), 12, (1.0, 2.0, 8.0), 1e-300, 1e5
    ),
    "logit": Case(aj.logit, lambda p: mp.log(p / (1 - p)), 8, (0.25, 0.75), 1e-300, 0.9),
}


def points_of(case: Case) -> Array:
    """Neighbours of the joins, magnitudes over the whole range, the least and greatest numbers."""
    steps = np.concatenate([np.exp2(-np.arange(3.0, 53.0, 7.0)), [0.0]])
    near = [j + d * max(abs(j), 1e-3) for j in case.joins for d in (*steps, *-steps)]
    near += [np.nextafter(j, side) for j in case.joins for side in (-math.inf, math.inf)]
    sizes = np.geomspace(1e-320, 1.7e308, 90)
    found = np.unique(np.concatenate([near, sizes, -sizes, np.geomspace(1e-3, 1e3, 60), -np.geomspace(1e-3, 1e3, 60)]))
    return found[(found >= case.low) & (found <= case.high)]


def exact_of(case: Case, points: Array, dtype: type) -> tuple[list[Any], Array]:
    """mpmath's results, and the size of a unit in the last place of each in the dtype."""
    info = np.finfo(dtype)
    least = float(info.smallest_subnormal)
    with mp.workdps(DIGITS):
        exact = [case.exact(mp.mpf(float(x))) for x in points]
        sizes = [float(min(abs(y), mp.mpf(float(info.max)))) if mp.isfinite(y) else math.inf for y in exact]
    units = [0.0 if math.isinf(s) else max(math.ldexp(float(info.eps), math.frexp(s)[1] - 1), least) for s in sizes]
    return exact, np.array(units)


def errors_of(case: Case, found: Array, points: Array, dtype: type) -> Array:
    """Errors in units in the last place; 0 where both are infinite or too large for the dtype."""
    exact, units = exact_of(case, points, dtype)
    errors = np.zeros(len(points))
    for k, (y, unit) in enumerate(zip(exact, units, strict=True)):
        value = float(found[k])
        if not mp.isfinite(y) or abs(y) > float(np.finfo(dtype).max):
            errors[k] = 0.0 if math.isinf(value) else math.inf
        elif math.isfinite(value):
            least = 0.0 if case.scale is None else float(np.finfo(dtype).eps) * case.scale(float(points[k]))
            errors[k] = float(abs(mp.mpf(value) - y) / max(unit, least))
        else:
            errors[k] = math.inf
    return errors


@pytest.mark.parametrize("dtype", [aj.float64, aj.float32], ids=str)
@pytest.mark.parametrize("how", ["eager", "compiled"])
@pytest.mark.parametrize("name", CASES)
def test_errors_stay_within_the_stated_bound(name: str, how: str, dtype: Any) -> None:
    case = CASES[name]
    with np.errstate(over="ignore"):
        points = np.unique(points_of(case).astype(dtype.numpy))
    wide = points.astype(np.float64)
    points = points[np.isfinite(points) & (wide >= case.low) & (wide <= case.high)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        found = (case.of if how == "eager" else aj.jit(case.of))(aj.tensor(points)).numpy()
    assert found.dtype == dtype.numpy
    errors = errors_of(case, found, points, dtype.numpy)
    worst = int(np.argmax(errors))
    assert errors[worst] <= case.bound, (float(points[worst]), float(found[worst]), float(errors[worst]))


def test_modified_bessel_functions_of_the_least_number_are_not_nan() -> None:
    least = 5e-324
    x = aj.tensor([least], dtype=aj.float64)
    expected = float(-mp.log(mp.mpf(least) / 2) - mp.euler)
    for how in (S.modified_bessel_k0, aj.jit(S.modified_bessel_k0)):
        assert how(x).item() == pytest.approx(expected, rel=1e-15)
    assert S.bessel_y0(x).item() == pytest.approx(-2 / math.pi * expected, rel=1e-15)
    far = aj.tensor([1e308, 1.7e308], dtype=aj.float64)
    np.testing.assert_allclose(S.i0e(far), 1 / (math.sqrt(2 * math.pi) * np.sqrt(far.numpy())), rtol=1e-15)
    np.testing.assert_allclose(S.i1e(far), S.i0e(far), rtol=1e-15)
