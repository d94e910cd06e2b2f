"""Making a batch of a list of items."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import autojit as aj
from autojit.tensor import Tensor

FunctionsOfTypes = Mapping[Any, Callable[..., Any]]


np_str_obj_array_pattern = re.compile(r"[SaUO]")
"""What dtypes of arrays of texts and objects begin with, under torch's name, which readers of files import."""


def default_convert(data: Any) -> Any:
    """NumPy's and other libraries' arrays become tensors, inside containers too; everything else stays."""
    if isinstance(data, Tensor):
        return data
    if hasattr(type(data), "__dlpack__") and not isinstance(data, np.ndarray):
        return aj.as_tensor(data)
    if isinstance(data, np.ndarray | np.generic) and data.dtype.kind not in "SU":
        return aj.as_tensor(data)
    if isinstance(data, Mapping):
        return {key: default_convert(value) for key, value in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(default_convert(value) for value in data))
    if isinstance(data, tuple | list):
        return [default_convert(value) for value in data]
    return data


def default_collate(batch: Sequence[Any]) -> Any:
    """A batch of items: tensors are stacked, numbers become tensors, containers are collated entry by entry.

    Raises:
        TypeError: items of a type that has no batch form.
        RuntimeError: sequences of different lengths.
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)


def collate(batch: Sequence[Any], *, collate_fn_map: FunctionsOfTypes | None = None) -> Any:
    """A batch of items by a function for each type: ``default_collate`` with types of your own.

    Args:
        collate_fn_map: by type (or tuple of types) of an item, ``function(items, *, collate_fn_map)``; what has none
            is a container of other items, or an error. `default_collate_fn_map` is a map to begin with.

    Raises:
        TypeError: items of a type that has no batch form.
        RuntimeError: sequences of different lengths.

    Example:
        >>> from autojit.utils.data._utils.collate import collate, default_collate_fn_map
        >>> functions = {**default_collate_fn_map, set: lambda sets, **options: set.union(*sets)}
        >>> collate([("a", {1}), ("b", {2})], collate_fn_map=functions)
        [('a', 'b'), {1, 2}]
    """
    first, functions = batch[0], collate_fn_map or {}
    for kind, function in [(type(first), functions.get(type(first))), *functions.items()]:
        if function is not None and isinstance(first, kind):
            return function(batch, collate_fn_map=collate_fn_map)
    if hasattr(type(first), "__dlpack__") and not isinstance(first, np.ndarray | Tensor):  # of torch, of JAX
        return aj.stack([aj.as_tensor(item) for item in batch])
    if isinstance(first, Mapping):
        return {key: collate([item[key] for item in batch], collate_fn_map=collate_fn_map) for key in first}
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        each = zip(*batch, strict=True)
        return type(first)(*(collate(items, collate_fn_map=collate_fn_map) for items in each))
    if isinstance(first, Sequence):
        if any(len(item) != len(first) for item in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        return [collate(items, collate_fn_map=collate_fn_map) for items in zip(*batch, strict=True)]
    raise TypeError(_unfit(type(first)))


def _unfit(kind: type) -> str:
    return f"default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {kind}"


def collate_tensor_fn(batch: Sequence[Any], *, collate_fn_map: FunctionsOfTypes | None = None) -> Tensor:
    """Tensors, stacked."""
    return aj.stack(list(batch))


def collate_numpy_array_fn(batch: Sequence[Any], *, collate_fn_map: FunctionsOfTypes | None = None) -> Tensor:
    """NumPy's arrays and numbers, stacked.

    Raises:
        TypeError: they are of texts or objects.
    """
    first = batch[0]
    if first.dtype.kind in "SUO":
        raise TypeError(_unfit(type(first)))
    return aj.as_tensor(np.stack([np.asarray(item) for item in batch]))


collate_numpy_scalar_fn = collate_numpy_array_fn


def collate_float_fn(batch: Sequence[Any], *, collate_fn_map: FunctionsOfTypes | None = None) -> Tensor:
    """Python's floats, as float64."""
    return aj.tensor(batch, dtype=aj.float64)


def collate_int_fn(batch: Sequence[Any], *, collate_fn_map: FunctionsOfTypes | None = None) -> Tensor:
    """Python's ints and bools."""
    return aj.tensor(batch)


def collate_str_fn(batch: Sequence[Any], *, collate_fn_map: FunctionsOfTypes | None = None) -> Sequence[Any]:
    """Texts stay as they are."""
    return batch


default_collate_fn_map: dict[Any, Callable[..., Any]] = {
    Tensor: collate_tensor_fn,
    str: collate_str_fn,  # NumPy's, too
    bytes: collate_str_fn,
    np.ndarray: collate_numpy_array_fn,
    np.generic: collate_numpy_scalar_fn,
    float: collate_float_fn,
    int: collate_int_fn,
}
"""What `default_collate` does with items of a type."""
