"""Comparison, logic, bits, and choice: of the larger operand, of bounds, by a condition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

from autojit import ops
from autojit.core.dtypes import bool_
from autojit.core.errors import ArgumentError, UnsupportedDTypeError, UsageError
from autojit.core.wrapping import named
from autojit.dispatch.declared import EXACT_OUT, Out, declared
from autojit.dispatch.dispatch import apply
from autojit.dispatch.kernels import in_one_pass
from autojit.dispatch.op_functions import Binary, binary, through_ops
from autojit.dispatch.promotion import NUMBERS, Operand, all_together, as_operand, cast, refuse_numbers, together
from autojit.functions.refused_dtypes import refuses
from autojit.ir.op import Op
from autojit.tensor.tensor import Tensor, type_of

WHERE = Op.registry["where"]()
_OF_BITS = declared(in_place="values", out=True, wraps_around=True)

maximum = declared(out=True, lists="clamp_min", numbers="none")(binary("maximum", "larger element; NaN wins"))
minimum = declared(out=True, lists="clamp_max", numbers="none")(binary("minimum", "smaller element; NaN wins"))
fmax = declared(out=True, numbers="none")(binary("fmax", "larger element; NaN loses"))
fmin = declared(out=True, numbers="none")(binary("fmin", "smaller element; NaN loses"))


def _comparison(name: str, doc: str, aliases: str = "", numpy: str = "") -> Binary:
    note = declared(aliases=aliases, in_place="comparison", out=True, numbers="second", wraps_around=True, numpy=numpy)
    return note(binary(name, doc))


eq = _comparison("eq", "equality", numpy="equal")
ne = _comparison("ne", "inequality", "not_equal")
lt = _comparison("lt", "``<``", "less")
le = _comparison("le", "``<=``", "less_equal")
gt = _comparison("gt", "``>``", "greater")
ge = _comparison("ge", "``>=``", "greater_equal")
bitwise_and = _OF_BITS(binary("bitwise_and", "bitwise and"))
bitwise_or = _OF_BITS(binary("bitwise_or", "bitwise or"))
bitwise_xor = _OF_BITS(binary("bitwise_xor", "bitwise exclusive or"))
bitwise_left_shift = _OF_BITS(binary("bitwise_left_shift", "shift to the left", op_name="shift_left"))
bitwise_right_shift = _OF_BITS(binary("bitwise_right_shift", "arithmetic shift to the right", op_name="shift_right"))
bitwise_not = declared(in_place="values", out=EXACT_OUT)(through_ops("bitwise_not", ops.bitwise_not))
isnan = declared()(through_ops("isnan", ops.isnan))
isinf = declared()(through_ops("isinf", ops.isinf))
isfinite = declared()(through_ops("isfinite", ops.isfinite))
signbit = declared(out=Out(takes=(bool_,)))(refuses("complex")(through_ops("signbit", ops.signbit)))
logical_not = declared(in_place="comparison", out=True)(through_ops("logical_not", ops.logical_not))


@declared(out=Out(takes=(bool_,)), numpy="isposinf")
@refuses("complex")
def isposinf(input: Tensor) -> Tensor:
    """Whether an element is plus infinity."""
    return eq(input, float("inf"))


@declared(out=Out(takes=(bool_,)), numpy="isneginf")
@refuses("complex")
def isneginf(input: Tensor) -> Tensor:
    """Whether an element is minus infinity."""
    return eq(input, float("-inf"))


def _logical(name: str, compute: Callable[[Tensor, Tensor], Tensor], what: str) -> Binary:
    def function(input: Operand, other: Operand) -> Tensor:
        refuse_numbers(name, input, other)
        return compute(as_operand(input, name), as_operand(other, name))

    note = declared(in_place="comparison", out=True, numbers="none")
    return note(named(function, name, f"Elementwise {what} of truth values."))


logical_and = _logical("logical_and", ops.logical_and, "and")
logical_or = _logical("logical_or", ops.logical_or, "or")
logical_xor = _logical("logical_xor", ops.logical_xor, "exclusive or")


@declared(aliases="clip", in_place="values", out=True, numbers="second")
def clamp(input: Operand, min: Operand | None = None, max: Operand | None = None) -> Tensor:
    """Limit the elements to [min, max]; bounds are numbers or tensors, at least one is given."""
    if isinstance(input, NUMBERS):
        refuse_numbers("clamp", input, min)
    input = as_operand(input, "clamp")
    if type_of(input).dtype.is_complex:
        raise UnsupportedDTypeError("clamp is not supported for complex types", {"input": input})
    if min is None and max is None:
        raise ArgumentTypeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    by_numbers = type(input) is Tensor and all(v is None or isinstance(v, NUMBERS) for v in (min, max))
    if by_numbers and type_of(input).dtype.is_floating_point:
        return in_one_pass("clamp", (min, max), input, node="ClampBackward1")
    values = all_together([v for v in (input, min, max) if v is not None], "clamp")
    rest = iter(values[1:])
    bounds = [None if v is None else next(rest) for v in (min, max)]
    low, high = (v if isinstance(v, NUMBERS) else bound for v, bound in zip((min, max), bounds, strict=True))
    return ops.clamp(values[0], low, high)


class ArgumentTypeError(ArgumentError, RuntimeError):
    """A missing argument that torch reports as RuntimeError."""


@declared(in_place="values", out=True, lists=True, numbers="second")
def clamp_min(input: Tensor, min: Operand) -> Tensor:
    """Limit from below."""
    return clamp(input, min=min)


@declared(in_place="values", out=True, lists=True, numbers="second")
def clamp_max(input: Tensor, max: Operand) -> Tensor:
    """Limit from above."""
    return clamp(input, max=max)


def _where_method(self: Tensor, condition: Tensor, other: Operand) -> Tensor:
    """This tensor's elements where the condition holds, else ``other``."""
    return where(condition, self, other)


@overload
def where(condition: Tensor) -> tuple[Tensor, ...]: ...
@overload
def where(condition: Tensor, input: Operand, other: Operand) -> Tensor: ...
@declared(method=_where_method, out=EXACT_OUT, numbers="both")
def where(condition: Tensor, input: Operand | None = None, other: Operand | None = None) -> Any:
    """``input`` where the condition holds, else ``other``; with the condition alone, ``nonzero(as_tuple=True)``."""
    if input is None and other is None:
        return condition.nonzero(as_tuple=True)
    if type(input) is Tensor and type(other) is Tensor and type(condition) is Tensor:
        c, a, b = condition._array, input._array, other._array
        if c is not None and a is not None and b is not None and a.dtype is b.dtype and c.dtype.kind == "b":
            return apply(WHERE, condition, input, other)
    if type_of(condition).dtype is not bool_:
        if type_of(condition).dtype.name != "uint8":
            raise UsageError(
                f"where expected condition to be a boolean tensor, but got a tensor with dtype {condition.dtype}"
            )
        condition = cast(condition, bool_)
    x, y = together(input, other, "where")
    return ops.where(condition, x, y)
