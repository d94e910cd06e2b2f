"""Making a batch of a list of items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import autojit as aj
from autojit.tensor import Tensor


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
    first = batch[0]
    if isinstance(first, Tensor):
        return aj.stack(list(batch))
    if hasattr(type(first), "__dlpack__") and not isinstance(first, np.ndarray):  # of torch, of JAX
        return aj.stack([aj.as_tensor(item) for item in batch])
    if isinstance(first, str | bytes):  # NumPy's, too
        return batch
    if isinstance(first, np.ndarray | np.generic):
        if first.dtype.kind in "SUO":
            raise TypeError(_unfit(type(first)))
        return aj.as_tensor(np.stack([np.asarray(item) for item in batch]))
    if isinstance(first, float):
        return aj.tensor(batch, dtype=aj.float64)
    if isinstance(first, int):
        return aj.tensor(batch)
    if isinstance(first, Mapping):
        return {key: default_collate([item[key] for item in batch]) for key in first}
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(default_collate(items) for items in zip(*batch, strict=True)))
    if isinstance(first, Sequence):
        if any(len(item) != len(first) for item in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        return [default_collate(items) for items in zip(*batch, strict=True)]
    raise TypeError(_unfit(type(first)))


def _unfit(kind: type) -> str:
    return f"default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {kind}"
