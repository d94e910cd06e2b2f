"""The regularised incomplete gamma functions ``P(a, x)`` and ``Q(a, x) = 1 - P(a, x)``.

Evaluated in float64: by the power series of P for x < a + 1, by the continued fraction of Q (modified Lentz) elsewhere,
so that neither is formed by a difference that cancels. Source: Press et al., Numerical Recipes, 3rd ed., 6.2. Both need
some sqrt(a) terms; from a = 10,000 Temme's uniform expansion takes their place. Source: DLMF, 8.12.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

import autojit.ops.special_reference as reference
from autojit.core.dtypes import DType
from autojit.ir.op import Ndarray, O, Operands
from autojit.ops.elementwise_arithmetic import mul, neg, sub
from autojit.ops.elementwise_base import Binary, binary
from autojit.ops.elementwise_exponential import exp, log
from autojit.ops.elementwise_special import lgamma
from autojit.ops.samples import Samples

__all__ = ["Igamma", "Igammac", "igamma", "igammac"]

_MOST_TERMS = 10_000
_EPSILON = float(np.finfo(np.float64).eps)
_TINY = 1e-300
_LARGE = 1e4
_TEMME = (  # c_k, whose sum over a**-k is the correction: each a power series in eta
    (
        -1 / 3, 1 / 12, -1.4814814814814815e-2, 1.1574074074074074e-3, 3.527336860670194e-4, -1.7875514403292181e-4,
        3.9192631785224378e-5, -2.1854485106799922e-6, -1.85406221071516e-6, 8.296711340953086e-7,
    ),
    (
        -1.8518518518518519e-3, -3.4722222222222222e-3, 2.6455026455026455e-3, -9.9022633744855967e-4,
        2.0576131687242798e-4, -4.0187757201646091e-7, -1.8098550334489978e-5, 7.6491609160811101e-6,
    ),
    (4.1335978835978836e-3, -2.6813271604938272e-3, 7.7160493827160494e-4, 2.0093878600823045e-6),
)  # fmt: skip


def _series(a: Ndarray, x: Ndarray) -> Ndarray:
    """``P(a, x)`` divided by its leading factor ``x**a exp(-x) / gamma(a)``."""
    term = 1.0 / a
    total, order = term.copy(), a.copy()
    for _ in range(_MOST_TERMS):
        order += 1.0
        term = term * (x / order)
        total += term
        if np.all(np.abs(term) <= np.abs(total) * _EPSILON):
            break
    return total


def _fraction(a: Ndarray, x: Ndarray) -> Ndarray:
    """``Q(a, x)`` divided by the same factor."""
    b = x + 1.0 - a
    c = np.full_like(b, 1.0 / _TINY)
    d = 1.0 / np.where(b == 0, _TINY, b)
    total, is_done = d.copy(), np.zeros(b.shape, np.bool_)
    for k in range(1, _MOST_TERMS):
        step = -k * (k - a)
        b = b + 2.0
        d = step * d + b
        c = b + step / c
        d = 1.0 / np.where(np.abs(d) < _TINY, _TINY, d)
        c = np.where(np.abs(c) < _TINY, _TINY, c)
        factor = d * c
        total *= factor
        is_done |= np.abs(factor - 1.0) <= _EPSILON  # once: later factors are a rounding or two away from 1
        if is_done.all():
            break
    return total


def _uniform(a: Ndarray, x: Ndarray) -> tuple[Ndarray, Ndarray]:
    """(P, Q) for a large ``a``: those of the normal distribution that the gamma distribution tends to, corrected."""
    off = (x - a) / a
    near = np.clip(off, -0.01, 0.01)
    half = np.where(near == off, sum((-near) ** k / k for k in range(2, 11)), off - np.log1p(off))
    eta = np.sign(off) * np.sqrt(2.0 * half)
    at = np.clip(eta, -1.0, 1.0)  # beyond, the correction is 0
    correction = sum(np.polynomial.polynomial.polyval(at, c) * a**-k for k, c in enumerate(_TEMME))
    correction = correction * np.exp(-a * half) / np.sqrt(2.0 * np.pi * a)
    place = eta * np.sqrt(a / 2.0)
    lower, upper = (0.5 * np.asarray(reference.erfc(v)) for v in (-place, place))
    return lower - correction, upper + correction


def _both(a: Any, x: Any) -> tuple[Ndarray, Ndarray]:
    """(P, Q) of operands in one shape; NaN where a or x is negative or a NaN, or both are 0."""
    a, x = (np.array(v, np.float64) for v in np.broadcast_arrays(a, x))
    lower, upper = np.full(a.shape, np.nan), np.full(a.shape, np.nan)
    at_zero = (x == 0) & (a > 0)
    lower[at_zero], upper[at_zero] = 0.0, 1.0
    at_end = ((a == 0) & (x > 0)) | (np.isinf(x) & (x > 0) & np.isfinite(a) & (a >= 0))
    lower[at_end], upper[at_end] = 1.0, 0.0
    endless = np.isinf(a) & (a > 0) & np.isfinite(x) & (x >= 0)
    lower[endless], upper[endless] = 0.0, 1.0
    inside = (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
    with np.errstate(all="ignore"):
        large = inside & (a >= _LARGE)
        lower[large], upper[large] = _uniform(a[large], x[large])
        inside &= ~large
        for chosen, function, first, second in (
            (inside & (x < a + 1.0), _series, lower, upper),
            (inside & (x >= a + 1.0), _fraction, upper, lower),
        ):
            p, y = a[chosen], x[chosen]
            factor = np.exp(p * np.log(y) - y - np.asarray(reference.lgamma(p)))
            first[chosen] = np.clip(function(p, y) * factor, 0.0, 1.0)
            second[chosen] = 1.0 - first[chosen]
    return lower, upper


def _density(a: O, x: O) -> O:
    """The derivative of ``P`` by ``x``: ``x**(a - 1) exp(-x) / gamma(a)``."""
    return exp(sub(sub(mul(sub(a, 1), log(x)), x), lgamma(a)))


def _missing(name: str) -> Any:
    raise NotImplementedError(f"the derivative for '{name}: input' is not implemented.")


class _IncompleteGamma(Binary, abstract=True):
    accepts: ClassVar[tuple[str, ...]] = ("float",)
    is_cheap: ClassVar[bool] = False
    which: ClassVar[int]

    def eager(self, *arrays: Ndarray) -> Any:
        return np.asarray(_both(*arrays)[self.which]).astype(arrays[0].dtype)

    def partials(self, primals: Operands, result: O) -> Sequence[Any]:
        a, x = primals
        lower = self.which == 0
        return (lambda: _missing(self.name), lambda: _density(a, x) if lower else neg(_density(a, x)))

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        if tangents[0] is not None:
            raise NotImplementedError(
                f"Trying to use forward AD with {self.name} that does not support it because it has not been "
                "implemented yet: its derivative by the first operand has no closed form."
            )
        return super().jvp(primals, result, tangents)

    @classmethod
    def samples(cls, dtype: DType) -> Samples:
        return []  # the laws ask for both derivatives; that by ``a`` has no closed form


class Igamma(_IncompleteGamma):
    """The regularised lower function ``P(a, x)``; differentiable in ``x``."""

    which: ClassVar[int] = 0


class Igammac(_IncompleteGamma):
    """The regularised upper function ``Q(a, x)``; differentiable in ``x``."""

    which: ClassVar[int] = 1


igamma = binary(Igamma())
igammac = binary(Igammac())
