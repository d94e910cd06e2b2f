"""Functions of tensors that are one op, or one composite of ops, each: their promotion and their dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autojit.core.dtypes import bool_
from autojit.core.errors import UnsupportedDTypeError
from autojit.dispatch.dispatch import apply, apply_single
from autojit.dispatch.promotion import Number, as_operand, floating, floating_together, together
from autojit.ir.op import Op
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor, type_of

Unary = Callable[[Any], Tensor]
Binary = Callable[[Any, Any], Tensor]


def op_of(name: str) -> Op:
    """The op of a name, which has no parameters."""
    return Op.registry[name]()


_ALL_KINDS = ("bool", "uint", "int", "float", "complex")


def unary(name: str, floats: bool, doc: str, is_wide: bool = False) -> Unary:
    """A function that is the op of its name.

    Args:
        floats: in the default float, where the operand is of integers.
        is_wide: on devices it computes in float32 where mixed precision is on.
    """
    op = op_of(name)
    accepted = _ALL_KINDS if floats else getattr(op, "accepts", _ALL_KINDS)

    def plain(input: Tensor) -> Tensor:
        return apply_single(op, floating(input, name) if floats else as_operand(input, name))

    def wide(input: Tensor) -> Tensor:
        if state.autocast is not None and state.autocast.is_on_device(input):
            return state.autocast.full(plain, input)
        return apply_single(op, floating(input, name))

    def picky(input: Tensor) -> Tensor:
        x = as_operand(input, name)
        if type_of(x).dtype.kind not in accepted:
            raise UnsupportedDTypeError(f'"{name}" not implemented for {type_of(x).dtype}', {"input": x})
        return apply_single(op, x)

    function = wide if is_wide else plain if accepted == _ALL_KINDS else picky

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Elementwise {doc}, in the operand's shape" + (
        "; integers become the default float." if floats else " and dtype."
    )
    return function


def binary(name: str, doc: str, floats: bool = False, op_name: str = "") -> Binary:
    """A function of two operands that is the op of its name, or of ``op_name``."""
    op = op_of(op_name or name)
    bring = floating_together if floats else together
    accepted = getattr(op, "accepts", _ALL_KINDS)
    is_picky = accepted != _ALL_KINDS  # NumPy takes more, or converts

    def function(input: Tensor | Number, other: Tensor | Number) -> Tensor:
        x, y = bring(input, other, name)
        if is_picky and type_of(x).dtype.kind not in accepted:
            raise UnsupportedDTypeError(f'"{name}" not implemented for {type_of(x).dtype}', {"input": x, "other": y})
        found: Tensor = apply(op, x, y)
        return found

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Elementwise {doc}; operands broadcast and are promoted."
    return function


def through_ops(name: str, function: Callable[..., Any], floats: bool = False, refuses_bool: bool = False) -> Unary:
    """A unary function whose composite is in ``ops``."""

    def wrapper(input: Tensor) -> Tensor:
        x = floating(input, name) if floats else as_operand(input, name)
        if refuses_bool and type_of(x).dtype is bool_:
            raise UnsupportedDTypeError(f'"{name}" not implemented for {bool_}', {"input": x})
        found: Tensor = function(x)
        return found

    wrapper.__name__ = wrapper.__qualname__ = name
    wrapper.__doc__ = function.__doc__
    return wrapper
