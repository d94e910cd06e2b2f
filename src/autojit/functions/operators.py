"""Operators: ``+ - * / ...`` on tensors, with a short way for two tensors of one dtype or a tensor and a number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from autojit.core.dtypes import dtype_of_numpy
from autojit.dispatch.dispatch import apply_pair, number
from autojit.dispatch.inplace import copy_into, in_place
from autojit.dispatch.promotion import as_operand
from autojit.functions import comparison as c
from autojit.functions import elementwise as f
from autojit.functions.products import matmul
from autojit.functions.shape import adjoint, permute, transpose
from autojit.ir.op import Op
from autojit.tensor.tensor import Tensor, type_of

_OPERANDS = (Tensor, int, float, complex, np.generic, np.ndarray)
_NOT_OURS: Tensor = NotImplemented  # Python then asks the other operand, so that nobody who calls an operator gets it


def _operator(op_name: str, function: Callable[[Any, Any], Tensor], shortcut: str) -> Callable[[Tensor, Any], Tensor]:
    """A binary operator; NumPy dtypes whose kind is in ``shortcut`` need no promotion among themselves."""
    op = Op.registry[op_name]()
    compute: Any = type(op).of_pair

    def operator(self: Tensor, other: Any) -> Tensor:
        a = self._array
        if a is not None and a.dtype.kind in shortcut:
            if isinstance(other, Tensor):
                b = other._array
                if b is not None and b.dtype is a.dtype:
                    return apply_pair(op, compute, self, other)
            elif type(other) is float or type(other) is int:
                return apply_pair(op, compute, self, number(other, dtype_of_numpy(a.dtype)))
        if not isinstance(other, _OPERANDS):
            return _NOT_OURS
        return function(self, other)

    return _named(operator, op_name)


def _named(operator: Callable[[Tensor, Any], Tensor], name: str) -> Callable[[Tensor, Any], Tensor]:
    """The function under a name of its own, also in tracebacks, profiles and error messages."""
    operator.__name__ = operator.__qualname__ = f"__{name}__"
    operator.__code__ = operator.__code__.replace(co_name=operator.__name__, co_qualname=operator.__name__)
    return operator


def _reflected(function: Callable[[Any, Any], Tensor]) -> Callable[[Tensor, Any], Tensor]:
    def operator(self: Tensor, other: Any) -> Tensor:
        if not isinstance(other, _OPERANDS):
            return _NOT_OURS
        return function(other, self)

    return _named(operator, f"r{function.__name__}")


def _plain(function: Callable[..., Tensor]) -> Callable[[Tensor, Any], Tensor]:
    def operator(self: Tensor, other: Any) -> Tensor:
        if not isinstance(other, _OPERANDS):
            return _NOT_OURS
        return function(self, other)

    return _named(operator, function.__name__)


def _assigning(method: str, function: Callable[..., Tensor]) -> Callable[[Tensor, Any], Tensor]:
    def operator(self: Tensor, other: Any) -> Tensor:
        return in_place(self, method, function, (other,), {})

    return _named(operator, method)


def _power(self: Tensor, other: Any, modulo: Any = None) -> Tensor:
    return f.pow(self, other) if isinstance(other, _OPERANDS) else _NOT_OURS


def _inverted(self: Tensor) -> Tensor:
    """``~``, of whole numbers and truth values."""
    if type_of(self).dtype.category >= 2:
        raise TypeError("~ (operator.invert) is only implemented on integer and Boolean-type tensors")
    return c.bitwise_not(self)


def _transposed(self: Tensor) -> Tensor:
    """All axes in reverse order."""
    return permute(self, tuple(range(type_of(self).ndim))[::-1])


def _matrix_transposed(self: Tensor) -> Tensor:
    """The last two axes exchanged."""
    return transpose(self, -2, -1)


def _set_real(self: Tensor, value: Any) -> None:
    copy_into(f.real(self), as_operand(value), "copy_")


def _set_imag(self: Tensor, value: Any) -> None:
    copy_into(f.imag(self), as_operand(value), "copy_")


METHODS: dict[str, Any] = {
    "__add__": _operator("add", f.add, "fc"),
    "__sub__": _operator("sub", f.sub, "fc"),
    "__mul__": _operator("mul", f.mul, "fc"),
    "__truediv__": _operator("div", f.div, "fc"),
    "__radd__": _reflected(f.add),
    "__rsub__": _reflected(f.sub),
    "__rmul__": _reflected(f.mul),
    "__rtruediv__": _reflected(f.div),
    "__floordiv__": _plain(f.floor_divide),
    "__rfloordiv__": _reflected(f.floor_divide),
    "__mod__": _plain(f.remainder),
    "__rmod__": _reflected(f.remainder),
    "__pow__": _power,
    "__rpow__": _reflected(f.pow),
    "__matmul__": _plain(matmul),
    "__rmatmul__": _reflected(matmul),
    "__neg__": f.neg,
    "__pos__": f.positive,
    "__abs__": f.abs,
    "__invert__": _inverted,
    "__eq__": _plain(c.eq),
    "__ne__": _plain(c.ne),
    "__lt__": _operator("lt", c.lt, "f"),
    "__le__": _operator("le", c.le, "f"),
    "__gt__": _operator("gt", c.gt, "f"),
    "__ge__": _operator("ge", c.ge, "f"),
    "__and__": _plain(c.bitwise_and),
    "__rand__": _reflected(c.bitwise_and),
    "__or__": _plain(c.bitwise_or),
    "__ror__": _reflected(c.bitwise_or),
    "__xor__": _plain(c.bitwise_xor),
    "__rxor__": _reflected(c.bitwise_xor),
    "__lshift__": _plain(c.bitwise_left_shift),
    "__rlshift__": _reflected(c.bitwise_left_shift),
    "__rshift__": _plain(c.bitwise_right_shift),
    "__rrshift__": _reflected(c.bitwise_right_shift),
    "__iadd__": _assigning("add_", f.add),
    "__isub__": _assigning("sub_", f.sub),
    "__imul__": _assigning("mul_", f.mul),
    "__itruediv__": _assigning("div_", f.div),
    "__ifloordiv__": _assigning("floor_divide_", f.floor_divide),
    "__imod__": _assigning("remainder_", f.remainder),
    "__ipow__": _assigning("pow_", f.pow),
    "__iand__": _assigning("bitwise_and_", c.bitwise_and),
    "__ior__": _assigning("bitwise_or_", c.bitwise_or),
    "__ixor__": _assigning("bitwise_xor_", c.bitwise_xor),
    "T": property(_transposed),
    "mT": property(_matrix_transposed),
    "H": property(adjoint),
    "mH": property(adjoint),
    "real": property(f.real, _set_real),
    "imag": property(f.imag, _set_imag),
}
