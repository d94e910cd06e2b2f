"""The methods ``new_zeros`` and their like: tensors in the dtype and on the device of another one."""

from __future__ import annotations

from typing import Any

from autojit.core.device import DeviceLike
from autojit.core.dtypes import DType
from autojit.core.errors import ArgumentKindError
from autojit.dispatch.declared import declared
from autojit.dispatch.promotion import Number
from autojit.functions.factories import full, tensor
from autojit.functions.shape import Sizes, sizes_of
from autojit.tensor.state import made_like, state
from autojit.tensor.tensor import Tensor, type_of


@declared(function=False, factory=True)
def new_tensor(
    self: Tensor, data: object, *, dtype: DType | None = None, device: DeviceLike = None, requires_grad: bool = False
) -> Tensor:
    """A tensor of data in this tensor's dtype."""
    t = type_of(self)
    place = t.device if device is None else device
    return tensor(data, dtype=dtype or t.dtype, device=place, requires_grad=requires_grad)


@declared(function=False, factory=True)
def new_full(
    self: Tensor,
    size: Sizes,
    fill_value: Tensor | Number,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """A value repeated in a shape, in this tensor's dtype."""
    t = type_of(self)
    place = t.device if device is None else device
    made = full(size, fill_value, dtype=dtype or t.dtype, device=place, requires_grad=requires_grad)
    return made_like(self, made) if state.layers else made


def _given(size: tuple[Any, ...], name: str) -> tuple[int, ...]:
    if not size:
        raise ArgumentKindError(f'{name}() missing 1 required positional arguments: "size"')
    return sizes_of(size)


@declared(function=False, factory=True)
def new_zeros(
    self: Tensor, *size: Sizes, dtype: DType | None = None, device: DeviceLike = None, requires_grad: bool = False
) -> Tensor:
    """Zeros in this tensor's dtype."""
    return new_full(self, _given(size, "new_zeros"), 0, dtype=dtype, device=device, requires_grad=requires_grad)


@declared(function=False, factory=True)
def new_ones(
    self: Tensor, *size: Sizes, dtype: DType | None = None, device: DeviceLike = None, requires_grad: bool = False
) -> Tensor:
    """Ones in this tensor's dtype."""
    return new_full(self, _given(size, "new_ones"), 1, dtype=dtype, device=device, requires_grad=requires_grad)


@declared(function=False, factory=True)
def new_empty(
    self: Tensor, *size: Sizes, dtype: DType | None = None, device: DeviceLike = None, requires_grad: bool = False
) -> Tensor:
    """Unspecified elements in this tensor's dtype."""
    return new_zeros(self, *size, dtype=dtype, device=device, requires_grad=requires_grad)
