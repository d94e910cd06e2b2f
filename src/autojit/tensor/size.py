"""Size: a shape as users see it."""

from __future__ import annotations

from math import prod
from typing import Any, SupportsIndex, overload

from autojit.core.package_name import full_name
from autojit.core.sizes import plain_text


class Size(tuple[int, ...]):
    """A tuple of extents that can say how many elements they make."""

    __slots__ = ()

    def numel(self) -> int:
        """The number of elements."""
        return prod(self)

    def __repr__(self) -> str:
        return full_name(f"Size([{', '.join(map(plain_text, self))}])")

    __str__ = __repr__

    @overload
    def __getitem__(self, index: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Size: ...
    def __getitem__(self, index: SupportsIndex | slice) -> int | Size:
        return Size(tuple.__getitem__(self, index)) if isinstance(index, slice) else tuple.__getitem__(self, index)

    def __add__(self, other: tuple[Any, ...]) -> Size:
        return Size(tuple.__add__(self, other))

    def __radd__(self, other: tuple[Any, ...]) -> Size:
        return Size(tuple.__add__(other, self))

    def __mul__(self, count: SupportsIndex) -> Size:
        return Size(tuple.__mul__(self, count))

    __rmul__ = __mul__
