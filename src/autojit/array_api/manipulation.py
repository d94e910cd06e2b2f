"""Functions of the standard that change shapes, pick and order elements."""

from __future__ import annotations

from typing import Any

import numpy as np

import autojit as aj
from autojit.array_api.promotion import computed, sequence_of, together
from autojit.interop.registry import FUNCTIONS
from autojit.tensor import Tensor

__all__ = [
    "argmax", "argmin", "argsort", "broadcast_arrays", "broadcast_shapes", "broadcast_to", "concat",
    "count_nonzero", "expand_dims", "flip", "isin", "moveaxis", "nonzero", "permute_dims", "repeat", "reshape",
    "roll", "searchsorted", "sort", "squeeze", "stack", "take", "take_along_axis", "tile", "unique_all",
    "unique_counts", "unique_inverse", "unique_values", "unstack", "where",
]  # fmt: skip


def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """Arrays brought to one shape."""
    return list(aj.broadcast_tensors(*arrays))


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that arrays of these shapes have together."""
    return tuple(aj.broadcast_shapes(*shapes))


def broadcast_to(x: Tensor, /, shape: tuple[int, ...]) -> Tensor:
    """The array repeated up to a shape."""
    return aj.broadcast_to(x, sequence_of(shape))


def concat(arrays: Any, /, *, axis: int | None = 0) -> Tensor:
    """Arrays one after the other along an axis; flattened when it is None."""
    return computed(np.concatenate, together(*arrays), axis=axis)


def expand_dims(x: Tensor, /, axis: Any = 0) -> Tensor:
    """One more axis of extent 1 at each of the places."""
    try:
        return computed(np.expand_dims, x, axis)
    except ValueError as error:
        raise IndexError(f"expand_dims: {error}") from None


def flip(x: Tensor, /, *, axis: Any = None) -> Tensor:
    """Elements in reverse order along axes."""
    return computed(np.flip, x, axis)


def moveaxis(x: Tensor, source: Any, destination: Any, /) -> Tensor:
    """Axes moved to other places."""
    return aj.movedim(x, source, destination)


def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    """Axes in another order."""
    return computed(np.transpose, x, axes)


def repeat(x: Tensor, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """Every element several times."""
    return computed(np.repeat, x, repeats, axis)


def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Tensor:
    """Another shape for the same elements.

    Raises:
        ValueError: ``copy=False`` although the elements must move.
    """
    if copy is False:
        try:
            return x.view(sequence_of(shape))
        except RuntimeError as error:
            raise ValueError(f"reshape: impossible without a copy: {error}") from None
    return computed(np.reshape, x, shape, copy=copy)


def roll(x: Tensor, /, shift: Any, *, axis: Any = None) -> Tensor:
    """Elements moved along axes; those that leave come in at the other end."""
    return computed(np.roll, x, shift, axis)


def squeeze(x: Tensor, /, axis: Any) -> Tensor:
    """Without axes, which must have extent 1."""
    return computed(np.squeeze, x, axis)


def stack(arrays: Any, /, *, axis: int = 0) -> Tensor:
    """Arrays of one shape along a new axis."""
    return computed(np.stack, together(*arrays), axis)


def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Tensor:
    """The array several times along each axis."""
    return computed(np.tile, x, repetitions)


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The parts of an array along an axis."""
    return tuple(x.unbind(axis))


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """Elements at places along an axis.

    Raises:
        ValueError: there are several axes and none is named.
    """
    if axis is None and x.ndim != 1:
        raise ValueError("take: axis is needed for arrays of more than one axis")
    return computed(np.take, x, indices, 0 if axis is None else axis)


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """Elements at places of their own along an axis."""
    return computed(np.take_along_axis, x, indices, axis)


# ---- searching


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Where the greatest element is."""
    return computed(np.argmax, x, axis, keepdims=keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Where the least element is."""
    return computed(np.argmin, x, axis, keepdims=keepdims)


def count_nonzero(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """How many elements are not zero."""
    return computed(np.count_nonzero, x, axis, keepdims=keepdims)


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """Where elements are not zero: the indices by axis."""
    return tuple(FUNCTIONS[np.nonzero](x))


def searchsorted(x1: Tensor, x2: Any, /, *, side: str = "left", sorter: Tensor | None = None) -> Tensor:
    """Where elements of ``x2`` would go into the ordered ``x1``."""
    return computed(np.searchsorted, x1, x2, side, sorter)


def where(condition: Tensor, x1: Any, x2: Any, /) -> Tensor:
    """Elements of ``x1`` where the condition holds, of ``x2`` elsewhere."""
    x, y = together(x1, x2)
    return aj.where(condition, x, y)


def isin(x1: Any, x2: Any, /, *, invert: bool = False) -> Tensor:
    """Whether elements of ``x1`` are among those of ``x2``."""
    x, y = (t.to(aj.uint8) if t.dtype is aj.bool else t for t in together(x1, x2))
    if x.dtype.is_complex:  # which have no order, as isin() needs one
        found = (x.unsqueeze(-1) == y.reshape(-1)).any(-1)
        return aj.logical_not(found) if invert else found
    return aj.isin(x, y, invert=invert)


# ---- sets and order


def unique_all(x: Tensor, /) -> Any:
    """Different elements, where they are first, the inverse, and how often they occur."""
    return computed(np.unique_all, x)


def unique_counts(x: Tensor, /) -> Any:
    """Different elements and how often they occur."""
    return computed(np.unique_counts, x)


def unique_inverse(x: Tensor, /) -> Any:
    """Different elements, and for every element which of them it is."""
    return computed(np.unique_inverse, x)


def unique_values(x: Tensor, /) -> Tensor:
    """Different elements."""
    return computed(np.unique_values, x)


def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The places of the elements in order."""
    return aj.argsort(x, axis, descending=descending, stable=True)


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The elements in order."""
    return aj.sort(x, axis, descending=descending, stable=True)[0]
