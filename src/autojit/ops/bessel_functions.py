"""Bessel functions of order 0 and 1: J, Y, and the modified I and K, plain and scaled by their exponential growth.

Evaluated in float64: their integrals over a period by the trapezoidal rule, which converges exponentially for periodic
integrands, and asymptotic series far out; K near zero by its power series. Greatest errors against SciPy over some
thousand points: 11 eps, relative for I and K, of the amplitude ``min(1, 1 / sqrt(x))`` for J and Y. Y near zero is
Neumann's series of J of all orders, which come from their recurrence downwards (Miller).
Sources: Abramowitz and Stegun 9.1.18, 9.1.27, 9.1.88, 9.1.89, 9.2.5, 9.2.6, 9.6.11, 9.6.13, 9.6.16, 9.6.24, 9.7.1,
9.7.2; Trefethen and Weideman, SIAM Review 56(3), 2014 (the trapezoidal rule).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.dtypes import DType
from autojit.core.records import record
from autojit.ir.op import Ndarray, O, bind
from autojit.ops.elementwise_arithmetic import add, div, mul, neg, sub, where
from autojit.ops.elementwise_base import sample_inputs
from autojit.ops.elementwise_complex import sign
from autojit.ops.elementwise_logic import eq
from autojit.ops.elementwise_special import Special
from autojit.ops.samples import Samples
from autojit.ops.sources import literal
from autojit.ops.special_reference import piecewise

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from autojit.ir.emitter import Emitter, S

    Doubles = NDArray[np.float64]

__all__ = ["Bessel", "bessel"]

_BLOCK = 4096  # numbers at a time, whose intermediates stay in cache
_FAR = 30.0
_NODES = 64  # of K's integral
# Of J's and I's by the size of x: the error with n nodes is J or I of order 4 n. More round less, where it shows.
_J_NODES = ((1.0, 5), (4.0, 8), (12.0, 16), (_FAR, 64))
_I_NODES = ((1.0, 5), (4.0, 8), (12.0, 12), (_FAR, 20))
_TERMS = 30
_EULER = 0.57721566490153286061


def _piecewise(x: Any, split: float, near: Callable[[Doubles], Doubles], far: Callable[[Doubles], Doubles]) -> Doubles:
    """``near`` up to ``split``, ``far`` beyond, of non-negative numbers; NaN stays."""
    return piecewise(x, ((x <= split, near), (x > split, far)))


def _asymptotic(order: int, x: Doubles, alternate: bool = False) -> tuple[Doubles, Doubles]:
    """The sums of the even and of the odd terms ``a_k(order) / x**k``, until the terms grow or vanish.

    ``alternate``: the signs of each sum do: ``a_0 - a_2 + a_4 ...``, ``a_1 - a_3 + ...``.
    """
    even, odd, term = np.ones_like(x), np.zeros_like(x), np.ones_like(x)
    for k in range(1, _TERMS):
        term = term * ((4 * order * order - (2 * k - 1) ** 2) / (8.0 * k) / x)
        turned = -term if alternate and k % 4 >= 2 else term
        if k % 2:
            odd = odd + turned
        else:
            even = even + turned
    return even, odd


def _by_size(x: Doubles, table: tuple[tuple[float, int], ...], function: Callable[[int, Doubles], Doubles]) -> Doubles:
    """``function(nodes, x)`` with as many nodes as the table says for numbers of this size."""
    lows = (-1.0, *(high for high, _ in table))
    pieces = zip(lows, table, strict=False)
    return piecewise(x, [((x > low) & (x <= high), partial(function, nodes)) for low, (high, nodes) in pieces])


def _i_scaled(order: int) -> Callable[[Doubles], Doubles]:
    def mean(nodes: int, x: Doubles) -> Doubles:
        total = np.zeros_like(x)
        for j in range(nodes):
            c = math.cos((j + 0.5) * math.pi / (2 * nodes))
            rise = np.exp(x * (c - 1.0))
            total += rise * (1.0 + np.exp(-2.0 * c * x)) if order == 0 else -c * rise * np.expm1(-2.0 * c * x)
        return total / (2 * nodes)

    def near(x: Doubles) -> Doubles:
        return _by_size(x, _I_NODES, mean)

    def far(x: Doubles) -> Doubles:
        even, odd = _asymptotic(order, x)
        return np.asarray((even - odd) / (math.sqrt(2.0 * math.pi) * np.sqrt(x)))  # 2 pi x may be too large

    return lambda x: _piecewise(x, _FAR, near, far)


def _j(order: int) -> Callable[[Doubles], Doubles]:
    def mean(nodes: int, x: Doubles) -> Doubles:
        total = np.zeros_like(x)
        for j in range(nodes):
            s = math.sin((j + 0.5) * math.pi / (2 * nodes))
            total += np.cos(x * s) if order == 0 else s * np.sin(x * s)
        return total / nodes

    def near(x: Doubles) -> Doubles:
        return _by_size(x, _J_NODES, mean)

    def far(x: Doubles) -> Doubles:
        p, q, (cosine, sine) = _phases(order, x)
        return np.where(np.isinf(x), 0.0, (p * cosine - q * sine) / (math.sqrt(math.pi) * np.sqrt(x)))

    return lambda x: _piecewise(x, _FAR, near, far)


def _phases(order: int, x: Doubles) -> tuple[Doubles, Doubles, tuple[Doubles, Doubles]]:
    """P, Q and ``sqrt(2)`` times cosine and sine of the phase ``x - (2 order + 1) pi / 4``: J is P cos - Q sin."""
    p, q = _asymptotic(order, x, alternate=True)
    sine, cosine = np.sin(x), np.cos(x)
    # without rounding pi / 4 into x
    c, s = (cosine + sine, sine - cosine) if order == 0 else (sine - cosine, -sine - cosine)
    return p, q, (c, s)


_HIGHEST = 90  # J of this order is below 1e-40 up to _FAR


def _y(order: int) -> Callable[[Doubles], Doubles]:
    def near(x: Doubles) -> Doubles:
        above, here, norm = np.zeros_like(x), np.full_like(x, 1e-280), np.zeros_like(x)
        total = np.zeros_like(x)
        for n in range(_HIGHEST, 0, -1):  # here is J_n
            k = n // 2
            if n % 2 == order and k:
                total += (-1) ** k * ((2 * k + 1) / (2 * k * (k + 1)) if order else 1 / k) * here
            norm = norm + (2 * here if n % 2 == 0 else 0)
            above, here = here, 2 * n / x * here - above
            large = np.abs(here) > 1e150
            scale = np.where(large, 1e-150, 1.0)
            above, here, norm, total = above * scale, here * scale, norm * scale, total * scale
        norm = norm + here
        low = (above if order else here) / norm
        found = (2 * (np.log(x / 2) + _EULER - order) * low - 4 * total / norm) / math.pi
        return found - 2 * here / (math.pi * x * norm) if order else found

    def far(x: Doubles) -> Doubles:
        p, q, (cosine, sine) = _phases(order, x)
        return np.where(np.isinf(x), 0.0, (p * sine + q * cosine) / (math.sqrt(math.pi) * np.sqrt(x)))

    def tiny(x: Doubles) -> Doubles:
        found = 2 * (np.log(x) - math.log(2) + _EULER) / math.pi if order == 0 else -2 / math.pi / x
        return np.where(x == 0, -np.inf, found)

    return lambda x: _piecewise(x, 1e-9, tiny, lambda z: _piecewise(z, _FAR, near, far))


def _k_series(order: int, x: Doubles) -> Doubles:
    quarter, logarithm = x * x / 4.0, np.log(x) - math.log(2.0) + _EULER  # half of the least number is 0
    total, power, harmonic = np.zeros_like(x), np.ones_like(x), 0.0
    for k in range(16):
        if k:
            harmonic += 1.0 / k
            power = power * quarter / (k * (k + order))
        step = harmonic if order == 0 else harmonic + 0.5 / (k + 1)
        total += power * (step - logarithm)
    return total if order == 0 else 1.0 / x - total * x / 2.0


def _k_scaled(order: int) -> Callable[[Doubles], Doubles]:
    def near(x: Doubles) -> Doubles:
        return np.where(x == 0, np.inf, np.exp(x) * _k_series(order, x))

    def far(x: Doubles) -> Doubles:
        reach = np.arccosh(1.0 + 40.0 / x)
        total = np.full_like(x, 0.5)
        for j in range(1, _NODES):
            grown = np.cosh(reach * (j / _NODES))
            total += np.exp(-x * (grown - 1.0)) * (1.0 if order == 0 else grown)
        return total * reach / _NODES

    def beyond(x: Doubles) -> Doubles:
        even, odd = _asymptotic(order, x)
        return np.asarray((even + odd) * (math.sqrt(math.pi / 2.0) / np.sqrt(x)))

    return lambda x: _piecewise(x, 1.0, near, lambda y: _piecewise(y, _FAR, far, beyond))


_SCALED: dict[str, Callable[[Doubles], Doubles]] = {
    "i0": _i_scaled(0), "i1": _i_scaled(1), "j0": _j(0), "j1": _j(1), "y0": _y(0), "y1": _y(1),
    "k0": _k_scaled(0), "k1": _k_scaled(1),
}  # fmt: skip
_GROWTH = {"i": 1.0, "k": -1.0}


def evaluate(kind: str, x: Ndarray) -> Doubles:
    """The function of a kind ("j0", "i1e", ...) in float64."""
    wide = np.asarray(x, np.float64)
    size = np.where(wide < 0, np.nan, wide) if kind[0] in "ky" else np.abs(wide)
    with np.errstate(all="ignore"):
        found = _SCALED[kind[:2]](size)
        if kind in ("i0", "i1", "k0", "k1"):
            root = np.exp(_GROWTH[kind[0]] * size / 2.0)  # twice, so that only what is too large overflows
            found = np.where(np.isinf(root), root, found * root * root)
    is_odd = kind[1] == "1" and kind[0] not in "ky"
    return np.where(wide < 0, -found, found) if is_odd else found


@record
class Bessel(Special):
    """The function ``kind``: "j0", "j1", "y0", "y1", "i0", "i1", "k0", "k1", and scaled I and K, with an "e".

    Scaled is divided by ``exp(abs(x))`` (I) or ``exp(-x)`` (K). K and Y of negative numbers are NaN.
    """

    kind: str

    def eager(self, *arrays: Ndarray) -> Any:
        (x,) = arrays
        if x.size <= _BLOCK:
            return np.asarray(evaluate(self.kind, x)).astype(x.dtype)
        found = np.empty(x.shape, x.dtype)
        line, flat = found.reshape(-1), x.reshape(-1)
        for start in range(0, x.size, _BLOCK):
            line[start : start + _BLOCK] = evaluate(self.kind, flat[start : start + _BLOCK])
        return found

    def lower(self, emit: Emitter[S], x: S) -> S:
        return emit.bessel(self.kind, x)

    def slope(self, x: O, y: O) -> O:
        found: O = _SLOPES[self.kind](x, y)
        return found

    @classmethod
    def samples(cls, dtype: DType) -> Samples:
        if dtype.kind != "float":
            return []
        return [(Bessel(kind), sample_inputs(1, (0.3, 4.0), dtype)[0]) for kind in _SLOPES]


def _ratio(y: O, x: O) -> O:
    """``y / x`` for a function ``y`` of order 1: a half at 0."""
    is_zero = eq(x, literal(x, 0))
    return where(is_zero, literal(x, 0.5), div(y, where(is_zero, literal(x, 1), x)))


_SLOPES: dict[str, Callable[[Any, Any], Any]] = {
    "j0": lambda x, y: neg(bessel(x, "j1")),
    "j1": lambda x, y: sub(bessel(x, "j0"), _ratio(y, x)),
    "y0": lambda x, y: neg(bessel(x, "y1")),
    "y1": lambda x, y: sub(bessel(x, "y0"), div(y, x)),
    "i0": lambda x, y: bessel(x, "i1"),
    "i1": lambda x, y: sub(bessel(x, "i0"), _ratio(y, x)),
    "i0e": lambda x, y: sub(bessel(x, "i1e"), mul(sign(x), y)),
    "i1e": lambda x, y: sub(sub(bessel(x, "i0e"), mul(sign(x), y)), _ratio(y, x)),
    "k0": lambda x, y: neg(bessel(x, "k1")),
    "k1": lambda x, y: neg(add(bessel(x, "k0"), div(y, x))),
    "k0e": lambda x, y: sub(y, bessel(x, "k1e")),
    "k1e": lambda x, y: sub(sub(y, bessel(x, "k0e")), div(y, x)),
}


def bessel(x: O, kind: str) -> O:
    """A Bessel function by its kind, as in ``Bessel``."""
    return bind(Bessel(kind), x)
