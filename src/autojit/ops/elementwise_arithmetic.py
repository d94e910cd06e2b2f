"""Arithmetic, selection by a condition, casts: what the derivative rules of all other ops are made of.

``guarded_mul`` and ``guarded_div`` treat 0 as stronger than infinity and NaN (``elementwise_base`` says why).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from autojit.core.dtypes import DType, bool_, float8_e4m3fn, float32, int64
from autojit.core.errors import DTypeError
from autojit.core.records import record
from autojit.core.types import TensorType
from autojit.ir.op import O, Operands, bind, not_differentiable
from autojit.ops.base import broadcast_shapes
from autojit.ops.elementwise_base import FLOATS, Pointwise, conjugate, sample_inputs
from autojit.ops.samples import Samples
from autojit.ops.sources import Number, pair

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from autojit.ir.emitter import Emitter, S

__all__ = [
    "Add", "Cast", "Div", "GuardedDiv", "GuardedMul", "MaskedMul", "Mul", "Neg", "Reciprocal", "Square",
    "SquaredDeviation", "StopGradient", "Sub", "Where", "add", "cast", "div", "guarded_div", "guarded_mul", "mul",
    "neg", "reciprocal", "square", "squared_deviation", "stop_gradient", "sub", "where",
]  # fmt: skip


class Add(Pointwise):
    """``x + y``; on bools "or"."""

    ufunc = np.add
    arity: ClassVar[int] = 2

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        return y_bar, y_bar

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        x_dot, y_dot = tangents
        if x_dot is None or y_dot is None:
            return x_dot if y_dot is None else y_dot
        return add(x_dot, y_dot)

    def lower(self, emit: Emitter[S], x: S, y: S) -> S:
        return emit.add(x, y)


class Sub(Pointwise):
    """``x - y``."""

    ufunc = np.subtract
    arity: ClassVar[int] = 2
    accepts: ClassVar[tuple[str, ...]] = ("uint", "int", "float", "complex")

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        return y_bar, lambda: neg(y_bar)

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        x_dot, y_dot = tangents
        if y_dot is None:
            return x_dot
        return neg(y_dot) if x_dot is None else sub(x_dot, y_dot)

    def lower(self, emit: Emitter[S], x: S, y: S) -> S:
        return emit.sub(x, y)


class Mul(Pointwise):
    """``x * y``; on bools "and"."""

    ufunc = np.multiply
    arity: ClassVar[int] = 2

    def partials(self, primals: Operands, result: O) -> Sequence[Any]:
        x, y = primals
        return y, x

    def lower(self, emit: Emitter[S], x: S, y: S) -> S:
        return emit.mul(x, y)


class Div(Pointwise):
    """``x / y`` of floats or complex numbers."""

    node_constants: ClassVar[Mapping[str, object]] = {"rounding_mode": None}

    ufunc = np.true_divide
    arity: ClassVar[int] = 2
    accepts: ClassVar[tuple[str, ...]] = FLOATS
    domain: ClassVar[tuple[float, float]] = (0.5, 2.0)

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        x, y = primals
        return lambda: guarded_div(y_bar, conjugate(y)), lambda: self._denominator_bar(x, y, y_bar)

    def _denominator_bar(self, x: O, y: O, y_bar: O) -> O:
        """Divides again rather than read the result, which users may change in place; compiled, both are one."""
        shared = guarded_div(y_bar, conjugate(y))  # the numerator's cotangent: one division serves both
        return neg(guarded_mul(shared, conjugate(div(x, y))))

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        (_, y), (x_dot, y_dot) = primals, tangents
        if y_dot is None:
            return None if x_dot is None else div(x_dot, y)
        change = mul(result, y_dot)
        return div(neg(change) if x_dot is None else sub(x_dot, change), y)

    def lower(self, emit: Emitter[S], x: S, y: S) -> S:
        return emit.div(x, y)


def _guarded_product(x: NDArray[Any], y: NDArray[Any]) -> Any:
    """The product, mended only if it holds a NaN: one pass more over what is in the cache, instead of three."""
    with np.errstate(invalid="ignore"):
        product = np.multiply(x, y)
    if not _has_nan(product):
        return product
    return np.where((x == 0) & np.isnan(product), np.zeros((), product.dtype), product)


def _has_nan(x: NDArray[Any]) -> bool:
    """Whether an array may hold a NaN: a sum of squares is NaN only if it does (infinite complex ones may, too)."""
    with np.errstate(all="ignore"):
        total = np.vdot(x, x)
    return bool(total != total)


class GuardedMul(Pointwise):
    """``x * y``, and 0 where ``x`` is 0 even if ``y`` is infinite or NaN; the sign of other zeros is the product's."""

    node_class: ClassVar[str] = "MulBackward0"

    masks_cotangents: ClassVar[bool] = True
    arity: ClassVar[int] = 2
    accepts: ClassVar[tuple[str, ...]] = FLOATS

    ufunc = staticmethod(_guarded_product)

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        x, y = primals
        return lambda: guarded_mul(y_bar, conjugate(y)), lambda: bind(MASKED_MUL, conjugate(x), y_bar)

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        (x, y), (x_dot, y_dot) = primals, tangents
        by_x = None if x_dot is None else guarded_mul(x_dot, y)
        by_y = None if y_dot is None else guarded_mul(x, y_dot)
        if by_x is None or by_y is None:
            return by_x if by_y is None else by_y
        return add(by_x, by_y)

    def lower(self, emit: Emitter[S], x: S, y: S) -> S:
        return _mended(emit, emit.eq(x, emit.zero(x)), emit.mul(x, y))


def _masked_product(x: NDArray[Any], y: NDArray[Any]) -> Any:
    with np.errstate(invalid="ignore"):
        product = np.multiply(x, y)
    return np.where(((x == 0) | (y == 0)) & np.isnan(product), np.zeros((), product.dtype), product)


class MaskedMul(Pointwise):
    """``x * y``, and 0 where one of them is 0 even if the other is infinite or NaN: two cotangents, both maskable."""

    node_class: ClassVar[str] = "MulBackward0"

    masks_cotangents: ClassVar[bool] = True
    arity: ClassVar[int] = 2
    accepts: ClassVar[tuple[str, ...]] = FLOATS

    ufunc = staticmethod(_masked_product)

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        x, y = primals
        return lambda: bind(self, y_bar, conjugate(y)), lambda: bind(self, conjugate(x), y_bar)

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        (x, y), (x_dot, y_dot) = primals, tangents
        by_x = None if x_dot is None else bind(self, x_dot, y)
        by_y = None if y_dot is None else bind(self, x, y_dot)
        if by_x is None or by_y is None:
            return by_x if by_y is None else by_y
        return add(by_x, by_y)

    def lower(self, emit: Emitter[S], x: S, y: S) -> S:
        zero = emit.zero(x)
        return _mended(emit, emit.logical_or(emit.eq(x, zero), emit.eq(y, zero)), emit.mul(x, y))


def _guarded_quotient(x: NDArray[Any], y: NDArray[Any]) -> Any:
    quotient = np.true_divide(x, y)
    return np.where((x == 0) & np.isnan(quotient), np.zeros((), quotient.dtype), quotient)


def _mended(emit: Emitter[S], is_zero: S, found: S) -> S:
    """A product or quotient with an operand that is 0: 0 instead of NaN, and otherwise with the sign that it has."""
    return emit.select(emit.logical_and(is_zero, emit.isnan(found)), emit.zero(found), found)


class GuardedDiv(Pointwise):
    """``x / y``, and 0 where ``x`` is 0 even if ``y`` is 0 or NaN."""

    node_class: ClassVar[str] = "DivBackward0"

    masks_cotangents: ClassVar[bool] = True
    arity: ClassVar[int] = 2
    accepts: ClassVar[tuple[str, ...]] = FLOATS
    domain: ClassVar[tuple[float, float]] = (0.5, 2.0)

    ufunc = staticmethod(_guarded_quotient)

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        _, y = primals
        return lambda: guarded_div(y_bar, conjugate(y)), lambda: self._denominator_bar(y, result, y_bar)

    def _denominator_bar(self, y: O, result: O, y_bar: O) -> O:
        """0 where the cotangent or the result is, whatever y is; as for ``Div``, one division serves both operands."""
        return neg(bind(MASKED_MUL, conjugate(result), guarded_div(y_bar, conjugate(y))))

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        (_, y), (x_dot, y_dot) = primals, tangents
        if y_dot is None:
            return None if x_dot is None else guarded_div(x_dot, y)
        change = guarded_mul(result, y_dot)
        return guarded_div(neg(change) if x_dot is None else sub(x_dot, change), y)

    def lower(self, emit: Emitter[S], x: S, y: S) -> S:
        return _mended(emit, emit.eq(x, emit.zero(x)), emit.div(x, y))


class Neg(Pointwise):
    """``-x``."""

    ufunc = np.negative
    accepts: ClassVar[tuple[str, ...]] = ("uint", "int", "float", "complex")

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        return (lambda: neg(y_bar),)

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        (x_dot,) = tangents
        return None if x_dot is None else neg(x_dot)

    def lower(self, emit: Emitter[S], x: S) -> S:
        return emit.neg(x)


class Reciprocal(Pointwise):
    """``1 / x`` of floats or complex numbers."""

    accepts: ClassVar[tuple[str, ...]] = FLOATS
    singular: ClassVar[bool] = True
    domain: ClassVar[tuple[float, float]] = (0.5, 2.0)
    ufunc = np.reciprocal

    def partials(self, primals: Operands, result: O) -> Sequence[Any]:
        return (lambda: neg(square(result)),)

    def lower(self, emit: Emitter[S], x: S) -> S:
        return emit.div(emit.one(x), x)


class Square(Pointwise):
    """``x * x``."""

    node_class: ClassVar[str] = "PowBackward0"

    ufunc = np.square
    accepts: ClassVar[tuple[str, ...]] = ("uint", "int", "float", "complex")

    def partials(self, primals: Operands, result: O) -> Sequence[Any]:
        (x,) = primals
        return (lambda: mul(x, 2),)

    def lower(self, emit: Emitter[S], x: S) -> S:
        return emit.mul(x, x)


class SquaredDeviation(Pointwise):
    """``(x - mean) ** 2``, to be summed over the elements ``mean`` is the mean of.

    The derivative of that sum with respect to ``mean`` is zero, and the rules leave it out: the adjoint of a variance
    needs no second reduction. Every order stays exact, since the rules keep the mean inside ``x - mean``.
    """

    arity: ClassVar[int] = 2
    accepts: ClassVar[tuple[str, ...]] = ("float",)

    ufunc = staticmethod(lambda x, mean: np.square(np.subtract(x, mean)))
    is_one_loop: ClassVar[bool] = True

    def partials(self, primals: Operands, result: O) -> Sequence[Any]:
        x, mean = primals
        return lambda: mul(sub(x, mean), 2), None

    def lower(self, emit: Emitter[S], x: S, mean: S) -> S:
        deviation = emit.sub(x, mean)
        return emit.mul(deviation, deviation)

    @classmethod
    def samples(cls, dtype: DType) -> Samples:
        """None in double precision: alone, without the sum, the op does not have the derivative it states."""
        return [] if dtype.size_bytes == 8 else super().samples(dtype)


class Where(Pointwise):
    """``a`` where ``condition`` (bool) holds, else ``b``."""

    operand_names: ClassVar[tuple[str, ...]] = ("condition", "self", "other")

    masks_cotangents: ClassVar[bool] = True
    ufunc = staticmethod(np.where)
    is_one_loop: ClassVar[bool] = True
    arity: ClassVar[int] = 3

    def result_type(self, *types: TensorType) -> TensorType:
        condition, a, b = types
        if condition.dtype is not bool_:
            raise DTypeError("where expected condition to be a boolean tensor", {"condition": condition})
        if a.dtype is not b.dtype:
            raise DTypeError("where: operands differ in dtype", {"a": a, "b": b})
        return TensorType(broadcast_shapes(condition.shape, a.shape, b.shape, op="where"), a.dtype, a.device)

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        condition, _, _ = primals
        return None, lambda: where(condition, y_bar, 0), lambda: where(condition, 0, y_bar)

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        (condition, _, _), (_, a_dot, b_dot) = primals, tangents
        if a_dot is None and b_dot is None:
            return None
        return where(condition, 0 if a_dot is None else a_dot, 0 if b_dot is None else b_dot)

    def lower(self, emit: Emitter[S], condition: S, a: S, b: S) -> S:
        return emit.select(condition, a, b)

    @classmethod
    def samples(cls, dtype: DType) -> Samples:
        conditions = sample_inputs(3, (-2.0, 2.0), bool_)
        values = sample_inputs(3, (-2.0, 2.0), dtype)
        return [(cls(), (c[0], *v[1:])) for c, v in zip(conditions, values, strict=True)]


_LARGEST_E4M3 = 448.0


@record
class Cast(Pointwise):
    """Conversion to another dtype: C semantics; complex to real drops the imaginary part; bool is "not 0"."""

    accepts: ClassVar[tuple[str, ...]] = ("bool", "uint", "int", "float", "float8", "complex")
    is_one_loop: ClassVar[bool] = True
    dtype: DType
    node_class: ClassVar[str] = "ToCopyBackward0"

    def result_dtype(self, dtype: DType) -> DType:
        return self.dtype

    def eager(self, *arrays: NDArray[Any]) -> Any:
        (x,) = arrays
        if self.dtype is float8_e4m3fn:  # has no infinity: what is too large becomes the largest, as in torch
            wide = x.real.astype(np.float32) if x.dtype != np.float64 else x
            return np.clip(wide, -_LARGEST_E4M3, _LARGEST_E4M3).astype(self.dtype.numpy)
        if x.dtype.kind == "c" and self.dtype.kind not in ("complex", "bool"):
            x = x.real
        if 0 in x.strides and x.size > 1:  # a ufunc, unlike astype, leaves broadcast axes where they are in memory
            made: NDArray[Any] = np.empty_like(np.equal(x, x), self.dtype.numpy)
            np.copyto(made, x, casting="unsafe")
            return made
        return x.astype(self.dtype.numpy)

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        (x,) = primals
        kept = x.spec.dtype
        return (lambda: cast(y_bar, kept),) if self._keeps_derivative(kept) else (None,)

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        (x,), (x_dot,) = primals, tangents
        if x_dot is None or not self._keeps_derivative(x.spec.dtype):
            return None
        return cast(x_dot, self.dtype)

    def _keeps_derivative(self, origin: DType) -> bool:
        return origin.is_differentiable and self.dtype.is_differentiable

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        return bind(self, *args)

    def lower(self, emit: Emitter[S], x: S) -> S:
        return emit.cast(x, self.dtype)

    @classmethod
    def samples(cls, dtype: DType) -> Samples:
        inputs = sample_inputs(1, (0.0, 3.0), dtype)
        return [(cls(target), arrays) for target in (dtype, float32, int64, bool_) for arrays in inputs]


class StopGradient(Pointwise):
    """``x`` itself, with derivative zero: a constant to every transform."""

    ufunc = staticmethod(lambda x: x)
    vjp = not_differentiable("stop_gradient asks for none")
    jvp = not_differentiable("stop_gradient asks for none")

    def lower(self, emit: Emitter[S], x: S) -> S:
        return x


ADD, SUB, MUL, DIV, NEG = Add(), Sub(), Mul(), Div(), Neg()
GUARDED_MUL, MASKED_MUL, GUARDED_DIV = GuardedMul(), MaskedMul(), GuardedDiv()
SQUARED_DEVIATION = SquaredDeviation()
RECIPROCAL, SQUARE, WHERE, STOP_GRADIENT = Reciprocal(), Square(), Where(), StopGradient()


def add(x: O | Number, y: O | Number) -> O:
    """``x + y``; operands of one dtype, or a Python number on one side."""
    return bind(ADD, *pair(x, y))


def sub(x: O | Number, y: O | Number) -> O:
    """``x - y``."""
    return bind(SUB, *pair(x, y))


def mul(x: O | Number, y: O | Number) -> O:
    """``x * y``."""
    return bind(MUL, *pair(x, y))


def div(x: O | Number, y: O | Number) -> O:
    """``x / y`` of floats or complex numbers."""
    return bind(DIV, *pair(x, y))


def guarded_mul(x: O | Number, y: O | Number) -> O:
    """``x * y``, 0 where ``x`` is 0."""
    return bind(GUARDED_MUL, *pair(x, y))


def guarded_div(x: O | Number, y: O | Number) -> O:
    """``x / y``, 0 where ``x`` is 0."""
    return bind(GUARDED_DIV, *pair(x, y))


def neg(x: O) -> O:
    """``-x``."""
    return bind(NEG, x)


def reciprocal(x: O) -> O:
    """``1 / x``."""
    return bind(RECIPROCAL, x)


def square(x: O) -> O:
    """``x * x``."""
    return bind(SQUARE, x)


def squared_deviation(x: O, mean: O) -> O:
    """``(x - mean) ** 2`` of a real operand, to be summed over the elements ``mean`` is the mean of."""
    return bind(SQUARED_DEVIATION, x, mean)


def where(condition: O, a: O | Number, b: O | Number) -> O:
    """``a`` where the bool ``condition`` holds, else ``b``; at most one of them a Python number."""
    return bind(WHERE, condition, *pair(a, b))


def cast(x: O, dtype: DType) -> O:
    """``x`` in another dtype; ``x`` itself when it has it."""
    return x if x.spec.dtype is dtype else bind(Cast(dtype), x)


def stop_gradient(x: O) -> O:
    """``x`` as a constant of differentiation; integers and bools are that already."""
    return bind(STOP_GRADIENT, x) if x.spec.dtype.is_differentiable else x
