"""vmap: a function of single elements, applied to whole batches at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autojit.core.sizes import distinct
from autojit.core.top_level import top_level
from autojit.core.wrapping import own, wraps
from autojit.dispatch.batch_layer import BatchLayer
from autojit.functions.shape import cat
from autojit.jit.pytree import TreeSpec, flatten
from autojit.tensor import Tensor
from autojit.tensor.state import state, with_layers
from autojit.tensor.tensor import type_of

Function = Callable[..., Any]


@top_level
def vmap(
    func: Function, in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *, chunk_size: int | None = None
) -> Function:
    """The function of batches that applies ``func`` to every element along one axis of its arguments.

    Args:
        func: takes tensors without the batch axis (in any nest) and returns tensors.
        in_dims: where the batch axis is in each argument: an integer, None for an argument that is the same for all
            elements, or a nest of these like the arguments.
        out_dims: where to put it in the results: an integer, or one per result.
        randomness: what random ops in ``func`` do: draw the "same" numbers for all elements, "different" ones, or raise
            an "error".
        chunk_size: how many elements to compute at once, with less memory; all of them by default.

    Raises:
        ValueError: ``in_dims`` does not fit the arguments, or the batch axes have different lengths.
        RuntimeError: ``func`` draws random numbers and ``randomness`` is "error", or needs a tensor's single value.

    Example:
        >>> import autojit as aj
        >>> dot = aj.vmap(lambda x, y: x @ y, in_dims=(0, None))
        >>> dot(aj.tensor([[1.0, 2.0], [3.0, 4.0]]), aj.tensor([1.0, 10.0]))
        tensor([21., 43.])
    """
    if randomness not in ("error", "same", "different"):
        raise ValueError(f"vmap: randomness must be 'error', 'different' or 'same', got {randomness!r}")
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @wraps(func)
    def batched(*args: Any, **kwargs: Any) -> Any:
        leaves, tree = flatten((args, kwargs))
        axes = _axes(in_dims, args, tree)
        size = _size_of(func, in_dims, leaves, axes)
        fronted = [x if axis in (None, 0) else x.movedim(axis, 0) for x, axis in zip(leaves, axes, strict=True)]
        if chunk_size is None or chunk_size >= size:
            return _at_once(func, out_dims, BatchLayer(size, randomness), fronted, axes, tree)
        parts = []
        for start in range(0, size, chunk_size):
            layer = BatchLayer(min(chunk_size, size - start), randomness)
            cut = [x if axis is None else x.narrow(0, start, layer.size) for x, axis in zip(fronted, axes, strict=True)]
            parts.append(flatten(_at_once(func, out_dims, layer, cut, axes, tree)))
        columns = zip(*(results for results, _ in parts), strict=True)
        joined = zip(columns, _out_axes(out_dims, parts[0][0]), strict=True)
        return parts[0][1].unflatten([found[0] if axis is None else cat(list(found), axis) for found, axis in joined])

    return batched


def _size_of(func: Function, in_dims: Any, leaves: list[Any], axes: list[int | None]) -> int:
    """The length that all batch axes have."""
    sizes = distinct(type_of(x).shape[axis] for x, axis in zip(leaves, axes, strict=True) if axis is not None)
    if len(sizes) == 1:
        (size,) = sizes
        return size
    raise ValueError(
        f"vmap({_name(func)}, in_dims={in_dims}): Expected all tensors to have the same size in the mapped "
        f"dimension, got sizes {sorted(sizes)} for the mapped dimension"
        if sizes
        else f"vmap({_name(func)}, in_dims={in_dims}): at least one argument must have a batch axis"
    )


def _at_once(
    func: Function, out_dims: Any, layer: BatchLayer, leaves: list[Any], axes: list[int | None], tree: TreeSpec
) -> Any:
    """The function of one batch whose axis is the first one."""
    elements = [x if axis is None else layer.element(x) for x, axis in zip(leaves, axes, strict=True)]
    given, named = tree.unflatten(elements)
    with with_layers((*state.layers, layer)):
        found = func(*given, **named)
    results, result_tree = flatten(found)
    whole = [_result(layer, y, axis) for y, axis in zip(results, _out_axes(out_dims, results), strict=True)]
    layer.close()
    return result_tree.unflatten(whole)


def _name(func: Function) -> str:
    return str(own(func, "__name__", type(func).__name__))


def _axes(in_dims: Any, args: tuple[Any, ...], tree: TreeSpec) -> list[int | None]:
    """Per leaf the non-negative batch axis, or None; keyword arguments are batched along axis 0."""
    dims = in_dims if isinstance(in_dims, tuple | list) else (in_dims,) * len(args)
    if len(dims) != len(args):
        raise ValueError(f"vmap: in_dims={in_dims} has {len(dims)} entries for {len(args)} arguments")
    found: list[int | None] = []
    for dim, arg in zip(dims, args, strict=True):
        found += _axes_of(dim, arg)
    named = tree.children[1].count
    leaves = flatten(args)[0]
    checked = [_checked(axis, x) for axis, x in zip(found, leaves, strict=True)]
    return checked + [0] * named


def _axes_of(dim: Any, arg: Any) -> list[int | None]:
    leaves, tree = flatten(arg)
    if dim is None or isinstance(dim, int):
        return [dim if isinstance(x, Tensor) else None for x in leaves]
    inner, inner_tree = flatten(dim)
    if inner_tree != tree:
        raise ValueError(f"vmap: in_dims {dim} is not a nest like its argument")
    return list(inner)


def _checked(axis: Any, x: Any) -> int | None:
    if axis is None:
        return None
    if not isinstance(axis, int) or not isinstance(x, Tensor):
        raise ValueError(f"vmap: a batch axis must be an integer and belong to a Tensor, not {axis!r} for {x!r}")
    ndim = type_of(x).ndim
    if not -ndim <= axis < ndim:
        raise ValueError(f"vmap: batch axis {axis} is out of range for an argument with {ndim} dimensions")
    return axis % ndim


def _out_axes(out_dims: Any, results: list[Any]) -> list[Any]:
    if out_dims is None or isinstance(out_dims, int):
        return [out_dims] * len(results)
    axes = list(out_dims)
    if len(axes) != len(results):
        raise ValueError(f"vmap: out_dims={out_dims} has {len(axes)} entries for {len(results)} results")
    return axes


def _result(layer: BatchLayer, y: Any, axis: Any) -> Any:
    if not isinstance(y, Tensor):
        raise ValueError(f"vmap: the function must only return Tensors, got type {type(y).__name__} as a return")
    if axis is None:
        if layer.full(y) is not None:
            raise ValueError("vmap: a result that differs along the batch needs an integer in out_dims, not None")
        return y
    full = layer.repeated(y)
    return full if axis == 0 else full.movedim(0, axis)
