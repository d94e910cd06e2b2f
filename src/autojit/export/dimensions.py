"""Sizes that a user leaves open, by torch's names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autojit.core.errors import ArgumentError
from autojit.core.wrapping import code_holder
from autojit.functions.factories import zeros
from autojit.jit.pytree import flatten
from autojit.tensor.tensor import Tensor


class Dim:
    """A named size, from ``min`` on.

    Example:
        >>> from autojit.export import Dim
        >>> Dim("batch")
        Dim('batch', min=0)
    """

    def __init__(self, name: str, *, min: int = 0, max: int | None = None) -> None:
        if not name.isidentifier() or min < 0 or (max is not None and max < min):
            raise ArgumentError("Dim: a name and a range of sizes", {"name": name, "min": min, "max": max})
        self.name, self.min, self.max = name, min, max

    def __repr__(self) -> str:
        return f"Dim({self.name!r}, min={self.min})"


Dims = Mapping[tuple[int, int], Dim]
"""By argument and axis, the size that is left open there."""


def axes_of(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], shapes: Any
) -> dict[Dim, list[tuple[int, int]]]:
    """Of each open size the axes that have it: (leaf of the arguments, axis).

    Raises:
        ArgumentError: names that are no arguments, axes that are not there, extents of one `Dim` that differ.
    """
    parts = _by_argument(function, args, kwargs, shapes)
    found: dict[Dim, list[tuple[int, int]]] = {}
    extents: dict[Dim, int] = {}
    first = 0
    for value, wanted in parts:
        leaves = flatten(value)[0]
        for offset, (leaf, axes) in enumerate(zip(leaves, _per_leaf(leaves, wanted), strict=True)):
            for axis, dim in axes.items():
                shape = getattr(leaf, "shape", ())
                place = axis + len(shape) if axis < 0 else axis
                if not isinstance(dim, Dim):
                    raise ArgumentError("dynamic_shapes: axes are mapped to Dim", {"axis": axis, "found": dim})
                if place not in range(len(shape)):
                    raise ArgumentError("dynamic_shapes: no such axis", {"axis": axis, "shape": tuple(shape)})
                extent = int(shape[place])
                if extents.setdefault(dim, extent) != extent:
                    facts = {"dim": dim, "extents": (extents[dim], extent)}
                    raise ArgumentError("dynamic_shapes: one Dim has two extents", facts)
                if extent < 2:
                    facts = {"dim": dim, "extent": extent}
                    raise ArgumentError("dynamic_shapes: an example of an open size is 2 or more", facts)
                found.setdefault(dim, []).append((first + offset, place))
        first += len(leaves)
    return found


def _by_argument(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], shapes: Any
) -> list[tuple[Any, Any]]:
    """Each argument in order with what is said of it."""
    if isinstance(shapes, Mapping):
        names = _names(function, len(args))
        unknown = [name for name in shapes if name not in (*names, *kwargs)]
        if unknown:
            raise ArgumentError("dynamic_shapes: no such arguments", {"names": unknown, "arguments": names})
        return [
            *((value, shapes.get(name)) for name, value in zip(names, args, strict=False)),
            *((value, shapes.get(name)) for name, value in kwargs.items()),
        ]
    listed = list(shapes)
    if len(listed) > len(args):
        raise ArgumentError("dynamic_shapes: more entries than arguments", {"entries": len(listed)})
    listed += [None] * (len(args) - len(listed))
    return [*zip(args, listed, strict=True), *((value, None) for value in kwargs.values())]


def _names(function: Callable[..., Any], count: int) -> list[str]:
    held = code_holder(function)
    names = list(inspect.signature(held).parameters)[int(held is not function) :]
    return [*names, *(f"argument {k}" for k in range(len(names), count))]


def _per_leaf(leaves: Sequence[Any], wanted: Any) -> list[Mapping[int, Any]]:
    """What is said of each leaf of an argument."""
    if wanted is None:
        return [{} for _ in leaves]
    if isinstance(wanted, Mapping) and all(isinstance(axis, int) for axis in wanted):
        if len(leaves) != 1:
            raise ArgumentError("dynamic_shapes: an argument of several tensors needs as many entries")
        return [wanted]
    if len(leaves) == 1 and isinstance(wanted, list | tuple) and not isinstance(wanted[0], Mapping | None):
        return [{axis: dim for axis, dim in enumerate(wanted) if dim is not None}]
    parts = list(wanted.values()) if isinstance(wanted, Mapping) else list(wanted)
    if len(parts) != len(leaves):
        raise ArgumentError("dynamic_shapes: an argument of several tensors needs as many entries")
    return [part or {} for part in parts]


def with_extent(leaves: Sequence[Any], places: Sequence[tuple[int, int]], extent: int) -> list[Any]:
    """The arguments with zeros of another extent in place of some: a capture looks at their types alone."""
    changed = list(leaves)
    for leaf, axis in places:
        given = changed[leaf]
        shape = [*given.shape]
        shape[axis] = extent
        if isinstance(given, Tensor):
            changed[leaf] = zeros(
                *shape, dtype=given.dtype, device=given.device, requires_grad=given.requires_grad and given.is_leaf
            )
        else:
            changed[leaf] = type(given)(shape, given.dtype)
    return changed
