"""TensorType: what the compiler knows of a value before it has one: shape, dtype, device."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from math import prod

from autojit.core.device import CPU, Device
from autojit.core.dtypes import BY_SHORT, DType
from autojit.core.sizes import parse_size

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorType:
    """Shape, dtype and device of a value; printed ``f32[64, 784]``."""

    shape: Shape
    dtype: DType
    device: Device = CPU
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.shape, self.dtype.short, self.device)))

    def __hash__(self) -> int:
        return self._hash

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

    def drop(self, axes: tuple[int, ...]) -> TensorType:
        """Without the given non-negative axes."""
        return self.with_shape(tuple(n for axis, n in enumerate(self.shape) if axis not in axes))

    def __str__(self) -> str:
        dims = ", ".join(map(str, self.shape))
        suffix = "" if self.device == CPU else f"@{self.device}"
        return f"{self.dtype.short}[{dims}]{suffix}"


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
