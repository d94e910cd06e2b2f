"""Promotion: bringing what users combine to operands of one dtype, by torch's rules."""

from __future__ import annotations

from typing import Any

import numpy as np

from autojit.core.dtypes import DType, default_dtype, dtype_of_number, promote_with_number, result_type
from autojit.core.errors import ArgumentKindError
from autojit.dispatch.declared import DECLARED, Numbers
from autojit.dispatch.dispatch import apply, number, wrapped_number
from autojit.ir.op import Op
from autojit.ops.elementwise_arithmetic import Cast
from autojit.tensor.tensor import Tensor, type_of, wrap

Real = bool | int | float
Number = Real | complex
Operand = Tensor | Number | np.generic | np.ndarray[Any, Any]
NUMBERS = (int, float, complex, np.generic)
_CASTS: dict[DType, Op] = {}


def cast(x: Tensor, dtype: DType) -> Tensor:
    """``x`` in another dtype; ``x`` itself when it already has it. Differentiable between floats."""
    if type_of(x).dtype is dtype:
        return x
    return converted(x, dtype)


def converted(x: Tensor, dtype: DType) -> Tensor:
    """A copy of ``x`` in a dtype."""
    found: Tensor = apply(cast_to(dtype), x)
    return found


def cast_to(dtype: DType) -> Op:
    """The op that converts to a dtype."""
    op = _CASTS.get(dtype)
    if op is None:
        op = _CASTS[dtype] = Cast(dtype)
    return op


def as_operand(value: Any, what: str = "op") -> Tensor:
    """A Tensor of a Tensor, an array or a number; TypeError otherwise."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, NUMBERS):
        return number(value, dtype_of_number(value))
    if isinstance(value, np.ndarray):
        return wrap(value)
    if hasattr(type(value), "as_operand"):  # a number that a capture took from a tensor
        operand: Tensor = value.as_operand()
        return operand
    raise TypeError(f"{what}: expected a Tensor or a number, but got {type(value).__name__}")


def together(x: object, y: object, what: str) -> tuple[Tensor, Tensor]:
    """Two operands in their promoted dtype; Python numbers only raise the category (wrapped numbers)."""
    if isinstance(x, NUMBERS):
        refuse_numbers(what, x, y)
        other = as_operand(y, what)
        if isinstance(y, NUMBERS):
            return together(as_operand(x), other, what)
        dtype = promote_with_number(type_of(other).dtype, x)
        return (wrapped_number if _wraps_around(what) else number)(x, dtype), cast(other, dtype)
    a = as_operand(x, what)
    if isinstance(y, NUMBERS):
        if _numbers(what) == "none":
            refuse_numbers(what, x, y)
        dtype = promote_with_number(type_of(a).dtype, y)
        return cast(a, dtype), (wrapped_number if _wraps_around(what) else number)(y, dtype)
    b = as_operand(y, what)
    ta, tb = type_of(a), type_of(b)
    if ta.dtype is tb.dtype:
        return a, b
    dtype = result_type([(ta.dtype, ta.ndim), (tb.dtype, tb.ndim)])
    return cast(a, dtype), cast(b, dtype)


def refuse_numbers(name: str, x: object, y: object, names: tuple[str, str] = ("input", "other")) -> None:
    """TypeError for a Python number where torch's function of that name takes only tensors."""
    first, second, allowed = isinstance(x, NUMBERS), isinstance(y, NUMBERS), _numbers(name)
    if first and (allowed in ("second", "none") or (second and allowed != "both")):
        raise TypeError(f"{name}(): argument '{names[0]}' (position 1) must be Tensor, not {type(x).__name__}")
    if second and allowed == "none":
        raise TypeError(f"{name}(): argument '{names[1]}' (position 2) must be Tensor, not {type(y).__name__}")


def _numbers(name: str) -> Numbers:
    """Which operands of a function may be Python numbers; what has no name takes two of them."""
    if name in DECLARED:
        return DECLARED[name].numbers
    return "both" if name == "op" else "either"


def _wraps_around(name: str) -> bool:
    """Whether a whole number beyond the tensor's dtype wraps around in a function as in C; others refuse it."""
    return name in DECLARED and DECLARED[name].wraps_around


def all_together(values: list[Any], what: str) -> list[Tensor]:
    """Any number of operands in their promoted dtype."""
    values = [v if isinstance(v, NUMBERS) else as_operand(v, what) for v in values]
    tensors = [t for t in values if isinstance(t, Tensor)]
    if not tensors:
        raise ArgumentKindError(
            f"{what}(): argument 'input' (position 1) must be Tensor, not {type(values[0]).__name__}"
        )
    dtype = result_type([(type_of(t).dtype, type_of(t).ndim) for t in tensors])
    for v in values:
        if isinstance(v, NUMBERS):
            dtype = promote_with_number(dtype, v)
    return [number(v, dtype) if isinstance(v, NUMBERS) else cast(v, dtype) for v in values]


def floating(x: object, what: str = "op") -> Tensor:
    """``x`` itself when it is float or complex; integers and bools become the default float."""
    t = x if isinstance(x, Tensor) else as_operand(x, what)
    if t._array is not None and t._array.dtype.kind in "fc":
        return t
    return t if type_of(t).dtype.category >= 2 else cast(t, default_dtype())


def floating_together(x: object, y: object, what: str) -> tuple[Tensor, Tensor]:
    """Two operands in their promoted dtype, at least the default float."""
    if isinstance(x, Tensor) and type(y) is int and type_of(x).dtype.category < 2:
        y = float(y)  # exact: it would be rounded to, or wrap around in, the other's dtype on the way
    elif isinstance(y, Tensor) and type(x) is int and type_of(y).dtype.category < 2:
        x = float(x)
    a, b = together(x, y, what)
    if type_of(a).dtype.category >= 2:
        return a, b
    return cast(a, default_dtype()), cast(b, default_dtype())
