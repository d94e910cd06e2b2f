"""Functions that write the elements of a tensor: numbers, another tensor's elements, what a Python function says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autojit.core.errors import UsageError
from autojit.core.sizes import distinct
from autojit.dispatch.declared import declared
from autojit.dispatch.dispatch import number
from autojit.dispatch.inplace import copy_into
from autojit.dispatch.promotion import Number, Operand
from autojit.functions import factories
from autojit.tensor.tensor import Tensor, is_scalar_number, type_of


@declared(function=False)
def fill_(self: Tensor, value: Any) -> Tensor:
    """Every element becomes ``value`` (a number or a 0-d tensor)."""
    if not is_scalar_number(value) and type_of(value).ndim:
        raise UsageError(
            f"fill_ only supports 0-dimension value tensor but got tensor with {type_of(value).ndim} dimensions."
        )
    if is_scalar_number(value):
        kind = type_of(self)
        value = number(value, kind.dtype, kind.device)
    return copy_into(self, value, "fill_")


@declared(lists=True)
def zero_(self: Tensor) -> Tensor:
    """Every element becomes 0."""
    kind = type_of(self)
    return copy_into(self, number(0, kind.dtype, kind.device), "zero_")


@declared(function=False, lists=True)
def copy_(self: Tensor, other: Operand, non_blocking: bool = False) -> Tensor:
    """The elements of ``other``, converted and broadcast."""
    given = other if isinstance(other, Tensor) else factories.as_tensor(other, device=type_of(self).device)
    return copy_into(self, given, "copy_")


@declared(function=False)
def fill_diagonal_(self: Tensor, fill_value: Tensor | Number, wrap: bool = False) -> Tensor:
    """Every element of the main diagonal becomes ``fill_value``; ``wrap`` goes on below a tall matrix's square."""
    shape = type_of(self).shape
    if len(shape) < 2 or (len(shape) > 2 and len(distinct(shape)) > 1):
        raise UsageError(
            "dimensions must larger than 1" if len(shape) < 2 else "all dimensions of input must be of equal length",
            {"input": self},
        )
    if len(shape) > 2:
        self[(factories.arange(shape[0], device=type_of(self).device),) * len(shape)] = fill_value
        return self
    for start in range(0, shape[0] if wrap else 1, shape[1] + 1):
        self[start:].diagonal().fill_(fill_value)
    return self


@declared(function=False)
def apply_(self: Tensor, callable: Callable[[Any], Any]) -> Tensor:
    """Replace every element by what a Python function makes of it; not recorded, only for tensors without gradient."""
    return mapped("apply_", callable, self)


@declared(function=False)
def map_(self: Tensor, other: Tensor, callable: Callable[[Any, Any], Any]) -> Tensor:
    """Replace every element by what a Python function makes of it and the element of another tensor."""
    return mapped("map_", callable, self, other)


def mapped(name: str, callable: Callable[..., Any], self: Tensor, *others: Tensor) -> Tensor:
    """The tensor, whose elements become what a Python function makes of them and of those of others."""
    if any(t.requires_grad for t in (self, *others)):
        raise UsageError(f"Can't call {name}() on Variable that requires grad. Use var.detach().{name}() instead.")
    shape = type_of(self).shape
    rows = [t.expand(shape).reshape(-1).tolist() for t in (self, *others)]
    values = [callable(*elements) for elements in zip(*rows, strict=True)]
    return copy_into(self, self.new_tensor(values).reshape(shape), name)
