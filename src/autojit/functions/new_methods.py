"""The methods ``new_zeros`` and their like: tensors in the dtype and on the device of another one."""

from __future__ import annotations

from autojit.core.device import DeviceLike
from autojit.core.dtypes import DType
from autojit.core.errors import ArgumentKindError
from autojit.core.wrapping import named
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


def _new(name: str, value: int, doc: str) -> None:
    def new(
        self: Tensor, *size: Sizes, dtype: DType | None = None, device: DeviceLike = None, requires_grad: bool = False
    ) -> Tensor:
        if not size:
            raise ArgumentKindError(f'{name}() missing 1 required positional arguments: "size"')
        return new_full(self, sizes_of(size), value, dtype=dtype, device=device, requires_grad=requires_grad)

    named(new, name, doc)
    declared(function=False, factory=True)(new)


_new("new_zeros", 0, "Zeros in this tensor's dtype.")
_new("new_ones", 1, "Ones in this tensor's dtype.")
_new("new_empty", 0, "Unspecified elements in this tensor's dtype.")
