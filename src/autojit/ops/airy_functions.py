"""The Airy function Ai and its derivative, evaluated in float64.

Between -10 and 1 by Taylor's series of the equation ``y'' = x y`` from the nearest of the points -10, -9.75, ..., 1,
whose values come from the same series, step by step from 0. Beyond 1 by the integral along the steepest descent, with
the trapezoidal rule; below -10 by asymptotic series. Greatest errors over some thousand points: 6 eps of the amplitude
between -10 and 1, elsewhere the rounding of the phase or exponent ``z = 2/3 abs(x)^(3/2)``, about ``z`` eps.
Sources: Abramowitz and Stegun 10.4.1, 10.4.32, 10.4.60, 10.4.62; Trefethen and Weideman, SIAM Review 56(3), 2014.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.dtypes import DType
from autojit.core.records import record
from autojit.ir.op import Ndarray, O, bind
from autojit.ops.elementwise_arithmetic import mul
from autojit.ops.elementwise_base import sample_inputs
from autojit.ops.elementwise_special import Special
from autojit.ops.samples import Samples
from autojit.ops.special_reference import piecewise

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Doubles = NDArray[np.float64]

__all__ = ["Airy", "airy"]

_LOWEST, _HIGHEST, _STEP = -10.0, 1.0, 0.25
_TERMS = 20
_AT_ZERO = (0.35502805388781723926, -0.25881940379280679840)
_NODES, _REACH = 60, 6.5


def _taylor(x: Any, y: Any, slope: Any, h: Any) -> tuple[Any, Any]:
    """Value and derivative at ``x + h``."""
    a, b, c = slope * 0, y, slope  # coefficients n - 1, n, n + 1
    value, derivative, power = b + c * h, c, h
    for n in range(_TERMS):
        a, b, c = b, c, (x * b + a) / ((n + 1) * (n + 2))
        derivative = derivative + (n + 2) * c * power
        power = power * h
        value = value + c * power
    return value, derivative


@functools.cache
def _grid() -> tuple[Doubles, Doubles]:
    """Values and derivatives at the points of the grid."""
    found = {0: _AT_ZERO}
    for direction, last in ((-1, round(_LOWEST / _STEP)), (1, round(_HIGHEST / _STEP))):
        for k in range(0, last, direction):
            found[k + direction] = _taylor(k * _STEP, *found[k], direction * _STEP)
    ordered = [found[k] for k in sorted(found)]
    return np.array([value for value, _ in ordered]), np.array([slope for _, slope in ordered])


def _middle(x: Doubles) -> tuple[Doubles, Doubles]:
    values, slopes = _grid()
    nearest = np.rint(x / _STEP)
    k = (nearest - round(_LOWEST / _STEP)).astype(np.int64)
    at = nearest * _STEP
    value, slope = _taylor(at, values[k], slopes[k], x - at)
    return np.asarray(value), np.asarray(slope)


def _above(x: Doubles) -> tuple[Doubles, Doubles]:
    """Along ``t = s + i sqrt(x)`` the integrand is ``exp(-2/3 x^(3/2) - sqrt(x) s^2 + i s^3 / 3)``."""
    root = np.sqrt(x)
    reach = _REACH / np.sqrt(root)
    total, moment = np.full_like(x, 0.5), np.full_like(x, 0.5) * -root
    for j in range(1, _NODES):
        s = reach * (j / _NODES)
        fall, turn = np.exp(-root * s * s), s**3 / 3
        total += fall * np.cos(turn)
        moment -= fall * (root * np.cos(turn) + s * np.sin(turn))
    scale = np.exp(-2 / 3 * x * root) * reach / _NODES / math.pi
    return total * scale, moment * scale


def _below(x: Doubles) -> tuple[Doubles, Doubles]:
    z = -x
    zeta = 2 / 3 * z * np.sqrt(z)
    sums = [np.ones_like(z), np.zeros_like(z), np.ones_like(z), np.zeros_like(z)]
    c = d = 1.0
    power = np.ones_like(z)
    for k in range(1, 16):
        c *= (6 * k - 5) * (6 * k - 3) * (6 * k - 1) / (216 * k * (2 * k - 1))
        d = -(6 * k + 1) / (6 * k - 1) * c
        power = power / zeta
        sign = -1.0 if k % 4 >= 2 else 1.0
        sums[k % 2] = sums[k % 2] + sign * c * power
        sums[2 + k % 2] = sums[2 + k % 2] + sign * d * power
    sine, cosine = np.sin(zeta + math.pi / 4), np.cos(zeta + math.pi / 4)
    quarter = np.sqrt(np.sqrt(z))
    value = (sine * sums[0] - cosine * sums[1]) / (math.sqrt(math.pi) * quarter)
    slope = -(cosine * sums[2] + sine * sums[3]) * quarter / math.sqrt(math.pi)
    return value, slope


def evaluate(x: Ndarray, is_slope: bool) -> Doubles:
    """Ai, or its derivative, in float64."""
    wide = np.asarray(x, np.float64)
    parts = (
        ((wide >= _LOWEST) & (wide <= _HIGHEST), lambda x: _middle(x)[is_slope]),
        (wide > _HIGHEST, lambda x: _above(x)[is_slope]),
        (wide < _LOWEST, lambda x: _below(x)[is_slope]),
    )
    with np.errstate(all="ignore"):
        found = piecewise(wide, parts)
    return np.where(np.isposinf(wide) | (np.isneginf(wide) & (not is_slope)), 0.0, found)


@record
class Airy(Special):
    """Ai, or with ``is_slope`` its derivative; the derivative's own is ``x Ai(x)``."""

    is_slope: bool

    def eager(self, *arrays: Ndarray) -> Any:
        return np.asarray(evaluate(arrays[0], self.is_slope)).astype(arrays[0].dtype)

    def slope(self, x: O, y: O) -> O:
        return mul(x, airy(x)) if self.is_slope else bind(Airy(True), x)

    @classmethod
    def samples(cls, dtype: DType) -> Samples:
        if dtype.kind != "float":
            return []
        inputs = sample_inputs(1, (-3.0, 3.0), dtype)
        return [(Airy(is_slope), inputs[0]) for is_slope in (False, True)]


def airy(x: O) -> O:
    """The Airy function Ai."""
    return bind(Airy(False), x)
