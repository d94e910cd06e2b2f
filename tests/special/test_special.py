"""Special functions equal recorded or independent values, and their derivatives are exact to second order."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj

S = aj.special

BESSEL = [
    "bessel_j0", "bessel_j1", "i0", "i0e", "i1", "i1e", "modified_bessel_i0", "modified_bessel_i1",
    "modified_bessel_k0", "modified_bessel_k1", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1",
]  # fmt: skip
ELEMENTWISE = [*BESSEL, "entr", "erfcx", "log_ndtr", "ndtr", "sinc", "spherical_bessel_j0"]


def exact(name: str, x: float) -> float:
    """By 50-digit arithmetic."""
    mp = pytest.importorskip("mpmath")
    with mp.workdps(50):
        v = mp.mpf(x)
        functions: dict[str, Callable[[], Any]] = {
            "bessel_j0": lambda: mp.besselj(0, v),
            "bessel_j1": lambda: mp.besselj(1, v),
            "i0": lambda: mp.besseli(0, v),
            "i1": lambda: mp.besseli(1, v),
            "i0e": lambda: mp.besseli(0, v) * mp.exp(-abs(v)),
            "i1e": lambda: mp.besseli(1, v) * mp.exp(-abs(v)),
            "modified_bessel_i0": lambda: mp.besseli(0, v),
            "modified_bessel_i1": lambda: mp.besseli(1, v),
            "modified_bessel_k0": lambda: mp.besselk(0, v),
            "modified_bessel_k1": lambda: mp.besselk(1, v),
            "scaled_modified_bessel_k0": lambda: mp.besselk(0, v) * mp.exp(v),
            "scaled_modified_bessel_k1": lambda: mp.besselk(1, v) * mp.exp(v),
            "entr": lambda: -v * mp.log(v),
            "erfcx": lambda: mp.exp(v * v) * mp.erfc(v),
            "log_ndtr": lambda: mp.log(mp.ncdf(v)),
            "ndtr": lambda: mp.ncdf(v),
            "sinc": lambda: mp.sinc(mp.pi * v),
            "spherical_bessel_j0": lambda: mp.sinc(v),
        }
        return float(functions[name]().real)


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_values_are_exact_to_a_few_units(name: str) -> None:
    points = [0.01, 0.7, 1.5, 5.0, 29.0, 31.0, 100.0]
    if name in ("erfcx", "log_ndtr", "ndtr", "i0", "i1e", "bessel_j1", "sinc"):
        points += [-0.4, -3.0, -12.0]
    found = getattr(S, name)(aj.tensor(points, dtype=aj.float64)).numpy()
    expected = np.array([exact(name, p) for p in points])
    scale = (
        np.ones(len(points)) if name in ("bessel_j0", "bessel_j1", "sinc", "spherical_bessel_j0") else np.abs(expected)
    )
    if name == "log_ndtr":
        scale = np.maximum(scale, 1e-8)  # of the order of ndtr's own rounding
    growth = np.array([max(1.0, p * p) for p in points]) if name in ("erfcx", "ndtr") else 1.0
    assert np.all(np.abs(found - expected) <= 40 * 2.3e-16 * scale * growth)
    narrow = getattr(S, name)(aj.tensor(points)).numpy()
    assert narrow.dtype == np.float32


@pytest.mark.parametrize("name", [*ELEMENTWISE, "ndtri"])
def test_derivatives(name: str) -> None:
    x = aj.tensor([0.3, 0.62, 0.9] if name == "ndtri" else [0.3, 1.4, 4.2], dtype=aj.float64, requires_grad=True)
    assert aj.autograd.gradcheck(getattr(S, name), x, check_forward_ad=True)
    assert aj.autograd.gradgradcheck(getattr(S, name), x)


@pytest.mark.parametrize("name", [*ELEMENTWISE, "ndtri"])
def test_steps_compute_what_eager_code_does(name: str) -> None:
    def value_and_slope(x: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        leaf = x.detach().requires_grad_()
        y = getattr(S, name)(leaf)
        (slope,) = aj.autograd.grad(y.sum(), leaf)
        return y.detach(), slope

    x = aj.tensor([0.1, 0.5, 0.93], dtype=aj.float64)
    jitted = aj.jit(value_and_slope)
    for _ in range(3):
        for found, expected in zip(jitted(x), value_and_slope(x), strict=True):
            np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-12)


def test_slopes_at_zero_have_their_limits() -> None:
    x = aj.zeros(1, dtype=aj.float64, requires_grad=True)
    for name, expected in (
        ("i0", (0.0, 0.5)),
        ("i1", (0.5, 0.0)),
        ("bessel_j0", (0.0, -0.5)),
        ("bessel_j1", (0.5, 0.0)),
    ):
        (first,) = aj.autograd.grad(getattr(S, name)(x), x, create_graph=True)
        (second,) = aj.autograd.grad(first, x)
        assert (first.item(), second.item()) == expected


def test_ends_and_outsides() -> None:
    nan, inf = math.nan, math.inf
    x = aj.tensor([-1.0, 0.0, inf, nan], dtype=aj.float64)
    for function, expected in (
        (S.entr, [-inf, 0.0, -inf, nan]),
        (S.erfcx, [5.0089800807622835, 1.0, 0.0, nan]),
        (S.modified_bessel_k0, [nan, inf, 0.0, nan]),
        (S.i0, [1.2660658777520082, 1.0, inf, nan]),
        (S.ndtri, [nan, -inf, nan, nan]),
        (S.ndtr, [0.15865525393145707, 0.5, 1.0, nan]),
    ):
        np.testing.assert_allclose(function(x).numpy(), expected, rtol=1e-15)
    np.testing.assert_array_equal(
        S.xlog1py(aj.tensor([0.0, 0.0, 2.0]), aj.tensor([-1.0, nan, 0.0])).numpy(), [0.0, nan, 0.0]
    )


def test_quantiles_invert_the_distribution_in_both_tails() -> None:
    p = aj.tensor([1e-300, 1e-20, 0.01, 0.3, 0.5, 0.9, 1 - 1e-12], dtype=aj.float64)
    np.testing.assert_allclose(S.ndtr(S.ndtri(p)).numpy(), p.numpy(), rtol=2e-13)


def test_zeta_sums_the_series() -> None:
    found = S.zeta(
        aj.tensor([2.0, 4.0, 1.0, 0.5, 2.0], dtype=aj.float64), aj.tensor([1.0, 1, 1, 1, -1], dtype=aj.float64)
    )
    np.testing.assert_allclose(
        found.numpy(), [math.pi**2 / 6, math.pi**4 / 90, math.inf, math.nan, math.inf], rtol=1e-15
    )
    q = aj.tensor([0.4, 2.5], dtype=aj.float64, requires_grad=True)
    assert aj.autograd.gradcheck(lambda q: S.zeta(3.0, q), q)
    assert aj.autograd.gradgradcheck(lambda q: S.zeta(3.0, q), q)
    with pytest.raises(NotImplementedError, match="derivative for 'zeta: self'"):
        S.zeta(q, 2.0).sum().backward()


def test_multigammaln_is_a_sum_of_logarithms_of_gamma() -> None:
    a = aj.tensor([2.5, 4.0], dtype=aj.float64)
    expected = [math.log(math.pi) * 0.5 + math.lgamma(v) + math.lgamma(v - 0.5) for v in (2.5, 4.0)]
    np.testing.assert_allclose(S.multigammaln(a, 2).numpy(), expected, rtol=1e-14)
    with pytest.raises(RuntimeError, match="p has to be greater than or equal to 1"):
        S.multigammaln(a, 0)


POLYNOMIALS: dict[str, Callable[[int], np.polynomial.Polynomial]] = {
    "chebyshev_polynomial_t": lambda n: np.polynomial.Chebyshev.basis(n).convert(kind=np.polynomial.Polynomial),
    "hermite_polynomial_h": lambda n: np.polynomial.Hermite.basis(n).convert(kind=np.polynomial.Polynomial),
    "hermite_polynomial_he": lambda n: np.polynomial.HermiteE.basis(n).convert(kind=np.polynomial.Polynomial),
    "laguerre_polynomial_l": lambda n: np.polynomial.Laguerre.basis(n).convert(kind=np.polynomial.Polynomial),
    "legendre_polynomial_p": lambda n: np.polynomial.Legendre.basis(n).convert(kind=np.polynomial.Polynomial),
}


@pytest.mark.parametrize("n", [0, 1, 2, 5])
@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomials_equal_their_monomial_form(name: str, n: int) -> None:
    x = aj.tensor([-0.9, 0.0, 0.3, 1.0], dtype=aj.float64, requires_grad=True)
    function = getattr(S, name)
    np.testing.assert_allclose(function(x, n).detach().numpy(), POLYNOMIALS[name](n)(x.detach().numpy()), atol=1e-12)
    if n:
        assert aj.autograd.gradcheck(lambda v: function(v, n), x)


@pytest.mark.parametrize("n", [0, 1, 4])
def test_chebyshev_polynomials_are_ratios_of_angles(n: int) -> None:
    angle = np.array([0.3, 1.0, 2.5])
    x = aj.from_numpy(np.cos(angle))
    shifted = (x + 1) / 2
    for kind, expected in (
        ("t", np.cos(n * angle)),
        ("u", np.sin((n + 1) * angle) / np.sin(angle)),
        ("v", np.cos((n + 0.5) * angle) / np.cos(angle / 2)),
        ("w", np.sin((n + 0.5) * angle) / np.sin(angle / 2)),
    ):
        np.testing.assert_allclose(getattr(S, f"chebyshev_polynomial_{kind}")(x, n).numpy(), expected, atol=1e-12)
        found = getattr(S, f"shifted_chebyshev_polynomial_{kind}")(shifted, n)
        np.testing.assert_allclose(found.numpy(), expected, atol=1e-12)


def test_degrees_may_be_a_tensor_and_negative_ones_give_zero() -> None:
    x = aj.tensor([0.5, 0.5, 0.5], dtype=aj.float64)
    np.testing.assert_allclose(S.legendre_polynomial_p(x, aj.tensor([-1, 0, 2])).numpy(), [0.0, 1.0, -0.125])
    np.testing.assert_allclose(S.legendre_polynomial_p(x, -1).numpy(), 0.0)
    no_degrees = aj.tensor([np.inf, np.nan, 1e30])
    np.testing.assert_array_equal(S.legendre_polynomial_p(x, no_degrees).numpy(), 0.0)
    np.testing.assert_array_equal(S.legendre_polynomial_p(x, np.nan).numpy(), 0.0)


def test_out_receives_the_result_and_integers_become_floats() -> None:
    place = aj.empty(2)
    assert S.i0(aj.zeros(2), out=place) is place
    assert S.erfcx(aj.tensor([1, 2])).dtype is aj.float32


@pytest.mark.parametrize(
    ("a", "deviations", "lower", "upper"),
    [
        (1e5, 0.0, 0.5004205221045142, 0.49957947789548585),
        (1e6, -1.0, 0.1586552135731875, 0.8413447864268125),
        (1e8, 0.0, 0.5000132980758291, 0.4999867019241709),
        (1e8, 3.0, 0.9986489198983962, 0.0013510801016036965),
        (1e30, 0.0, 0.5, 0.5),
    ],
)
def test_incomplete_gamma_functions_of_large_numbers(a: float, deviations: float, lower: float, upper: float) -> None:
    place = aj.tensor(a, dtype=aj.float64)
    x = place + deviations * place.sqrt()
    np.testing.assert_allclose(S.gammainc(place, x).item(), lower, rtol=1e-9)
    np.testing.assert_allclose(S.gammaincc(place, x).item(), upper, rtol=1e-9)


def test_incomplete_gamma_functions_meet_where_their_formulas_change_and_stay_between_0_and_1() -> None:
    below, above = (aj.tensor(v, dtype=aj.float64) for v in (9999.999999, 10000.0))
    x = 10000.0 + aj.linspace(-400.0, 400.0, 41, dtype=aj.float64)
    np.testing.assert_allclose(S.gammainc(below, x).numpy(), S.gammainc(above, x).numpy(), rtol=1e-6, atol=1e-12)
    tiny = aj.tensor([1e-30], dtype=aj.float64)
    assert S.gammaincc(tiny, tiny).item() >= 0.0
    ends = S.gammainc(aj.tensor(1e8, dtype=aj.float64), aj.tensor([1e-300, 1.0, 1e20, 1e300], dtype=aj.float64))
    assert ends.tolist() == [0.0, 0.0, 1.0, 1.0]


def test_a_derivative_that_is_missing_for_one_operand_is_an_error_of_the_backward_pass() -> None:
    a = aj.tensor([2.0, 3.0], dtype=aj.float64, requires_grad=True)
    x = aj.tensor([1.0, 1.5], dtype=aj.float64, requires_grad=True)
    density = x.detach() ** (a.detach() - 1) * (-x.detach()).exp() / aj.tensor([1.0, 2.0], dtype=aj.float64)
    for function, sign in ((aj.special.gammainc, 1), (aj.special.gammaincc, -1)):
        found = function(a, x)
        (slope,) = aj.autograd.grad(found.sum(), x, retain_graph=True)
        np.testing.assert_allclose(slope.numpy(), sign * density.numpy(), rtol=1e-12)
        with pytest.raises(NotImplementedError, match="input"):
            found.sum().backward()


def test_long_vectors_need_no_more_terms_than_their_elements() -> None:
    """The fraction ends when every element has been near enough once: later factors differ from 1 by roundings."""
    numbers = np.random.default_rng(0)
    a, x = aj.tensor(numbers.uniform(0, 8, 200_000)), aj.tensor(numbers.uniform(1, 9, 200_000))
    begun = time.process_time()
    found = aj.special.gammaincc(a, x)
    assert time.process_time() - begun < 2.0  # 0.1 s; with all 10,000 terms 20
    parts = aj.cat([aj.special.gammaincc(a[k : k + 1], x[k : k + 1]) for k in range(0, 200_000, 20_000)])
    assert aj.allclose(found[::20_000], parts, rtol=1e-13)
