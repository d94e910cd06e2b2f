"""associative_scan: running results of an associative function, in a logarithmic number of batched steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autojit.control_flow.nests import check_same_tree, check_same_type, leaf_names
from autojit.core.errors import ShapeError, UsageError
from autojit.core.sizes import distinct
from autojit.core.top_level import top_level
from autojit.func.batches import vmap
from autojit.functions.shape import cat, flip, movedim, stack
from autojit.jit.pytree import flatten
from autojit.ops.base import normalize_axis
from autojit.tensor import Tensor
from autojit.tensor.tensor import type_of

Leaves = list[Tensor]
Combine = Callable[[Leaves, Leaves], Leaves]


@top_level
def associative_scan(
    combine_fn: Callable[[Any, Any], Any], xs: Any, dim: int, reverse: bool = False, combine_mode: str = "pointwise"
) -> Any:
    """The running results ``x0, f(x0, x1), f(f(x0, x1), x2), ...`` of an associative function along ``dim``.

    Args:
        combine_fn: takes two slices (nests like ``xs`` without the axis ``dim``) and returns one; associative.
        xs: a nest of tensors with the same extent along ``dim``.
        reverse: run from the last slice to the first.
        combine_mode: "pointwise" or "generic"; both mean the same here.

    Raises:
        RuntimeError: the tensors differ in extent, there are no slices, or ``combine_fn`` changes structure or type.

    Example:
        >>> import autojit as aj
        >>> associative_scan(lambda a, b: a * b, aj.tensor([1.0, 2.0, 3.0, 4.0]), 0)
        tensor([ 1.,  2.,  6., 24.])
    """
    if not callable(combine_fn):
        raise UsageError(f"Combine_fn must be a callable, but got {combine_fn!r}")
    if combine_mode not in ("pointwise", "generic"):
        raise UsageError(f"Combine_mode must either 'pointwise' or 'generic', but got {combine_mode}")
    leaves, tree = flatten(xs)
    if not leaves or not all(isinstance(x, Tensor) for x in leaves):
        raise UsageError("associative_scan: xs must be a nest of at least one tensor, and of tensors only")
    axes = [normalize_axis(dim, x.ndim, "associative_scan") for x in leaves]
    moved = [x if axis == 0 else movedim(x, axis, 0) for x, axis in zip(leaves, axes, strict=True)]
    if len(distinct(type_of(x).shape[0] for x in moved)) != 1:
        facts = dict(zip(leaf_names(tree, "xs"), leaves, strict=True))
        raise ShapeError("associative_scan: all tensors of xs must have the same extent along dim", facts)
    if not type_of(moved[0]).shape[0]:
        raise UsageError("associative_scan: xs has no slices along dim")

    def pair(a: Leaves, b: Leaves) -> Leaves:
        found, found_tree = flatten(combine_fn(tree.unflatten(a), tree.unflatten(b)))
        check_same_tree("associative_scan: what combine_fn returns", found_tree, tree, "xs")
        for y, x, name in zip(found, a, leaf_names(tree, "xs"), strict=True):
            check_same_type(f"associative_scan: {name} of what combine_fn returns", y, x, "a slice")
        return found

    if reverse:
        moved = [flip(x, (0,)) for x in moved]
    scanned = _running(vmap(pair), moved)
    if reverse:
        scanned = [flip(x, (0,)) for x in scanned]
    placed = [x if axis == 0 else movedim(x, 0, axis) for x, axis in zip(scanned, axes, strict=True)]
    return tree.unflatten(placed)


def _running(combine: Combine, xs: Sequence[Tensor]) -> Leaves:
    """Pairs of neighbours first, then what runs over the pairs, then the elements between (Blelloch)."""
    count = type_of(xs[0]).shape[0]
    if count < 2:
        return list(xs)
    pairs = combine([x[: count - 1 : 2] for x in xs], [x[1::2] for x in xs])
    odd = _running(combine, pairs)
    even = [x[:1] for x in xs]
    if count > 2:
        between = combine([y[: (count - 1) // 2] for y in odd], [x[2::2] for x in xs])
        even = [cat((a, b)) for a, b in zip(even, between, strict=True)]
    return [_interleaved(a, b) for a, b in zip(even, odd, strict=True)]


def _interleaved(even: Tensor, odd: Tensor) -> Tensor:
    count = type_of(odd).shape[0]
    both = stack((even[:count], odd), 1).flatten(0, 1)
    return both if type_of(even).shape[0] == count else cat((both, even[count:]))
