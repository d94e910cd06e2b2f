"""Exponentials, logarithms, powers and roots.

A derivative uses the result where the mathematics allows it (exp, sqrt, sigmoid, tanh), so that the operand need not
be kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from autojit.core.dtypes import DType
from autojit.core.records import record
from autojit.ir.op import Ndarray, O, Operands, bind
from autojit.ops.elementwise_arithmetic import RECIPROCAL, add, mul, reciprocal, square, sub, where
from autojit.ops.elementwise_base import Binary, Divisor, Slope, binary, sample_inputs, unary, widened
from autojit.ops.elementwise_logic import eq, ge, logical_and
from autojit.ops.loop_orders import settled
from autojit.ops.samples import Samples
from autojit.ops.sources import NUMBERS, literal, ones_like, pair

if TYPE_CHECKING:
    from autojit.ir.emitter import Emitter, S

__all__ = [
    "Exp", "Exp2", "Expm1", "Log", "Log1p", "Log2", "Log10", "Logaddexp", "Pow", "PowNumber", "Rsqrt", "Sigmoid",
    "Sqrt", "exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "logaddexp", "pow", "rsqrt", "sigmoid", "sqrt",
]  # fmt: skip


class Exp(Slope):
    """``e ** x``."""

    ufunc = np.exp

    def slope(self, x: O, y: O) -> O:
        return y


class Exp2(Slope):
    """``2 ** x``."""

    ufunc = np.exp2

    def slope(self, x: O, y: O) -> O:
        return mul(y, math.log(2.0))


class Expm1(Slope):
    """``e ** x - 1``, accurate near 0."""

    ufunc = np.expm1

    def slope(self, x: O, y: O) -> O:
        return add(y, 1)


class Log(Divisor):
    """Natural logarithm."""

    ufunc = np.log
    domain: ClassVar[tuple[float, float]] = (0.3, 3.0)

    def divisor(self, x: O, y: O) -> O:
        return x


class Log2(Divisor):
    """Logarithm to base 2."""

    ufunc = np.log2
    domain: ClassVar[tuple[float, float]] = (0.3, 3.0)

    def divisor(self, x: O, y: O) -> O:
        return mul(x, math.log(2.0))


class Log10(Divisor):
    """Logarithm to base 10."""

    ufunc = np.log10
    domain: ClassVar[tuple[float, float]] = (0.3, 3.0)

    def divisor(self, x: O, y: O) -> O:
        return mul(x, math.log(10.0))


class Log1p(Divisor):
    """``log(1 + x)``, accurate near 0."""

    ufunc = np.log1p
    domain: ClassVar[tuple[float, float]] = (-0.7, 2.0)

    def divisor(self, x: O, y: O) -> O:
        return add(x, 1)


class Sqrt(Divisor):
    """Square root; its derivative at 0 is infinite, and 0 under a zero cotangent."""

    is_cheap: ClassVar[bool] = True
    ufunc = np.sqrt
    domain: ClassVar[tuple[float, float]] = (0.3, 3.0)

    def divisor(self, x: O, y: O) -> O:
        return mul(y, 2)


class Rsqrt(Slope):
    """``1 / sqrt(x)``."""

    is_cheap: ClassVar[bool] = True
    domain: ClassVar[tuple[float, float]] = (0.3, 3.0)
    ufunc = staticmethod(widened(lambda x: np.reciprocal(np.sqrt(x))))

    def slope(self, x: O, y: O) -> O:
        return mul(mul(y, square(y)), -0.5)


def _sigmoid(x: Ndarray) -> Any:
    ends = _ENDS.get(x.dtype.char)
    if ends is None or not x.ndim:
        return _other_sigmoid(x)
    # the bits of the rule below by arithmetic alone, in two arrays: to choose by a mask costs as much as four passes
    zero, one = ends
    above, below = np.minimum(x, zero), np.abs(x)
    np.exp(above, above)
    np.negative(below, below)
    np.exp(below, below)
    np.add(below, one, below)
    return np.divide(above, below, above)


_ENDS = {kind: (np.zeros((), kind), np.ones((), kind)) for kind in "fd"}  # arrays: NumPy converts no number at a call


@settled
@widened
def _other_sigmoid(x: Ndarray) -> Any:
    if x.dtype.kind == "c":
        return 1 / (1 + np.exp(-x))
    tail = np.exp(-np.abs(x))  # never overflows
    return np.where(x >= 0, x.dtype.type(1), tail) / (1 + tail)


class Sigmoid(Slope):
    """``1 / (1 + e ** -x)``."""

    rounds_cotangents_once: ClassVar[bool] = True
    is_one_loop: ClassVar[bool] = True
    ufunc = staticmethod(_sigmoid)

    def slope(self, x: O, y: O) -> O:
        return mul(y, sub(1, y))


_MANY = (
    256  # elements; NumPy's own loop, one element after the other, takes 1.2 us for 64 and 45 for 4,096, this 3 and 7
)


def _logaddexp(x: Ndarray, y: Ndarray) -> Any:
    """``np.logaddexp`` in NumPy's vector functions, as kernels compute it."""
    if max(x.size, y.size) < _MANY:
        return np.logaddexp(x, y)
    with np.errstate(invalid="ignore"):  # equal infinities have no difference
        rest = np.subtract(x, y)
    for function in (np.abs, np.negative, np.exp, np.log1p):
        function(rest, out=rest)
    found = np.maximum(x, y)
    rest += found
    return np.where(np.isinf(found), found, rest) if np.isinf(found).any() else rest


class Logaddexp(Binary):
    """``log(e ** x + e ** y)`` without overflow."""

    is_cheap: ClassVar[bool] = False
    accepts: ClassVar[tuple[str, ...]] = ("float",)
    ufunc = staticmethod(widened(_logaddexp))

    def partials(self, primals: Operands, result: O) -> Sequence[Any]:
        x, y = primals
        return lambda: sigmoid(sub(x, y)), lambda: sigmoid(sub(y, x))

    def lower(self, emit: Emitter[S], x: S, y: S) -> S:
        gap = emit.select(emit.eq(x, y), emit.zero(x), emit.abs(emit.sub(x, y)))  # equal infinities: no inf - inf
        return emit.add(emit.maximum(x, y), emit.log1p(emit.exp(emit.neg(gap))))


def _complex_power(x: Ndarray, y: Ndarray) -> Any:
    """``x ** y``; 0 to a power in the right half plane is 0 (NumPy before 2.4: only to one on the real line)."""
    found = np.power(x, y)
    vanishes = (x == 0) & (y.real > 0)
    return np.where(vanishes, found.dtype.type(0), found) if np.any(vanishes) else found


def _power(x: Ndarray, y: Ndarray) -> Any:
    if y.dtype.kind == "c":
        return _complex_power(x, y)
    if y.dtype.kind != "i" or not np.any(y < 0):
        return np.power(x, y)
    fraction = np.where(x == 1, 1, np.where(x == -1, np.where(y % 2 == 0, 1, -1), 0))
    return np.where(y < 0, fraction, np.power(x, np.maximum(y, 0))).astype(x.dtype)


def _whole_power(x: Ndarray, exponent: Any) -> Any:
    """Floats to a whole power. NumPy's vector function is for positive numbers; others take it forty times as long."""
    if exponent == 3:
        return x * x * x  # as torch
    found = np.power(np.abs(x), exponent)
    return np.copysign(found, x) if exponent % 2 else found


class Pow(Binary):
    """``x ** y``. Integers wrap; to a negative power they are the whole part of the fraction: 0, 1 or -1."""

    node_class: ClassVar[str] = "PowBackward1"
    operand_names: ClassVar[tuple[str, ...]] = ("self", "exponent")

    is_cheap: ClassVar[bool] = False
    ufunc = staticmethod(_power)
    is_one_loop: ClassVar[bool] = True
    accepts: ClassVar[tuple[str, ...]] = ("uint", "int", "float", "complex")
    domain: ClassVar[tuple[float, float]] = (0.5, 2.0)

    def partials(self, primals: Operands, result: O) -> Sequence[Any]:
        x, y = primals
        return lambda: self._by_base(x, y), lambda: self._by_exponent(x, y, result)

    def _by_base(self, x: O, y: O) -> O:
        return where(eq(y, 0), 0, mul(y, pow(x, sub(y, 1))))

    def _by_exponent(self, x: O, y: O, result: O) -> O:
        flat = eq(x, 0) if y.spec.dtype.is_complex else logical_and(eq(x, 0), ge(y, 0))
        return where(flat, 0, mul(result, log(where(flat, 1, x))))


@record
class PowNumber(Slope):
    """``x ** exponent`` for a number known when the graph is built."""

    exponent: int | float | complex
    node_class: ClassVar[str] = "PowBackward0"

    accepts: ClassVar[tuple[str, ...]] = ("uint", "int", "float", "complex")
    domain: ClassVar[tuple[float, float]] = (0.5, 2.0)

    def eager(self, *arrays: Ndarray) -> Any:
        (x,) = arrays
        if x.dtype.kind not in "iu" and self.exponent in (
            0.5,
            -0.5,
            -1,
        ):  # as their own ops, in the signs of zeros, too
            op = SQRT if self.exponent == 0.5 else RSQRT if self.exponent == -0.5 else RECIPROCAL
            return op.eager(x)
        exponent = np.asarray(self.exponent).astype(x.dtype)
        if exponent.dtype.kind == "c":
            return _complex_power(x, exponent)
        is_whole = x.dtype.kind == "f" and x.dtype.itemsize >= 4 and float(self.exponent.real).is_integer()
        return _whole_power(x, exponent) if is_whole else np.power(x, exponent)

    def slope(self, x: O, y: O) -> O:
        return literal(x, 0) if self.exponent == 0 else mul(pow(x, self.exponent - 1), self.exponent)

    def lower(self, emit: Emitter[S], x: Any) -> Any:
        if self.exponent == int(self.exponent.real) and abs(self.exponent) <= _LONGEST_CHAIN:
            return _chain(emit, x, int(self.exponent.real))
        return emit.pow(x, emit.constant(self.exponent, x.dtype))

    @classmethod
    def samples(cls, dtype: DType) -> Samples:
        if dtype.kind not in cls.accepts:
            return []
        exponents = (0, 3, 4) if dtype.kind in ("int", "uint") else (0, 3, 5.0, -2, 1.5, -0.75)
        return [(cls(e), arrays) for e in exponents for arrays in sample_inputs(1, cls.domain, dtype)]


_LONGEST_CHAIN = 8


def _chain(emit: Emitter[S], x: S, exponent: int) -> S:
    """Repeated squaring; a negative exponent divides once at the end."""
    result: Any = None
    power, rest = x, abs(exponent)
    while rest:
        if rest & 1:
            result = power if result is None else emit.mul(result, power)
        rest >>= 1
        if rest:
            power = emit.mul(power, power)
    result = emit.one(x) if result is None else result
    return emit.div(emit.one(x), result) if exponent < 0 else result


SQRT, RSQRT, POW = Sqrt(), Rsqrt(), Pow()


exp = unary(Exp())
exp2 = unary(Exp2())
expm1 = unary(Expm1())
log = unary(Log())
log2 = unary(Log2())
log10 = unary(Log10())
log1p = unary(Log1p())
sqrt = unary(SQRT)
rsqrt = unary(RSQRT)
sigmoid = unary(Sigmoid())
logaddexp = binary(Logaddexp())


def power_of(x: O, y: Any) -> O:
    """``pow`` whose derivative reads ``x``; those of roots and reciprocals read the result instead."""
    return bind(PowNumber(y), x) if y in (0.5, -0.5, -1) else pow(x, y)


def pow(x: O, y: Any) -> O:
    """``x ** y``; a Python number as the exponent becomes the cheapest op that computes it."""
    if not isinstance(y, NUMBERS):
        exponent: O = y
        return bind(POW, *pair(x, exponent))
    if y == 0:
        return ones_like(x)
    if y == 1:
        return x
    if y == 2:
        return square(x)
    if x.spec.dtype.is_differentiable:
        if y == -1:
            return reciprocal(x)
        if y == 0.5:
            return sqrt(x)
        if y == -0.5:
            return rsqrt(x)
    return bind(PowNumber(y), x)  # type: ignore[arg-type]
