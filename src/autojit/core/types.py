"""TensorType: what the compiler knows of a value before it has one: shape, dtype, device."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from math import prod
from typing import Any, final

from autojit.core.device import CPU, Device
from autojit.core.dtypes import BY_SHORT, DType
from autojit.core.size_text import parse_size
from autojit.core.structure import structure

Shape = tuple[int, ...]


@final
@dataclass(frozen=True, init=False, eq=False)
class TensorType:
    """Shape, dtype and device of a value; printed ``f32[64, 784]``."""

    __slots__ = ("_hash", "device", "dtype", "shape")
    shape: Shape
    dtype: DType
    device: Device

    def __init__(self, shape: Shape, dtype: DType, device: Device = CPU) -> None:
        _set_shape(self, shape)
        _set_dtype(self, dtype)
        _set_device(self, device)
        _set_hash(self, hash((structure(shape), dtype.short)))

    def __eq__(self, other: object) -> bool:
        if self is other:  # the types of a graph are few objects: see ``ir.result_types``
            return True
        if type(other) is not TensorType:
            return NotImplemented
        is_alike = self.dtype is other.dtype and structure(self.shape) == structure(other.shape)
        return is_alike and self.device == other.device

    def __hash__(self) -> int:
        return self._hash  # type: ignore[attr-defined, no-any-return]

    def __reduce__(self) -> Any:
        return TensorType, (self.shape, self.dtype, self.device)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def size_bytes(self) -> int:
        return prod(self.shape) * self.dtype.size_bytes

    def with_shape(self, shape: Shape) -> TensorType:
        return TensorType(shape, self.dtype, self.device)

    def with_dtype(self, dtype: DType) -> TensorType:
        return TensorType(self.shape, dtype, self.device)

    def on(self, device: Device) -> TensorType:
        """The same shape and dtype on a device."""
        return self if self.device == device else TensorType(self.shape, self.dtype, device)

    def drop(self, axes: tuple[int, ...]) -> TensorType:
        """Without the given non-negative axes."""
        return self.with_shape(tuple(n for axis, n in enumerate(self.shape) if axis not in axes))

    def __str__(self) -> str:
        dims = ", ".join(map(str, self.shape))
        suffix = "" if self.device == CPU else f"@{self.device}"
        return f"{self.dtype.short}[{dims}]{suffix}"


# what a frozen dataclass does by ``object.__setattr__`` takes four times as long
_set_shape: Any = TensorType.__dict__["shape"].__set__
_set_dtype: Any = TensorType.__dict__["dtype"].__set__
_set_device: Any = TensorType.__dict__["device"].__set__
_set_hash: Any = TensorType.__dict__["_hash"].__set__


def parse_type(text: str) -> TensorType:
    """The inverse of ``str(TensorType)``.

    >>> str(parse_type("f32[2, 3]")), str(parse_type("f32[s0, 4*s0+1]"))
    ('f32[2, 3]', 'f32[s0, 4*s0+1]')
    """
    short, _, rest = text.strip().partition("[")
    dims, _, where = rest.partition("]")
    extents = ast.parse(f"({dims.strip(' ,')},)" if dims.strip() else "()", mode="eval").body
    assert isinstance(extents, ast.Tuple)
    shape = tuple(map(parse_size, extents.elts))
    target = Device(*_device_parts(where[1:])) if where.startswith("@") else CPU
    return TensorType(shape, BY_SHORT[short], target)


def _device_parts(text: str) -> tuple[str, int | None]:
    kind, _, index = text.partition(":")
    return kind, int(index) if index else None
