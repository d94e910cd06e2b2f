"""Operators: ``+ - * / ...`` on tensors, with a short way for two tensors of one dtype or a tensor and a number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from autojit.core.dtypes import HALVES, dtype_of_numpy
from autojit.core.sizes import is_symbolic
from autojit.core.wrapping import named
from autojit.dispatch.dispatch import apply_pair, number
from autojit.dispatch.inplace import copy_into, in_place
from autojit.dispatch.promotion import Operand, as_operand
from autojit.functions import comparison as c
from autojit.functions import elementwise as f
from autojit.functions.matrix_ranks import is_number, require_matrices
from autojit.functions.products import matmul
from autojit.functions.shape import adjoint, permute, transpose
from autojit.ir.op import Op
from autojit.tensor.tensor import Tensor, type_of

_OPERANDS: tuple[type, ...] = (Tensor, int, float, complex, np.generic, np.ndarray)
_NOT_OURS: Tensor = NotImplemented  # Python then asks the other operand, so that nobody who calls an operator gets it


def _operator(op_name: str, function: Callable[[Any, Any], Tensor], shortcut: str) -> Callable[[Tensor, Any], Tensor]:
    """A binary operator; NumPy dtypes whose kind is in ``shortcut`` need no promotion among themselves."""
    op = Op.registry[op_name]()
    compute: Any = type(op).of_pair

    def operator(self: Tensor, other: Operand) -> Tensor:
        a = self._array
        if a is not None and a.dtype.kind in shortcut:
            if isinstance(other, Tensor):
                b = other._array
                if b is not None and b.dtype is a.dtype:
                    return apply_pair(op, compute, self, other)
            elif (type(other) is float or type(other) is int) and a.dtype.char != "e":  # halves keep its digits
                return apply_pair(op, compute, self, number(other, dtype_of_numpy(a.dtype)))
        if not isinstance(other, _OPERANDS):
            return _NOT_OURS
        return function(self, other)

    return named(operator, f"__{op_name}__")


def _reflected(function: Callable[[Any, Any], Tensor], op_name: str = "") -> Callable[[Tensor, Any], Tensor]:
    """A binary operator whose second operand is the tensor; that of an op has a short way for a number before it."""
    op = Op.registry[op_name]() if op_name else None
    compute: Any = None if op is None else type(op).of_pair

    def operator(self: Tensor, other: Operand) -> Tensor:
        if op is not None and (type(other) is float or type(other) is int):
            a = self._array
            if a is not None and a.dtype.char in "fdFD":  # halves keep the number's digits
                return apply_pair(op, compute, number(other, dtype_of_numpy(a.dtype)), self)
        if not isinstance(other, _OPERANDS):
            return _NOT_OURS
        return function(other, self)

    return named(operator, f"__r{function.__name__}__")


def _quotient_of(x: Operand, y: Tensor) -> Tensor:
    """``x / y``; of a number and halves it is the number times their reciprocal, which is rounded, as in torch."""
    if isinstance(x, (int, float)) and type(x) is not bool and type_of(y).dtype in HALVES:  # numbers of steps too
        return f.mul(f.reciprocal(y), x)
    return f.div(x, y)


def _plain(function: Callable[..., Tensor]) -> Callable[[Tensor, Any], Tensor]:
    def operator(self: Tensor, other: Operand) -> Tensor:
        if not isinstance(other, _OPERANDS):
            return _NOT_OURS
        return function(self, other)

    return named(operator, f"__{function.__name__}__")


def _assigning(method: str, function: Callable[..., Tensor]) -> Callable[[Tensor, Any], Tensor]:
    def operator(self: Tensor, other: Operand) -> Tensor:
        is_of_step = hasattr(type(other), "as_operand") or is_symbolic(other)
        if not isinstance(other, _OPERANDS) and not is_of_step:
            return _NOT_OURS
        return in_place(self, method, function, (other,), {})

    return named(operator, f"__{method}__")


def _power(self: Tensor, other: Operand, modulo: object = None) -> Tensor:
    return f.pow(self, other) if isinstance(other, _OPERANDS) else _NOT_OURS


def _deleting(self: Tensor, key: object) -> None:
    raise TypeError("Tensor does not support deleting items")


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
    if is_number("mT", self, "This function is the identity in these cases."):
        return self
    require_matrices("mT", self)
    return transpose(self, -2, -1)


def _hermitian(self: Tensor) -> Tensor:
    """The conjugate transpose of one matrix."""
    if is_number("H", self, "Consider using x.conj()."):
        return self.conj()
    require_matrices("H", self, most=2)
    return adjoint(self)


def _hermitians(self: Tensor) -> Tensor:
    """The conjugate transpose of each matrix."""
    if is_number("mH", self, "Consider using x.conj()."):
        return self.conj()
    require_matrices("mH", self)
    return adjoint(self)


def _writing(part: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Operand], None]:
    def write(self: Tensor, value: Operand) -> None:
        copy_into(part(self), as_operand(value), "copy_")

    return write


_FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "__add__": f.add, "__sub__": f.sub, "__mul__": f.mul, "__truediv__": f.div, "__floordiv__": f.floor_divide,
    "__mod__": f.remainder, "__pow__": f.pow, "__matmul__": matmul, "__and__": c.bitwise_and, "__or__": c.bitwise_or,
    "__xor__": c.bitwise_xor, "__lshift__": c.bitwise_left_shift, "__rshift__": c.bitwise_right_shift,
}  # fmt: skip
_NOT_IN_PLACE = ("__matmul__",)
METHODS: dict[str, Any] = {
    **{name: _plain(function) for name, function in _FUNCTIONS.items()},
    **{f"__r{name[2:]}": _reflected(function) for name, function in _FUNCTIONS.items()},
    **{f"__i{n[2:]}": _assigning(f"{g.__name__}_", g) for n, g in _FUNCTIONS.items() if n not in _NOT_IN_PLACE},
    **{f"__{g.__name__}__": _operator(g.__name__, g, "fc") for g in (f.add, f.sub, f.mul)},
    **{f"__{g.__name__}__": _operator(g.__name__, g, "f") for g in (c.lt, c.le, c.gt, c.ge)},
    **{f"__r{g.__name__}__": _reflected(g, g.__name__) for g in (f.add, f.sub, f.mul)},
    "__truediv__": _operator("div", f.div, "fc"),
    "__rtruediv__": named(_reflected(_quotient_of, "div"), "__rdiv__"),
    "__pow__": _power,
    "__eq__": _plain(c.eq),
    "__ne__": _plain(c.ne),
    "__neg__": f.neg,
    "__pos__": f.positive,
    "__abs__": f.abs,
    "__invert__": _inverted,
    "__delitem__": _deleting,
    "T": property(_transposed),
    "mT": property(_matrix_transposed),
    "H": property(_hermitian),
    "mH": property(_hermitians),
    "real": property(f.real, _writing(f.real)),
    "imag": property(f.imag, _writing(f.imag)),
}
for _name in ("__eq__", "__ne__"):  # of all that can be compared
    METHODS[_name].__annotations__["other"] = "object"
