"""Entropy terms, the normal distribution, Bessel functions, the zeta function: operands of floats, or promoted to them.

All but ``zeta``'s exponent are differentiable to any order. In compiled steps all but ``zeta`` fuse.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from autojit import ops
from autojit.core.dtypes import float32, float64
from autojit.core.errors import UsageError
from autojit.core.wrapping import named
from autojit.dispatch.declared import declared
from autojit.dispatch.promotion import floating, floating_together
from autojit.functions.comparison import where
from autojit.functions.elementwise import log1p
from autojit.functions.factories import full_like
from autojit.functions.out_arguments import with_out
from autojit.functions.refused_dtypes import refuses
from autojit.functions.special import erfc, lgamma
from autojit.ops.composites_pointwise import sinc_near_zero
from autojit.tensor import Tensor
from autojit.tensor.tensor import type_of


@refuses("complex")
@with_out
def entr(input: Tensor) -> Tensor:
    """``-x log(x)``; 0 at 0, minus infinity below.

    Example:
        >>> import autojit as aj
        >>> aj.special.entr(aj.tensor([-1.0, 0.0, 1.0, 0.5]))
        tensor([  -inf, 0.0000, -0.0000, 0.3466])
    """
    return ops.entropy(floating(input, "entr"))


@refuses("complex")
@with_out
def xlog1py(input: Any, other: Any) -> Tensor:
    """``input * log1p(other)``, 0 where ``input`` is 0 unless ``other`` is NaN.

    Example:
        >>> import autojit as aj
        >>> aj.special.xlog1py(aj.tensor([0.0, 1.0]), aj.tensor([-1.0, 0.0]))
        tensor([0., 0.])
    """
    x, y = floating_together(input, other, "xlog1py")
    is_free = x.eq(0) & (y.le(-1) | y.eq(math.inf))
    return x * log1p(where(is_free, 0.0, y))


@refuses("complex")
@with_out
def ndtr(input: Tensor) -> Tensor:
    """The probability that a standard normal variable stays below ``x``; accurate in the lower tail.

    Example:
        >>> import autojit as aj
        >>> aj.special.ndtr(aj.tensor([0.0, -40.0], dtype=aj.float64))
        tensor([0.5000, 0.0000], dtype=autojit.float64)
    """
    given = floating(input, "ndtr")
    dtype = type_of(given).dtype
    x = given if dtype is float64 else given.to(float64)  # what rounding x sqrt(1/2) leaves out grows with x**2
    t = x * -_ROOT_HALF
    near = where(x.abs() < _FAR, x, 0.0).detach()
    rest = _rounded_off(near, near * -_ROOT_HALF)
    found: Tensor = 0.5 * erfc(t) - (t.detach().square().neg().exp() / _ROOT_PI) * rest
    return found if dtype is float64 else found.to(dtype)


_ROOT_HALF, _ROOT_PI = math.sqrt(0.5), math.sqrt(math.pi)
_ROOT_HALF_HEAD = 0.707106769084930419921875  # 24 bits, so that products with 24 bits of another number are exact
_ROOT_HALF_TAIL = 1.210161710447897e-08  # the next 53 bits
_FAR = 40.0  # ndtr is 0 or 1 beyond


def _rounded_off(x: Tensor, t: Tensor) -> Tensor:
    """``-x sqrt(1/2) - t`` for the rounded product ``t``."""
    head = x.to(float32).to(float64)
    tail = x - head
    return -((head * _ROOT_HALF_HEAD + t) + (head * _ROOT_HALF_TAIL + tail * _ROOT_HALF))


@refuses("complex")
@with_out
def log_ndtr(input: Tensor) -> Tensor:
    """The logarithm of ``ndtr``, accurate in both tails.

    Example:
        >>> import autojit as aj
        >>> aj.special.log_ndtr(aj.tensor([0.0, -100.0]))
        tensor([-6.9315e-01, -5.0055e+03])
    """
    x = floating(input, "log_ndtr")
    t = x * math.sqrt(0.5)
    is_low = x < -1
    low = where(is_low, t, -1.0)
    tail = (ops.erfcx(-low) * 0.5).log() - low * low
    return where(is_low, tail, log1p(erfc(where(is_low, 0.0, t)) * -0.5))


@with_out
def multigammaln(input: Tensor, p: int) -> Tensor:
    """The logarithm of the multivariate gamma function of dimension ``p``; ``input`` above ``(p - 1) / 2``.

    Example:
        >>> import autojit as aj
        >>> aj.special.multigammaln(aj.tensor(2.0), 1)
        tensor(0.)
    """
    x = floating(input, "multigammaln")
    if p < 1:
        raise UsageError("p has to be greater than or equal to 1", {"p": p})
    total = full_like(x, p * (p - 1) / 4 * math.log(math.pi))
    for j in range(p):
        total = total + lgamma(x - j / 2)
    return total


@refuses("complex")
@with_out
def zeta(input: Any, other: Any) -> Tensor:
    """The Hurwitz zeta function, the sum of ``(other + k) ** -input`` over k >= 0; differentiable in ``other``.

    Example:
        >>> import autojit as aj
        >>> aj.special.zeta(aj.tensor(2.0), 1)
        tensor(1.6449)
    """
    x, y = floating_together(input, other, "zeta")
    return ops.zeta(x, y)


SCIPYS: dict[str, str] = {}
"""Names by SciPy's."""


def _unary(name: str, function: Callable[[Any], Any], doc: str) -> Callable[..., Tensor]:
    def of_one(input: Any) -> Tensor:
        found: Tensor = function(floating(input, name))
        return found

    named(of_one, name, doc)
    return refuses("complex")(with_out(of_one))


def _bessel(name: str, kind: str, doc: str) -> Callable[..., Tensor]:
    SCIPYS.setdefault(kind, name)
    return _unary(name, lambda x: ops.bessel(x, kind), doc)


def _spherical(x: Tensor) -> Tensor:
    series = sinc_near_zero(where(x.abs() < 0.5, x, 0.0).square())
    is_end = x.isinf()
    away = where((x.abs() < 0.5) | is_end, 1.0, x)
    return where(x.abs() < 0.5, series, where(is_end, 0.0, away.sin() / away))


airy_ai = _unary("airy_ai", ops.airy, "The Airy function Ai: the solution of ``y'' = x y`` that vanishes far out.")
erfcx = _unary("erfcx", ops.erfcx, "``exp(x**2) * erfc(x)``, which neither overflows nor vanishes for large ``x``.")
ndtri = _unary("ndtri", ops.ndtri, "The inverse of ``ndtr`` on [0, 1]; NaN elsewhere.")
spherical_bessel_j0 = _unary("spherical_bessel_j0", _spherical, "``sin(x) / x``, 1 at 0.")
i0 = declared(in_place="values")(_bessel("i0", "i0", "The modified Bessel function of the first kind, order 0."))
i0e = _bessel("i0e", "i0e", "``exp(-abs(x)) * i0(x)``.")
i1 = _bessel("i1", "i1", "The modified Bessel function of the first kind, order 1.")
i1e = _bessel("i1e", "i1e", "``exp(-abs(x)) * i1(x)``.")
bessel_j0 = _bessel("bessel_j0", "j0", "The Bessel function of the first kind, order 0.")
bessel_j1 = _bessel("bessel_j1", "j1", "The Bessel function of the first kind, order 1.")
bessel_y0 = _bessel("bessel_y0", "y0", "The Bessel function of the second kind, order 0; NaN of negative numbers.")
bessel_y1 = _bessel("bessel_y1", "y1", "The Bessel function of the second kind, order 1; NaN of negative numbers.")
modified_bessel_i0 = _bessel("modified_bessel_i0", "i0", "The modified Bessel function of the first kind, order 0.")
modified_bessel_i1 = _bessel("modified_bessel_i1", "i1", "The modified Bessel function of the first kind, order 1.")
modified_bessel_k0 = _bessel("modified_bessel_k0", "k0", "The modified Bessel function of the second kind, order 0.")
modified_bessel_k1 = _bessel("modified_bessel_k1", "k1", "The modified Bessel function of the second kind, order 1.")
scaled_modified_bessel_k0 = _bessel("scaled_modified_bessel_k0", "k0e", "``exp(x) * modified_bessel_k0(x)``.")
scaled_modified_bessel_k1 = _bessel("scaled_modified_bessel_k1", "k1e", "``exp(x) * modified_bessel_k1(x)``.")


@with_out
def sinc(input: Tensor) -> Tensor:
    """``sin(pi x) / (pi x)``, 1 at 0."""
    return floating(input, "sinc").sinc()


__all__ = [
    "airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1",
    "entr", "erfcx", "i0", "i0e", "i1", "i1e", "log_ndtr", "modified_bessel_i0",
    "modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1", "multigammaln", "ndtr", "ndtri",
    "scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "sinc", "spherical_bessel_j0", "xlog1py",
    "zeta",
]  # fmt: skip
