"""Arithmetic, selection by a condition, casts: what the derivative rules of all other ops are made of.

``guarded_mul`` and ``guarded_div`` treat 0 as stronger than infinity and NaN (``elementwise_base`` says why).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from autojit.core.dtypes import DType, bfloat16, bool_, float8_e4m3fn, float16, float32, int64
from autojit.core.errors import DTypeError
from autojit.core.records import record
from autojit.core.types import TensorType
from autojit.ir.op import Ndarray, O, Op, Operands, bind, linear_jvp, not_differentiable
from autojit.ops.base import broadcast_shapes, conjugate, product_jvp, tangent_difference, tangent_sum
from autojit.ops.cotangent_masks import cotangent_product, cotangent_quotient
from autojit.ops.elementwise_base import (
    FLOATS,
    Binary,
    Pointwise,
    Slope,
    binary,
    is_differentiable,
    sample_inputs,
    unary,
)
from autojit.ops.samples import Samples
from autojit.ops.sources import NUMBERS, Number, pair

if TYPE_CHECKING:
    from autojit.ir.emitter import Emitter, S

__all__ = [
    "Add", "Cast", "Div", "GuardedDiv", "GuardedMul", "MaskedMul", "Mul", "Neg", "Reciprocal", "Square",
    "SquaredDeviation", "StopGradient", "Sub", "Where", "add", "cast", "div", "guarded_div", "guarded_mul", "mul",
    "neg", "reciprocal", "square", "squared_deviation", "stop_gradient", "sub", "where",
]  # fmt: skip


class Add(Binary):
    """``x + y``; on bools "or"."""

    ufunc = np.add

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        return y_bar, y_bar

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        return tangent_sum(*tangents)


class Sub(Binary):
    """``x - y``."""

    ufunc = np.subtract
    accepts: ClassVar[tuple[str, ...]] = ("uint", "int", "float", "complex")

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        return y_bar, lambda: neg(y_bar)

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        return tangent_difference(*tangents)


class Mul(Binary):
    """``x * y``; on bools "and"."""

    ufunc = np.multiply

    def partials(self, primals: Operands, result: O) -> Sequence[Any]:
        x, y = primals
        return y, x


class Fraction(Binary, abstract=True):
    """``x / y``."""

    accepts: ClassVar[tuple[str, ...]] = FLOATS
    domain: ClassVar[tuple[float, float]] = (0.5, 2.0)
    times: ClassVar[Op]  # the product of the same kind

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        (_, y), (x_dot, y_dot) = primals, tangents
        change = tangent_difference(x_dot, None if y_dot is None else bind(self.times, result, y_dot))
        return None if change is None else bind(self, change, y)


class Div(Fraction):
    """``x / y`` of floats or complex numbers."""

    node_constants: ClassVar[Mapping[str, object]] = {"rounding_mode": None}

    ufunc = np.true_divide
    times: ClassVar[Op] = Mul()

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        x, y = primals
        return lambda: cotangent_quotient(y_bar, conjugate(y)), lambda: self._denominator_bar(x, y, y_bar)

    def _denominator_bar(self, x: O, y: O, y_bar: O) -> O:
        """Divides again rather than read the result, which users may change in place; compiled, both are one."""
        shared = cotangent_quotient(y_bar, conjugate(y))  # the numerator's cotangent: one division serves both
        return neg(cotangent_product(shared, conjugate(div(x, y))))


def _guarded_product(x: Ndarray, y: Ndarray) -> Any:
    """The product, mended only if it holds a NaN: one pass more over what is in the cache, instead of three."""
    product = np.multiply(x, y)
    if not _has_nan(product):
        return product
    return _mended_array((x == 0) & np.isnan(product), product)


def _has_nan(x: Ndarray) -> bool:
    """Whether an array may hold a NaN: a sum of squares is NaN only if it does (infinite complex ones may, too)."""
    total = np.vdot(x, x)
    return bool(total != total)


class MaskingProduct(Binary, abstract=True):
    """A product that is 0, not NaN, where a factor that may be a masked cotangent is 0."""

    node_class: ClassVar[str] = "MulBackward0"

    masks_cotangents: ClassVar[bool] = True
    accepts: ClassVar[tuple[str, ...]] = FLOATS

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        x, y = primals
        return lambda: bind(self, y_bar, conjugate(y)), lambda: bind(MASKED_MUL, conjugate(x), y_bar)

    jvp = product_jvp


class GuardedMul(MaskingProduct):
    """``x * y``, and 0 of either sign where ``x`` is 0, even if ``y`` is infinite or NaN.

    A kernel chooses by ``x`` alone, which is one comparison where the machine multiplies under a mask. Asking for NaN
    as well would keep the sign; that took a quarter of softmax with layer norm's step (AVX-512).
    """

    is_one_loop: ClassVar[bool] = True
    ufunc = staticmethod(_guarded_product)

    def lower(self, emit: Emitter[S], x: S, y: S) -> S:
        return emit.select(emit.eq(x, emit.zero(x)), emit.zero(x), emit.mul(x, y))


def _masked_product(x: Ndarray, y: Ndarray) -> Any:
    product = np.multiply(x, y)
    if not _has_nan(product):
        return product
    return _mended_array(((x == 0) | (y == 0)) & np.isnan(product), product)


class MaskedMul(MaskingProduct):
    """``x * y``, and 0 where one of them is 0 even if the other is infinite or NaN: two cotangents, both maskable."""

    is_one_loop: ClassVar[bool] = True
    ufunc = staticmethod(_masked_product)

    def lower(self, emit: Emitter[S], x: S, y: S) -> S:
        zero = emit.zero(x)
        return emit.select(emit.logical_or(emit.eq(x, zero), emit.eq(y, zero)), zero, emit.mul(x, y))


def _guarded_quotient(x: Ndarray, y: Ndarray) -> Any:
    quotient = np.true_divide(x, y)
    if not _has_nan(quotient):
        return quotient
    return _mended_array((x == 0) & np.isnan(quotient), quotient)


def _mended_array(is_zero: Any, found: Any) -> Any:
    """A fresh product or quotient with zeros where a mask says so, in the order in memory that it has."""
    if not found.ndim:
        return found.dtype.type(0) if is_zero else found
    np.copyto(found, 0, where=is_zero)
    return found


class GuardedDiv(Fraction):
    """``x / y``, and 0 where ``x`` is 0 even if ``y`` is 0 or NaN."""

    node_class: ClassVar[str] = "DivBackward0"

    masks_cotangents: ClassVar[bool] = True

    is_one_loop: ClassVar[bool] = True
    ufunc = staticmethod(_guarded_quotient)
    times: ClassVar[Op] = GuardedMul()

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        _, y = primals
        return lambda: guarded_div(y_bar, conjugate(y)), lambda: self._denominator_bar(y, result, y_bar)

    def _denominator_bar(self, y: O, result: O, y_bar: O) -> O:
        """0 where the cotangent or the result is, whatever y is; as for ``Div``, one division serves both operands."""
        return neg(bind(MASKED_MUL, conjugate(result), guarded_div(y_bar, conjugate(y))))

    def lower(self, emit: Emitter[S], x: S, y: S) -> S:
        return emit.select(emit.eq(x, emit.zero(x)), emit.zero(x), emit.div(x, y))


class Neg(Pointwise):
    """``-x``."""

    ufunc = np.negative
    accepts: ClassVar[tuple[str, ...]] = ("uint", "int", "float", "complex")

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        return (lambda: neg(y_bar),)

    jvp = linear_jvp


class Reciprocal(Slope):
    """``1 / x`` of floats or complex numbers."""

    is_cheap: ClassVar[bool] = True
    domain: ClassVar[tuple[float, float]] = (0.5, 2.0)
    ufunc = np.reciprocal

    def slope(self, x: O, y: O) -> O:
        return neg(square(y))

    def lower(self, emit: Emitter[S], x: S) -> S:
        return emit.div(emit.one(x), x)


class Square(Slope):
    """``x * x``."""

    node_class: ClassVar[str] = "PowBackward0"

    is_cheap: ClassVar[bool] = True
    ufunc = np.square
    accepts: ClassVar[tuple[str, ...]] = ("uint", "int", "float", "complex")

    def slope(self, x: O, y: O) -> O:
        return mul(x, 2)

    def lower(self, emit: Emitter[S], x: S) -> S:
        return emit.mul(x, x)


class SquaredDeviation(Binary):
    """``(x - mean) ** 2``, to be summed over the elements ``mean`` is the mean of.

    The derivative of that sum with respect to ``mean`` is zero, and the rules leave it out: the adjoint of a variance
    needs no second reduction. Every order stays exact, since the rules keep the mean inside ``x - mean``.
    """

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

    def eager(self, *arrays: Ndarray) -> Any:
        (x,) = arrays
        if self.dtype is float8_e4m3fn:  # has no infinity: what is too large becomes the largest, as in torch
            wide = x.real.astype(np.float32) if x.dtype != np.float64 else x
            return np.clip(wide, -_LARGEST_E4M3, _LARGEST_E4M3).astype(self.dtype.numpy)
        if x.dtype.kind == "c" and self.dtype.kind not in ("complex", "bool"):
            x = x.real
        if 0 in x.strides and x.size > 1:  # a ufunc, unlike astype, leaves broadcast axes where they are in memory
            made: Ndarray = np.empty_like(np.equal(x, x), self.dtype.numpy)
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

    def lower(self, emit: Emitter[S], x: S) -> S:
        return emit.cast(x, self.dtype)

    @classmethod
    def samples(cls, dtype: DType) -> Samples:
        inputs = sample_inputs(1, (0.0, 3.0), dtype)
        return [(cls(target), arrays) for target in (dtype, float32, int64, bool_) for arrays in inputs]


class StopGradient(Pointwise):
    """``x`` itself, with derivative zero: a constant to every transform."""

    ufunc = staticmethod(lambda x: x)
    vjp = jvp = not_differentiable("stop_gradient asks for none")

    def lower(self, emit: Emitter[S], x: S) -> S:
        return x


def _by_number(op: Op) -> Callable[[O | Number, O | Number], O]:
    """``binary``, for which a number beside halves keeps its digits: their product is rounded, and not the number."""
    plain = binary(op)

    @wraps(plain)
    def apply(x: Any, y: Any) -> Any:
        half = x if isinstance(y, NUMBERS) else y if isinstance(x, NUMBERS) else None
        if half is None or not keeps_digits(half.spec.dtype, y if half is x else x):
            return plain(x, y)
        dtype = half.spec.dtype
        return cast(plain(*[cast(o, float32) if o is half else o for o in (x, y)]), dtype)

    return apply


def keeps_digits(dtype: DType, number: Any) -> bool:
    """Whether a factor or divisor of a tensor of that dtype is a number that the dtype would round."""
    if (dtype is not bfloat16 and dtype is not float16) or not isinstance(number, NUMBERS):
        return False
    if isinstance(number, complex | np.complexfloating | bool):
        return False
    if type(number) is not int and type(number) is not float and not isinstance(number, np.generic):
        return True  # a size or a number of a step: whether it would be rounded is not asked, for its digits may change
    with np.errstate(over="ignore"):
        return bool(number == number and float(dtype.numpy.type(number)) != number)


ADD, SUB, MUL, DIV, NEG = Add(), Sub(), Mul(), Div(), Neg()
RECIPROCAL, MASKED_MUL, WHERE = Reciprocal(), MaskedMul(), Where()

add = binary(ADD)
sub = binary(SUB)
mul = _by_number(MUL)
div = _by_number(DIV)
guarded_mul = binary(GuardedMul())
guarded_div = binary(GuardedDiv())
neg = unary(NEG)
reciprocal = unary(RECIPROCAL)
square = unary(Square())
stop_gradient = unary(StopGradient(), is_differentiable)
squared_deviation = binary(SquaredDeviation())


def where(condition: O, a: O | Number, b: O | Number) -> O:
    """``a`` where the bool ``condition`` holds, else ``b``; at most one of them a Python number."""
    return bind(WHERE, condition, *pair(a, b))


def cast(x: O, dtype: DType) -> O:
    """``x`` in another dtype; ``x`` itself when it has it."""
    return x if x.spec.dtype is dtype else bind(Cast(dtype), x)
