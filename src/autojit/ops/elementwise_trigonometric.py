"""Trigonometric and hyperbolic functions and their inverses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from autojit.ir.op import O, Operands, bind
from autojit.ops.elementwise_arithmetic import add, div, mul, neg, square, sub, where
from autojit.ops.elementwise_base import FLOATS, Divisor, Pointwise, is_complex
from autojit.ops.elementwise_exponential import sqrt
from autojit.ops.elementwise_logic import eq
from autojit.ops.sources import Number, pair

if TYPE_CHECKING:
    from autojit.ir.emitter import Emitter, S

__all__ = [
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atan2", "Atanh", "Cos", "Cosh", "Hypot", "Sin", "Sinh", "Tan", "Tanh",
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cos", "cosh", "hypot", "sin", "sinh", "tan", "tanh",
]  # fmt: skip


class Sin(Pointwise):
    """Sine of radians."""

    is_cheap: ClassVar[bool] = False
    ufunc = np.sin
    accepts: ClassVar[tuple[str, ...]] = FLOATS

    def partials(self, primals: Operands, result: O) -> Sequence[Any]:
        (x,) = primals
        return (lambda: cos(x),)

    def lower(self, emit: Emitter[S], x: S) -> S:
        return emit.sin(x)


class Cos(Pointwise):
    """Cosine of radians."""

    is_cheap: ClassVar[bool] = False
    ufunc = np.cos
    accepts: ClassVar[tuple[str, ...]] = FLOATS

    def partials(self, primals: Operands, result: O) -> Sequence[Any]:
        (x,) = primals
        return (lambda: neg(sin(x)),)

    def lower(self, emit: Emitter[S], x: S) -> S:
        return emit.cos(x)


class Tan(Pointwise):
    """Tangent of radians."""

    is_cheap: ClassVar[bool] = False
    ufunc = np.tan
    accepts: ClassVar[tuple[str, ...]] = FLOATS
    domain: ClassVar[tuple[float, float]] = (-1.2, 1.2)
    singular: ClassVar[bool] = True

    def partials(self, primals: Operands, result: O) -> Sequence[Any]:
        return (lambda: add(square(result), 1),)

    def lower(self, emit: Emitter[S], x: S) -> S:
        return emit.tan(x)


class Sinh(Pointwise):
    """Hyperbolic sine."""

    is_cheap: ClassVar[bool] = False
    ufunc = np.sinh
    accepts: ClassVar[tuple[str, ...]] = FLOATS
    singular: ClassVar[bool] = True

    def partials(self, primals: Operands, result: O) -> Sequence[Any]:
        (x,) = primals
        return (lambda: cosh(x),)

    def lower(self, emit: Emitter[S], x: S) -> S:
        return emit.sinh(x)


class Cosh(Pointwise):
    """Hyperbolic cosine."""

    is_cheap: ClassVar[bool] = False
    ufunc = np.cosh
    accepts: ClassVar[tuple[str, ...]] = FLOATS
    singular: ClassVar[bool] = True

    def partials(self, primals: Operands, result: O) -> Sequence[Any]:
        (x,) = primals
        return (lambda: sinh(x),)

    def lower(self, emit: Emitter[S], x: S) -> S:
        return emit.cosh(x)


class Tanh(Pointwise):
    """Hyperbolic tangent."""

    is_cheap: ClassVar[bool] = False
    ufunc = np.tanh
    accepts: ClassVar[tuple[str, ...]] = FLOATS

    def partials(self, primals: Operands, result: O) -> Sequence[Any]:
        return (lambda: sub(1, square(result)),)

    def lower(self, emit: Emitter[S], x: S) -> S:
        return emit.tanh(x)


class Asin(Divisor):
    """Inverse sine, in radians."""

    is_cheap: ClassVar[bool] = False
    ufunc = np.arcsin
    domain: ClassVar[tuple[float, float]] = (-0.8, 0.8)

    def divisor(self, x: O, y: O) -> O:
        return sqrt(sub(1, square(x)))

    def lower(self, emit: Emitter[S], x: S) -> S:
        return emit.asin(x)


class Acos(Divisor):
    """Inverse cosine, in radians."""

    is_cheap: ClassVar[bool] = False
    ufunc = np.arccos
    domain: ClassVar[tuple[float, float]] = (-0.8, 0.8)

    def divisor(self, x: O, y: O) -> O:
        return neg(sqrt(sub(1, square(x))))

    def lower(self, emit: Emitter[S], x: S) -> S:
        return emit.acos(x)


class Atan(Divisor):
    """Inverse tangent, in radians."""

    is_cheap: ClassVar[bool] = False
    ufunc = np.arctan
    domain: ClassVar[tuple[float, float]] = (-0.8, 0.8)

    def divisor(self, x: O, y: O) -> O:
        return add(square(x), 1)

    def lower(self, emit: Emitter[S], x: S) -> S:
        return emit.atan(x)


class Asinh(Divisor):
    """Inverse hyperbolic sine."""

    is_cheap: ClassVar[bool] = False
    ufunc = np.arcsinh
    domain: ClassVar[tuple[float, float]] = (-0.8, 0.8)

    def divisor(self, x: O, y: O) -> O:
        return sqrt(add(square(x), 1))

    def lower(self, emit: Emitter[S], x: S) -> S:
        return emit.asinh(x)


class Acosh(Divisor):
    """Inverse hyperbolic cosine."""

    is_cheap: ClassVar[bool] = False
    ufunc = np.arccosh
    domain: ClassVar[tuple[float, float]] = (1.2, 3.0)

    def divisor(self, x: O, y: O) -> O:
        if is_complex(x):
            return mul(sqrt(sub(x, 1)), sqrt(add(x, 1)))  # the principal branch
        return sqrt(sub(square(x), 1))

    def lower(self, emit: Emitter[S], x: S) -> S:
        return emit.acosh(x)


class Atanh(Divisor):
    """Inverse hyperbolic tangent."""

    is_cheap: ClassVar[bool] = False
    ufunc = np.arctanh
    domain: ClassVar[tuple[float, float]] = (-0.8, 0.8)

    def divisor(self, x: O, y: O) -> O:
        return sub(1, square(x))

    def lower(self, emit: Emitter[S], x: S) -> S:
        return emit.atanh(x)


class Atan2(Pointwise):
    """The angle of the point ``(y, x)``, in radians in [-pi, pi]; operands in the order ordinate, abscissa."""

    is_cheap: ClassVar[bool] = False
    ufunc = np.arctan2
    arity: ClassVar[int] = 2
    accepts: ClassVar[tuple[str, ...]] = ("float",)
    singular: ClassVar[bool] = True
    domain: ClassVar[tuple[float, float]] = (0.5, 2.0)

    def partials(self, primals: Operands, result: O) -> Sequence[Any]:
        y, x = primals
        return lambda: div(x, self._radius2(y, x)), lambda: neg(div(y, self._radius2(y, x)))

    def _radius2(self, y: Any, x: Any) -> Any:
        """The square of the radius; infinite at the origin, so that the angle, undefined there, has slope zero."""
        squared = add(square(y), square(x))
        return where(eq(squared, 0), math.inf, squared)

    def lower(self, emit: Emitter[S], y: S, x: S) -> S:
        return emit.atan2(y, x)


class Hypot(Pointwise):
    """``sqrt(x**2 + y**2)`` without overflow."""

    is_cheap: ClassVar[bool] = False
    ufunc = np.hypot
    arity: ClassVar[int] = 2
    accepts: ClassVar[tuple[str, ...]] = ("float",)
    singular: ClassVar[bool] = True
    domain: ClassVar[tuple[float, float]] = (0.5, 2.0)

    def partials(self, primals: Operands, result: O) -> Sequence[Any]:
        x, y = primals
        return lambda: div(x, result), lambda: div(y, result)

    def lower(self, emit: Emitter[S], x: S, y: S) -> S:
        return emit.hypot(x, y)


SIN, COS, TAN, SINH, COSH, TANH = Sin(), Cos(), Tan(), Sinh(), Cosh(), Tanh()
ASIN, ACOS, ATAN, ASINH, ACOSH, ATANH = Asin(), Acos(), Atan(), Asinh(), Acosh(), Atanh()
ATAN2, HYPOT = Atan2(), Hypot()


def sin(x: O) -> O:
    """Sine of radians."""
    return bind(SIN, x)


def cos(x: O) -> O:
    """Cosine of radians."""
    return bind(COS, x)


def tan(x: O) -> O:
    """Tangent of radians."""
    return bind(TAN, x)


def sinh(x: O) -> O:
    """Hyperbolic sine."""
    return bind(SINH, x)


def cosh(x: O) -> O:
    """Hyperbolic cosine."""
    return bind(COSH, x)


def tanh(x: O) -> O:
    """Hyperbolic tangent."""
    return bind(TANH, x)


def asin(x: O) -> O:
    """Inverse sine, in radians."""
    return bind(ASIN, x)


def acos(x: O) -> O:
    """Inverse cosine, in radians."""
    return bind(ACOS, x)


def atan(x: O) -> O:
    """Inverse tangent, in radians."""
    return bind(ATAN, x)


def asinh(x: O) -> O:
    """Inverse hyperbolic sine."""
    return bind(ASINH, x)


def acosh(x: O) -> O:
    """Inverse hyperbolic cosine."""
    return bind(ACOSH, x)


def atanh(x: O) -> O:
    """Inverse hyperbolic tangent."""
    return bind(ATANH, x)


def atan2(y: O | Number, x: O | Number) -> O:
    """The angle of the point with ordinate ``y`` and abscissa ``x``, in radians."""
    return bind(ATAN2, *pair(y, x))


def hypot(x: O | Number, y: O | Number) -> O:
    """``sqrt(x**2 + y**2)`` without overflow."""
    return bind(HYPOT, *pair(x, y))
