"""vmap: a function of single elements, applied to whole batches at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autojit.core.sizes import distinct
from autojit.core.top_level import top_level
from autojit.core.wrapping import own, wraps
from autojit.dispatch.batch_layer import BatchLayer
from autojit.func.arguments import spread
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
            elements, or a nest of these like the arguments. Keyword arguments are the same for all elements.
        out_dims: where to put it in the results: an integer, None for what is the same for all elements (which need not
            be a tensor), or a nest of these like the results.
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

    out_leaves = flatten(out_dims)[0]
    if not all(axis is None or isinstance(axis, int) for axis in out_leaves):
        raise ValueError(
            f"vmap({_name(func)}, out_dims={out_dims}): `out_dims` must be an int, None or a python collection of ints"
        )

    @wraps(func)
    def batched(*args: Any, **kwargs: Any) -> Any:
        leaves, tree = flatten(args)
        axes = _axes(f"vmap({_name(func)}, in_dims={in_dims})", in_dims, leaves, tree)
        size = _size_of(leaves, axes)
        fronted = [x if axis in (None, 0) else x.movedim(axis, 0) for x, axis in zip(leaves, axes, strict=True)]
        if chunk_size is None or chunk_size >= size:
            given = tree.unflatten(_elements(layer := BatchLayer(size, randomness), fronted, axes))
            return _at_once(func, out_dims, layer, given, kwargs)
        parts = []
        for start in range(0, size, chunk_size):
            layer = BatchLayer(min(chunk_size, size - start), randomness)
            cut = [x if axis is None else x.narrow(0, start, layer.size) for x, axis in zip(fronted, axes, strict=True)]
            parts.append(flatten(_at_once(func, out_dims, layer, tree.unflatten(_elements(layer, cut, axes)), kwargs)))
        columns = zip(*(results for results, _ in parts), strict=True)
        joined = zip(columns, _out_axes(func, out_dims, *parts[0]), strict=True)
        return parts[0][1].unflatten([found[0] if axis is None else cat(list(found), axis) for found, axis in joined])

    return batched


def _size_of(leaves: list[Any], axes: list[int | None]) -> int:
    """The length that all batch axes have."""
    sizes = [type_of(x).shape[axis] for x, axis in zip(leaves, axes, strict=True) if axis is not None]
    if not sizes:
        raise ValueError(
            "vmap: Expected at least one Tensor to vmap over: at least one argument must have a batch axis"
        )
    known = distinct(sizes)
    if len(known) > 1:
        raise ValueError(
            "vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
            f"{sizes} for the mapped dimension"
        )
    return known.pop()


def _elements(layer: BatchLayer, leaves: list[Any], axes: list[int | None]) -> list[Any]:
    """The arguments inside the batch, of whole ones whose batch axis is the first."""
    return [x if axis is None else layer.element(x) for x, axis in zip(leaves, axes, strict=True)]


def _at_once(func: Function, out_dims: Any, layer: BatchLayer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The function of one batch."""
    with with_layers((*state.layers, layer)):
        found = func(*args, **kwargs)
    results, tree = flatten(found)
    axes = _out_axes(func, out_dims, results, tree)
    whole = [_result(func, layer, y, axis) for y, axis in zip(results, axes, strict=True)]
    layer.close()
    return tree.unflatten(whole)


def _name(func: Function) -> str:
    return str(own(func, "__name__", type(func).__name__))


def _axes(transform: str, in_dims: Any, leaves: list[Any], tree: TreeSpec) -> list[int | None]:
    """Per leaf of the arguments the non-negative batch axis, or None."""
    if not leaves:
        raise ValueError(f"{transform}: got no inputs. The function must have an argument that is batched")
    if not isinstance(in_dims, int | tuple | list) and in_dims is not None:
        raise ValueError(f"{transform}: expected `in_dims` to be int or a tuple that matches the structure of inputs")
    found = spread(tuple(in_dims) if isinstance(in_dims, list) else in_dims, tree)
    if found is None:
        raise ValueError(f"{transform}: in_dims is not compatible with the structure of `inputs`, which is {tree}")
    return [_checked(transform, axis, x) for axis, x in zip(found, leaves, strict=True)]


def _checked(transform: str, axis: Any, x: Any) -> int | None:
    if axis is None:
        return None
    if not isinstance(axis, int):
        raise ValueError(f"{transform}: Got in_dim={axis} for an input but in_dim must be either an integer or None")
    if not isinstance(x, Tensor):
        raise ValueError(
            f"{transform}: Got in_dim={axis} for an input but the input is of type {type(x).__name__}: use None as the "
            "respective in_dim"
        )
    ndim = type_of(x).ndim
    if not -ndim <= axis < ndim:
        raise ValueError(
            f"{transform}: Got in_dim={axis} for some input, but that input is a Tensor of dimensionality {ndim} so "
            f"expected in_dim to satisfy -{ndim} <= in_dim < {ndim}"
        )
    return axis % ndim


def _out_axes(func: Function, out_dims: Any, results: list[Any], tree: TreeSpec) -> list[Any]:
    """Per result where its batch axis goes; a single result may have its axis in a tuple."""
    is_single = tree.kind is None and isinstance(out_dims, tuple) and len(out_dims) == 1
    axes = spread(out_dims[0] if is_single else out_dims, tree)
    if axes is None:
        raise ValueError(
            f"vmap({_name(func)}, out_dims={out_dims}): out_dims is not compatible with the structure of `outputs`, "
            f"which are {len(results)}: {tree}"
        )
    return axes


def _result(func: Function, layer: BatchLayer, y: Any, axis: Any) -> Any:
    if axis is None:
        if isinstance(y, Tensor) and layer.full(y) is not None:
            raise ValueError(
                f"vmap({_name(func)}): the function can not return a BatchedTensor when out_dim is None: a result that "
                "differs along the batch needs an integer in out_dims"
            )
        return y
    if not isinstance(y, Tensor):
        raise ValueError(
            f"vmap({_name(func)}): the function must only return Tensors, got type {type(y)}. Did you mean to set "
            "out_dims= to None for output?"
        )
    full = layer.repeated(y)
    return full if axis == 0 else full.movedim(0, axis)
