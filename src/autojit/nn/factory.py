"""Keyword arguments that a layer hands on to the functions that make its tensors."""

from __future__ import annotations

from typing import Any

_KEYS = ("device", "dtype", "memory_format")


def factory_kwargs(kwargs: dict[str, Any] | None) -> dict[str, Any]:
    """``device``, ``dtype`` and ``memory_format`` of a layer's keyword arguments.

    A dict under ``factory_kwargs`` gives them where the layer has an argument of the same name.

    Raises:
        TypeError: another keyword, or one given twice.

    Example:
        >>> from autojit import nn
        >>> nn.factory_kwargs({"factory_kwargs": {"device": "cpu"}})
        {'device': 'cpu'}
    """
    if kwargs is None:
        return {}
    unknown = kwargs.keys() - {*_KEYS, "factory_kwargs"}
    if unknown:
        raise TypeError(f"unexpected kwargs {unknown}")
    found = dict(kwargs.get("factory_kwargs", {}))
    for key in _KEYS:
        if key in kwargs:
            if key in found:
                raise TypeError(f"{key} specified twice, in **kwargs and in factory_kwargs")
            found[key] = kwargs[key]
    return found
