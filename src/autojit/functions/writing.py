"""Functions that write the elements of a tensor: numbers, another tensor's elements, what a Python function says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autojit.core.errors import UsageError
from autojit.core.sizes import distinct
from autojit.dispatch.declared import declared
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
        value = self._literal(value, type_of(self).with_shape(()))
    return copy_into(self, value, "fill_")


@declared(lists=True)
def zero_(self: Tensor) -> Tensor:
    """Every element becomes 0."""
    return copy_into(self, self._literal(0, type_of(self).with_shape(())), "zero_")


@declared(function=False, lists=True)
def copy_(self: Tensor, other: Operand, non_blocking: bool = False) -> Tensor:
    """The elements of ``other``, converted and broadcast."""
    return copy_into(self, other if isinstance(other, Tensor) else factories.as_tensor(other), "copy_")


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
    if self.requires_grad:
        raise UsageError("Can't call apply_() on Variable that requires grad. Use var.detach().apply_() instead.")
    values = [callable(v) for v in self.reshape(-1).tolist()]
    return copy_into(self, factories.tensor(values, dtype=type_of(self).dtype).reshape(type_of(self).shape), "apply_")


@declared(function=False)
def map_(self: Tensor, other: Tensor, callable: Callable[[Any, Any], Any]) -> Tensor:
    """Replace every element by what a Python function makes of it and the element of another tensor."""
    if self.requires_grad or other.requires_grad:
        raise UsageError("Can't call map_() on Variable that requires grad. Use var.detach().map_() instead.")
    both = zip(self.reshape(-1).tolist(), other.expand(type_of(self).shape).reshape(-1).tolist(), strict=True)
    values = [callable(a, b) for a, b in both]
    return copy_into(self, factories.tensor(values, dtype=type_of(self).dtype).reshape(type_of(self).shape), "map_")
