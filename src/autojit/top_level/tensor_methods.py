"""Methods of Tensor that few programs call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autojit.core.errors import UsageError
from autojit.dispatch.declared import declared
from autojit.dispatch.promotion import Operand
from autojit.functions.elementwise import div
from autojit.functions.memory import data_ptr, pinned
from autojit.functions.shape import flip
from autojit.functions.storages import UntypedStorage
from autojit.functions.writing import mapped
from autojit.nn import functional as F
from autojit.tensor import Tensor
from autojit.tensor.tensor import layout_of, type_of


@declared(function=False)
def const_data_ptr(self: Tensor) -> int:
    """The address of the first element."""
    return data_ptr(self)


@declared(function=False)
def dim_order(self: Tensor, *, ambiguity_check: object = False) -> tuple[int, ...]:
    """The axes from the outermost in memory to the innermost.

    Raises:
        RuntimeError: ``ambiguity_check`` is set and axes have equal strides or extent 1.

    Example:
        >>> import autojit as aj
        >>> aj.ones(2, 3).t().dim_order()
        (1, 0)
    """
    array = layout_of(self)
    order = sorted(range(array.ndim), key=lambda axis: (-array.strides[axis], -(array.shape[axis] > 1), axis))
    if ambiguity_check and (len(set(array.strides)) < array.ndim or 1 in array.shape):
        raise UsageError("The tensor does not have unique dim order, or cannot map to exact one of the given formats.")
    return tuple(order)


@declared(function=False)
def hardshrink(self: Tensor, lambd: float = 0.5) -> Tensor:
    """``nn.functional.hardshrink``."""
    return F.hardshrink(self, lambd)


@declared(function=False)
def map2_(self: Tensor, x: Tensor, y: Tensor, callable: Callable[[Any, Any, Any], Any]) -> Tensor:
    """Replace every element by what a Python function makes of it and the elements of two other tensors.

    Raises:
        RuntimeError: one of the tensors requires gradients.

    Example:
        >>> import autojit as aj
        >>> aj.ones(2).map2_(aj.ones(2), aj.ones(2), lambda a, b, c: a + b + c)
        tensor([3., 3.])
    """
    return mapped("map2_", callable, self, x, y)


@declared(function=False)
def module_load(self: Tensor, other: Tensor, assign: bool = False) -> Tensor:
    """What ``Module.load_state_dict`` puts here: ``other`` itself if ``assign``, else this tensor with its elements."""
    if assign:
        return other.detach()
    return self.copy_(other).detach()


@declared(function=False)
def pin_memory(self: Tensor, device: object = None) -> Tensor:
    """A copy in memory that a GPU reads directly; the tensor itself if it is there.

    Raises:
        RuntimeError: there is no GPU to read it, or the tensor is not on the CPU.
    """
    return pinned(self)


@declared(function=False)
def record_stream(self: Tensor, s: Any) -> None:
    """Let memory of a GPU not be used again before a stream has done what it holds when the tensor goes.

    Nothing on the CPU, where memory is free when nobody refers to it.
    """
    if type_of(self).device.type == "cuda" and s is not None:
        from autojit.cuda.recorded_streams import record_stream  # of CUDA nothing is imported before it is used

        record_stream(self, s)


@declared(function=False)
def storage_type(self: Tensor) -> type:
    """The class of the tensor's storage."""
    return UntypedStorage


@declared(function=False)
def __reversed__(self: Tensor) -> Tensor:
    """The elements along the first axis, the last one first."""
    return self if type_of(self).ndim == 0 else flip(self, 0)


@declared(function=False)
def __div__(self: Tensor, other: Operand) -> Tensor:
    """Division under Python 2's name."""
    return div(self, other)


@declared(function=False)
def __rdiv__(self: Tensor, other: Operand) -> Tensor:
    """Division of another number by this tensor, under Python 2's name."""
    if not isinstance(self, Tensor):
        raise TypeError(f"__rdiv__ is a method of Tensor, not of {type(self).__name__}")
    return div(other, self)


@declared(function=False)
def __idiv__(self: Tensor, other: Operand) -> Tensor:
    """Division in place, under Python 2's name."""
    return self.div_(other)
