"""Lists of tensors sorted for functions of lists, under torch's private path, which optimisers of others use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["_group_tensors_by_device_and_dtype"]


def _group_tensors_by_device_and_dtype(
    tensorlistlist: Sequence[Sequence[Any]], with_indices: bool = False
) -> dict[tuple[Any, Any], tuple[list[list[Any]], list[int]]]:
    """Lists of equal length by the device and dtype of the first list's tensors: of each group its part of every list.

    Args:
        with_indices: the second of each pair is at which positions they were; else empty.

    Example:
        >>> import autojit as aj
        >>> from autojit.utils._foreach_utils import _group_tensors_by_device_and_dtype
        >>> groups = _group_tensors_by_device_and_dtype([[aj.ones(1), aj.arange(2), aj.zeros(1)]], with_indices=True)
        >>> [(str(dtype), indices) for (_, dtype), (_, indices) in groups.items()]
        [('autojit.float32', [0, 2]), ('autojit.int64', [1])]
    """
    groups: dict[tuple[Any, Any], tuple[list[list[Any]], list[int]]] = {}
    for position, tensor in enumerate(tensorlistlist[0]):
        lists, indices = groups.setdefault((tensor.device, tensor.dtype), ([[] for _ in tensorlistlist], []))
        for chosen, given in zip(lists, tensorlistlist, strict=True):
            chosen.append(given[position])
        if with_indices:
            indices.append(position)
    return groups
