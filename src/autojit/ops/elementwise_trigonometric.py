"""Trigonometric and hyperbolic functions and their inverses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from autojit.ir.op import O, Operands
from autojit.ops.elementwise_arithmetic import add, div, mul, neg, square, sub, where
from autojit.ops.elementwise_base import Binary, Divisor, Slope, binary, is_complex, unary
from autojit.ops.elementwise_exponential import sqrt
from autojit.ops.elementwise_logic import eq

if TYPE_CHECKING:
    pass

__all__ = [
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atan2", "Atanh", "Cos", "Cosh", "Hypot", "Sin", "Sinh", "Tan", "Tanh",
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cos", "cosh", "hypot", "sin", "sinh", "tan", "tanh",
]  # fmt: skip


class Sin(Slope):
    """Sine of radians."""

    ufunc = np.sin

    def slope(self, x: O, y: O) -> O:
        return cos(x)


class Cos(Slope):
    """Cosine of radians."""

    ufunc = np.cos

    def slope(self, x: O, y: O) -> O:
        return neg(sin(x))


class Tan(Slope):
    """Tangent of radians."""

    ufunc = np.tan
    domain: ClassVar[tuple[float, float]] = (-1.2, 1.2)

    def slope(self, x: O, y: O) -> O:
        return add(square(y), 1)


class Sinh(Slope):
    """Hyperbolic sine."""

    ufunc = np.sinh

    def slope(self, x: O, y: O) -> O:
        return cosh(x)


class Cosh(Slope):
    """Hyperbolic cosine."""

    ufunc = np.cosh

    def slope(self, x: O, y: O) -> O:
        return sinh(x)


class Tanh(Slope):
    """Hyperbolic tangent."""

    rounds_cotangents_once: ClassVar[bool] = True
    ufunc = np.tanh

    def slope(self, x: O, y: O) -> O:
        return sub(1, square(y))


class Asin(Divisor):
    """Inverse sine, in radians."""

    ufunc = np.arcsin
    domain: ClassVar[tuple[float, float]] = (-0.8, 0.8)

    def divisor(self, x: O, y: O) -> O:
        return sqrt(sub(1, square(x)))


class Acos(Divisor):
    """Inverse cosine, in radians."""

    ufunc = np.arccos
    domain: ClassVar[tuple[float, float]] = (-0.8, 0.8)

    def divisor(self, x: O, y: O) -> O:
        return neg(sqrt(sub(1, square(x))))


class Atan(Divisor):
    """Inverse tangent, in radians."""

    ufunc = np.arctan
    domain: ClassVar[tuple[float, float]] = (-0.8, 0.8)

    def divisor(self, x: O, y: O) -> O:
        return add(square(x), 1)


class Asinh(Divisor):
    """Inverse hyperbolic sine."""

    ufunc = np.arcsinh
    domain: ClassVar[tuple[float, float]] = (-0.8, 0.8)

    def divisor(self, x: O, y: O) -> O:
        return sqrt(add(square(x), 1))


class Acosh(Divisor):
    """Inverse hyperbolic cosine."""

    ufunc = np.arccosh
    domain: ClassVar[tuple[float, float]] = (1.2, 3.0)

    def divisor(self, x: O, y: O) -> O:
        if is_complex(x):
            return mul(sqrt(sub(x, 1)), sqrt(add(x, 1)))  # the principal branch
        return sqrt(sub(square(x), 1))


class Atanh(Divisor):
    """Inverse hyperbolic tangent."""

    ufunc = np.arctanh
    domain: ClassVar[tuple[float, float]] = (-0.8, 0.8)

    def divisor(self, x: O, y: O) -> O:
        return sub(1, square(x))


class Atan2(Binary):
    """The angle of the point ``(y, x)``, in radians in [-pi, pi]; operands in the order ordinate, abscissa."""

    is_cheap: ClassVar[bool] = False
    ufunc = np.arctan2
    accepts: ClassVar[tuple[str, ...]] = ("float",)
    domain: ClassVar[tuple[float, float]] = (0.5, 2.0)

    def partials(self, primals: Operands, result: O) -> Sequence[Any]:
        y, x = primals
        return lambda: div(x, self._radius2(y, x)), lambda: neg(div(y, self._radius2(y, x)))

    def _radius2(self, y: O, x: O) -> O:
        """The square of the radius; infinite at the origin, so that the angle, undefined there, has slope zero."""
        squared = add(square(y), square(x))
        return where(eq(squared, 0), math.inf, squared)


class Hypot(Binary):
    """``sqrt(x**2 + y**2)`` without overflow."""

    is_cheap: ClassVar[bool] = False
    ufunc = np.hypot
    accepts: ClassVar[tuple[str, ...]] = ("float",)
    domain: ClassVar[tuple[float, float]] = (0.5, 2.0)

    def partials(self, primals: Operands, result: O) -> Sequence[Any]:
        x, y = primals
        return lambda: div(x, result), lambda: div(y, result)


sin = unary(Sin())
cos = unary(Cos())
tan = unary(Tan())
sinh = unary(Sinh())
cosh = unary(Cosh())
tanh = unary(Tanh())
asin = unary(Asin())
acos = unary(Acos())
atan = unary(Atan())
asinh = unary(Asinh())
acosh = unary(Acosh())
atanh = unary(Atanh())
atan2 = binary(Atan2())
hypot = binary(Hypot())
