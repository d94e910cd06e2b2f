"""Comparisons, bitwise and logical ops, tests of special values. None has a derivative.

Logical ops are bitwise ops on bools; their functions turn other dtypes into bools first (non-zero is true).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from autojit.core.dtypes import bool_
from autojit.ir.op import O, bind, not_differentiable
from autojit.ops.elementwise_base import REALS, Binary, Predicate, binary, is_differentiable, unary
from autojit.ops.sources import full

if TYPE_CHECKING:
    from autojit.ir.emitter import Emitter, S

__all__ = [
    "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Eq", "Ge", "Gt", "IsFinite", "IsInf", "IsNan", "Le", "Lt",
    "Ne", "ShiftLeft", "ShiftRight", "Signbit", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "eq", "ge",
    "gt", "isfinite", "isinf", "isnan", "le", "logical_and", "logical_not", "logical_or", "logical_xor", "lt", "ne",
    "shift_left", "shift_right", "signbit", "to_bool",
]  # fmt: skip


class Comparison(Predicate, abstract=True):
    """A relation between two operands."""

    arity: ClassVar[int] = 2
    vjp = jvp = not_differentiable("a comparison is piecewise constant")


class Eq(Comparison):
    """``x == y``; NaN equals nothing."""

    ufunc = np.equal


class Ne(Comparison):
    """``x != y``; NaN differs from everything."""

    ufunc = np.not_equal


class Order(Comparison, abstract=True):
    """An order relation; false where an operand is NaN."""

    accepts: ClassVar[tuple[str, ...]] = REALS


class Lt(Order):
    """``x < y``."""

    ufunc = np.less


class Le(Order):
    """``x <= y``."""

    ufunc = np.less_equal


class Gt(Order):
    """``x > y``."""

    ufunc = np.greater


class Ge(Order):
    """``x >= y``."""

    ufunc = np.greater_equal


class Bitwise(Binary, abstract=True):
    """Acts on the bits of integers and on bools."""

    accepts: ClassVar[tuple[str, ...]] = ("bool", "uint", "int")
    domain: ClassVar[tuple[float, float]] = (-9.0, 9.0)
    vjp = jvp = not_differentiable("integers have no derivative")


class BitwiseAnd(Bitwise):
    """``x & y``."""

    ufunc = np.bitwise_and


class BitwiseOr(Bitwise):
    """``x | y``."""

    ufunc = np.bitwise_or


class BitwiseXor(Bitwise):
    """``x ^ y``."""

    ufunc = np.bitwise_xor


class BitwiseNot(Bitwise):
    """``~x``; on bools the logical negation."""

    ufunc = np.invert
    arity: ClassVar[int] = 1


class Shift(Bitwise, abstract=True):
    """Moves bits by a count in [0, width); larger counts push every bit out."""

    accepts: ClassVar[tuple[str, ...]] = ("uint", "int")
    domain: ClassVar[tuple[float, float]] = (0.0, 7.0)


class ShiftLeft(Shift):
    """``x << y``."""

    ufunc = np.left_shift


class ShiftRight(Shift):
    """``x >> y``; the sign bit is repeated in signed dtypes."""

    ufunc = np.right_shift


class FloatTest(Predicate, abstract=True):
    """A question about special values of floats."""

    accepts: ClassVar[tuple[str, ...]] = ("float", "complex")
    vjp = jvp = not_differentiable("a test is piecewise constant")


class IsNan(FloatTest):
    """Whether an element is NaN."""

    ufunc = np.isnan

    def lower(self, emit: Emitter[S], x: S) -> S:
        return emit.isnan(x)


class IsInf(FloatTest):
    """Whether an element is infinite."""

    ufunc = np.isinf

    def lower(self, emit: Emitter[S], x: S) -> S:
        return emit.isinf(x)


class IsFinite(FloatTest):
    """Whether an element is neither infinite nor NaN."""

    ufunc = np.isfinite

    def lower(self, emit: Emitter[S], x: S) -> S:
        return emit.isfinite(x)


class Signbit(FloatTest):
    """Whether the sign bit is set; true for -0.0."""

    accepts: ClassVar[tuple[str, ...]] = ("float",)
    ufunc = np.signbit

    def lower(self, emit: Emitter[S], x: S) -> S:
        return emit.lt(emit.copysign(emit.one(x), x), emit.zero(x))


BITWISE_AND, BITWISE_OR, BITWISE_XOR, BITWISE_NOT = BitwiseAnd(), BitwiseOr(), BitwiseXor(), BitwiseNot()
SIGNBIT = Signbit()


eq = binary(Eq())
ne = binary(Ne())
lt = binary(Lt())
le = binary(Le())
gt = binary(Gt())
ge = binary(Ge())
bitwise_and = binary(BITWISE_AND)
bitwise_or = binary(BITWISE_OR)
bitwise_xor = binary(BITWISE_XOR)
bitwise_not = unary(BITWISE_NOT)
shift_left = binary(ShiftLeft())
shift_right = binary(ShiftRight())


def to_bool(x: O) -> O:
    """Whether elements are non-zero; bools as they are."""
    return x if x.spec.dtype is bool_ else ne(x, 0)


def logical_and(x: O, y: O) -> O:
    """Both are non-zero."""
    return bind(BITWISE_AND, to_bool(x), to_bool(y))


def logical_or(x: O, y: O) -> O:
    """One of both is non-zero."""
    return bind(BITWISE_OR, to_bool(x), to_bool(y))


def logical_xor(x: O, y: O) -> O:
    """Exactly one of both is non-zero."""
    return bind(BITWISE_XOR, to_bool(x), to_bool(y))


def logical_not(x: O) -> O:
    """The elements are zero."""
    return bind(BITWISE_NOT, to_bool(x))


isnan = unary(IsNan(), is_differentiable, lambda x: full(x, False, x.spec.shape, bool_))
isinf = unary(IsInf(), is_differentiable, lambda x: full(x, False, x.spec.shape, bool_))
isfinite = unary(IsFinite(), is_differentiable, lambda x: full(x, True, x.spec.shape, bool_))


def signbit(x: O) -> O:
    """The sign bit; for integers whether they are negative."""
    if x.spec.dtype.kind == "float":
        return bind(SIGNBIT, x)
    return lt(x, 0) if x.spec.dtype.is_signed else full(x, False, x.spec.shape, bool_)
