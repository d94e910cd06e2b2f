"""Rounding and division with remainder. Steps have derivative 0; remainders inherit it from ``x - y * quotient``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from autojit.core.dtypes import int32
from autojit.core.errors import UsageError
from autojit.core.types import TensorType
from autojit.ir.op import Ndarray, O, Operand, Operands, bind
from autojit.ops.base import tangent_difference
from autojit.ops.cotangent_masks import cotangent_product
from autojit.ops.elementwise_arithmetic import div, mul, neg, sub
from autojit.ops.elementwise_base import Binary, Pointwise, Ufunc, binary, widened
from autojit.ops.refused_values import refused_facts

if TYPE_CHECKING:
    from autojit.ir.emitter import Emitter, S

__all__ = [
    "Ceil", "Floor", "FloorDivide", "Fmod", "Remainder", "Round", "Trunc", "TruncDivide", "ceil", "floor",
    "floor_divide", "fmod", "frac", "remainder", "round", "trunc", "trunc_divide",
]  # fmt: skip


class Step(Pointwise, abstract=True):
    """Rounds floats to whole numbers."""

    accepts: ClassVar[tuple[str, ...]] = ("float",)

    def partials(self, primals: Operands, result: O) -> Sequence[Any]:
        return (None,)


class Floor(Step):
    """The largest whole number not above."""

    ufunc = np.floor


class Ceil(Step):
    """The smallest whole number not below."""

    ufunc = np.ceil


class Trunc(Step):
    """The whole part."""

    ufunc = np.trunc


class Round(Step):
    """The nearest whole number; halves go to the even one."""

    ufunc = np.rint


def division_by_zero(divisor: Ndarray | None = None) -> Exception:
    """The error of a whole number divided by zero: torch's, a RuntimeError; where the divisor is known, its place."""
    facts = {} if divisor is None else refused_facts(divisor == 0, "the divisor", "any whole number but 0", divisor)
    return UsageError("ZeroDivisionError: integer division or remainder by zero", facts)


def _checked(function: Ufunc) -> Ufunc:
    """The function, refusing integer division by zero as torch does; 2-byte floats are computed in float32."""
    wide = widened(function)

    def divide(x: Ndarray, y: Ndarray) -> Any:
        if y.dtype.kind in "iu" and x.size and not y.all():
            raise division_by_zero(np.asarray(y))
        return wide(x, y)

    return divide


def _trunc_divide(x: Ndarray, y: Ndarray) -> Any:
    if x.dtype.kind in "iu":
        quotient = np.floor_divide(x, y)
        inexact = (np.remainder(x, y) != 0) & ((x < 0) != (y < 0))
        return quotient + inexact.astype(quotient.dtype)
    return np.trunc(np.true_divide(x, y))


class Quotient(Binary, abstract=True):
    """Division with a whole result, or its remainder."""

    accepts: ClassVar[tuple[str, ...]] = ("uint", "int", "float")
    domain: ClassVar[tuple[float, float]] = (1.0, 6.0)

    def partials(self, primals: Operands, result: O) -> Sequence[Any]:
        return None, None

    def may_refuse(self, *types: TensorType) -> bool:
        return types[1].dtype.kind != "float"

    def failure(self, number: int) -> Exception:
        """The error of a zero divisor (``number``: which of the op's failures; there is one)."""
        return division_by_zero()

    def lower(self, emit: Emitter[S], x: Any, y: Any) -> Any:
        if y.dtype.kind != "float" and not (y.is_literal and int(y.text)):
            emit.failures.append(emit.cast(emit.eq(y, emit.zero(y)), int32))
        return self.divide(emit, x, y)

    def divide(self, emit: Emitter[S], x: S, y: S) -> S:
        """The op where the divisor is not zero."""
        raise NotImplementedError(self.name)


class FloorDivide(Quotient):
    """``floor(x / y)``, exact even where ``x / y`` rounds."""

    ufunc = staticmethod(_checked(np.floor_divide))

    def divide(self, emit: Emitter[S], x: S, y: S) -> S:
        return emit.floor_div(x, y)


class TruncDivide(Quotient):
    """``trunc(x / y)``."""

    ufunc = staticmethod(_checked(_trunc_divide))

    def divide(self, emit: Emitter[S], x: S, y: S) -> S:
        return emit.trunc_div(x, y)


class Rest(Quotient, abstract=True):
    """``x - y * quotient``, so the derivatives are 1 and ``-quotient``."""

    def quotient(self, x: O, y: O) -> O:
        raise NotImplementedError(self.name)

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        x, y = primals
        return y_bar, lambda: neg(cotangent_product(y_bar, self.quotient(x, y)))

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        (x, y), (x_dot, y_dot) = primals, tangents
        return tangent_difference(x_dot, None if y_dot is None else mul(y_dot, self.quotient(x, y)))


def _remainder(x: Ndarray, y: Ndarray) -> Any:
    if x.dtype.kind in "iu":
        return np.remainder(x, y)
    rest = np.asarray(np.fmod(x, y))
    np.add(rest, y, out=rest, where=(rest != 0) & ((rest < 0) != (y < 0)))
    return rest


class Remainder(Rest):
    """``x - y * floor(x / y)``: the sign of the divisor, as Python's ``%``; a zero has the dividend's, as in torch."""

    ufunc = staticmethod(_checked(_remainder))

    def quotient(self, x: O, y: O) -> O:
        return floor_divide(x, y)

    def divide(self, emit: Emitter[S], x: S, y: S) -> S:
        return emit.remainder(x, y)


class Fmod(Rest):
    """``x - y * trunc(x / y)``: the sign of the dividend, as C's ``fmod``."""

    ufunc = staticmethod(_checked(np.fmod))

    def quotient(self, x: O, y: O) -> O:
        return trunc_divide(x, y)

    def divide(self, emit: Emitter[S], x: S, y: S) -> S:
        return emit.fmod(x, y)


FLOOR, CEIL, TRUNC, ROUND = Floor(), Ceil(), Trunc(), Round()


def _whole(x: Operand) -> bool:
    return not x.spec.dtype.is_differentiable


def floor(x: O) -> O:
    """The largest whole number not above; integers as they are."""
    return x if _whole(x) else bind(FLOOR, x)


def ceil(x: O) -> O:
    """The smallest whole number not below; integers as they are."""
    return x if _whole(x) else bind(CEIL, x)


def trunc(x: O) -> O:
    """The whole part; integers as they are."""
    return x if _whole(x) else bind(TRUNC, x)


def round(x: O, decimals: int = 0) -> O:
    """The nearest multiple of ``10**-decimals``; halves go to the even one."""
    if decimals == 0 or (_whole(x) and decimals > 0):
        return x if _whole(x) else bind(ROUND, x)
    if decimals > 0:
        return div(bind(ROUND, mul(x, 10.0**decimals)), 10.0**decimals)
    return mul(bind(ROUND, div(x, 10.0**-decimals)), 10.0**-decimals)


def frac(x: O) -> O:
    """The fractional part, with the sign of ``x``."""
    return sub(x, trunc(x))


floor_divide = binary(FloorDivide())
trunc_divide = binary(TruncDivide())
remainder = binary(Remainder())
fmod = binary(Fmod())
