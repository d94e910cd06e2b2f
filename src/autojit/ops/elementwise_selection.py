"""Choosing between elements: maximum and minimum in both NaN conventions, relu, clamp, sign transfer.

Ties follow torch: ``maximum``, ``minimum``, ``fmax`` and ``fmin`` split the cotangent evenly, and so does ``clamp``
between a value and the tensor that bounds it, unless two bounds are equal; at a bound that is a number its derivative
is 0, as ``relu``'s is at 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from autojit.ir.op import Ndarray, O, Operands, bind
from autojit.ops.base import tangent_sum
from autojit.ops.elementwise_arithmetic import cast, mul, where
from autojit.ops.elementwise_base import REALS, Binary, Pointwise, Ufunc, binary, unary
from autojit.ops.elementwise_logic import eq, ge, gt, isnan, le, logical_and, logical_or, lt, ne
from autojit.ops.sources import NUMBERS, Number, literal

if TYPE_CHECKING:
    from autojit.ir.emitter import Emitter, S

__all__ = [
    "Clamp", "Copysign", "Fmax", "Fmin", "Maximum", "Minimum", "Nextafter", "Relu", "clamp", "clamp_max", "clamp_min",
    "copysign", "fmax", "fmin", "heaviside", "maximum", "minimum", "nan_to_num", "nextafter", "relu",
]  # fmt: skip


class Extremum(Binary, abstract=True):
    """The larger or smaller of two."""

    masks_cotangents: ClassVar[bool] = True
    accepts: ClassVar[tuple[str, ...]] = REALS

    def is_beaten(self, x: O, y: O) -> O:
        """Where ``x`` loses to ``y``."""
        raise NotImplementedError(self.name)

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        x, y = primals
        return lambda: self._part(x, y, y_bar), lambda: self._part(y, x, y_bar)

    def _part(self, x: O, y: O, y_bar: O) -> O:
        """The share of ``x`` in ``y_bar``: none where beaten, half where tied."""
        return where(self.is_beaten(x, y), 0, where(eq(x, y), mul(y_bar, 0.5), y_bar))

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        (x, y), (x_dot, y_dot) = primals, tangents
        by_x = None if x_dot is None else self._part(x, y, x_dot)
        return tangent_sum(by_x, None if y_dot is None else self._part(y, x, y_dot))


class Maximum(Extremum):
    """The larger operand; NaN if one is NaN."""

    ufunc: ClassVar[Ufunc] = np.maximum

    def is_beaten(self, x: O, y: O) -> O:
        return lt(x, y)


class Minimum(Extremum):
    """The smaller operand; NaN if one is NaN."""

    ufunc: ClassVar[Ufunc] = np.minimum

    def is_beaten(self, x: O, y: O) -> O:
        return gt(x, y)


class Fmax(Maximum):
    """The larger operand; the number if one is NaN, though both receive the derivative, as in torch."""

    ufunc = np.fmax


class Fmin(Minimum):
    """The smaller operand; the number if one is NaN, though both receive the derivative, as in torch."""

    ufunc = np.fmin


def _clamped(x: Ndarray, low: Ndarray, high: Ndarray) -> Any:
    return np.minimum(np.maximum(x, low), high)


class Clamp(Pointwise):
    """``x`` within bounds that are tensors; ``high`` wins where they cross; NaN if one of the three is.

    The derivative is not that of ``minimum(maximum(x, low), high)``: ``x`` at a bound shares with it only where the two
    bounds are apart, and where one cannot be compared, or the bounds cross, ``low`` has none, as in torch.
    """

    operand_names: ClassVar[tuple[str, ...]] = ("self", "min", "max")
    masks_cotangents: ClassVar[bool] = True
    accepts: ClassVar[tuple[str, ...]] = REALS
    ufunc = staticmethod(_clamped)
    arity: ClassVar[int] = 3

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        return [partial(part, *primals, y_bar) for part in _PARTS]

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        pairs = zip(_PARTS, tangents, strict=True)
        return reduce(tangent_sum, [None if x_dot is None else part(*primals, x_dot) for part, x_dot in pairs])

    def lower(self, emit: Emitter[S], x: S, low: S, high: S) -> S:
        return emit.minimum(emit.maximum(x, low), high)


def _part_of_x(x: O, low: O, high: O, bar: O) -> O:
    """What the operand has of a cotangent, or gives of its tangent."""
    inside = _halved(logical_or(eq(x, low), eq(x, high)), low, high, bar, bar)
    return where(logical_or(lt(x, low), gt(x, high)), 0, inside)


def _part_of_low(x: O, low: O, high: O, bar: O) -> O:
    return where(logical_and(lt(x, low), le(low, high)), bar, _halved(eq(x, low), low, high, bar, 0))


def _part_of_high(x: O, low: O, high: O, bar: O) -> O:
    is_high = logical_or(gt(low, high), logical_and(gt(x, high), le(low, high)))
    return where(is_high, bar, _halved(eq(x, high), low, high, bar, 0))


def _halved(at_bound: O, low: O, high: O, bar: O, other: O | Number) -> O:
    return where(logical_and(at_bound, lt(low, high)), mul(bar, 0.5), other)


_PARTS: tuple[Callable[..., Any], ...] = (_part_of_x, _part_of_low, _part_of_high)


def _relu(x: Ndarray) -> Any:
    zero = np.zeros((), x.dtype)
    return np.where(np.less(x, zero), zero, x)  # which of two zeros ``maximum`` takes depends on the machine


class Relu(Pointwise):
    """``max(x, 0)``; NaN and -0.0 stay what they are. The derivative reads the result, so ``x`` need not be kept."""

    masks_cotangents: ClassVar[bool] = True
    accepts: ClassVar[tuple[str, ...]] = ("uint", "int", "float")
    ufunc = staticmethod(_relu)
    is_one_loop: ClassVar[bool] = True

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        return (lambda: where(le(result, 0), 0, y_bar),)

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        (x_dot,) = tangents
        return None if x_dot is None else where(le(result, 0), 0, x_dot)

    def lower(self, emit: Emitter[S], x: S) -> S:
        return emit.maximum(x, emit.zero(x))


class Copysign(Binary):
    """The magnitude of the first operand with the sign of the second."""

    ufunc = np.copysign
    accepts: ClassVar[tuple[str, ...]] = ("float",)
    domain: ClassVar[tuple[float, float]] = (0.5, 2.0)

    def partials(self, primals: Operands, result: O) -> Sequence[Any]:
        x, _ = primals  # torch's rule, too, reads the result in place of the sign's operand
        return lambda: where(eq(x, 0), 0, where(ne(x, x), x, copysign(literal(x, 1), mul(x, result)))), None


class Nextafter(Binary):
    """The next representable number after the first operand in the direction of the second."""

    ufunc = np.nextafter
    accepts: ClassVar[tuple[str, ...]] = ("float",)

    def partials(self, primals: Operands, result: O) -> Sequence[Any]:
        x, y = primals  # a step is as long as a unit of rounding: the first operand, unless it has arrived
        return lambda: where(eq(x, y), 0, literal(x, 1)), None


maximum = binary(Maximum())
minimum = binary(Minimum())
fmax = binary(Fmax())
fmin = binary(Fmin())
relu = unary(Relu())
copysign = binary(Copysign())
nextafter = binary(Nextafter())


def clamp_min(x: O, low: O | Number) -> O:
    """``x`` but at least ``low``; NaN if either is. By a number, ``x`` receives the derivative where ``x > low``."""
    if not isinstance(low, NUMBERS):
        return maximum(x, low)
    return where(gt(x, low), x, _bound_or_nan(le(x, low), x, low))


def clamp_max(x: O, high: O | Number) -> O:
    """``x`` but at most ``high``; NaN if either is. By a number, ``x`` receives the derivative where ``x < high``."""
    if not isinstance(high, NUMBERS):
        return minimum(x, high)
    return where(lt(x, high), x, _bound_or_nan(ge(x, high), x, high))


def _bound_or_nan(is_outside: O, x: O, bound: Number) -> O:
    """A number that bounds ``x``; where the two cannot be compared a NaN that is no part of ``x``, as in torch."""
    return where(is_outside, literal(x, bound), np.nan) if x.spec.dtype.is_floating_point else literal(x, bound)


_CLAMP = Clamp()


def clamp(x: O, low: Any = None, high: Any = None) -> O:
    """``x`` within [low, high], inclusive; ``high`` wins where the bounds cross; NaN if any is."""
    if not (low is None or high is None or isinstance(low, NUMBERS) or isinstance(high, NUMBERS)):
        return bind(_CLAMP, x, low, high)
    if low is not None:
        x = clamp_min(x, low)
    return x if high is None else clamp_max(x, high)


def heaviside(x: O, at_zero: O | Number) -> O:
    """0 for negative, 1 for positive elements, ``at_zero`` at 0; NaN counts as negative."""
    return where(eq(x, 0), at_zero, cast(gt(x, 0), x.spec.dtype))


def nan_to_num(x: O, nan: float = 0.0, positive: float | None = None, negative: float | None = None) -> O:
    """NaN and infinities replaced; by default infinities become the largest finite numbers."""
    dtype = x.spec.dtype
    if not dtype.is_floating_point:
        return x
    largest = float(np.nextafter(np.array(np.inf, dtype.numpy), np.array(0, dtype.numpy)))
    finite = where(isnan(x), nan, x)
    finite = where(eq(x, np.inf), largest if positive is None else positive, finite)
    return where(eq(x, -np.inf), -largest if negative is None else negative, finite)
