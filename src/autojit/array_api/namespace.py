"""How a tensor says which namespace computes with it."""

from __future__ import annotations

from types import ModuleType

from autojit import array_api
from autojit.dispatch.declared import declared
from autojit.tensor import Tensor

_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")


@declared(function=False)
def __array_namespace__(self: Tensor, *, api_version: str | None = None) -> ModuleType:
    """The array API standard's namespace.

    Raises:
        ValueError: it has no such version.
    """
    if api_version is not None and api_version not in _VERSIONS:
        raise ValueError(f"the array API namespace is of version {_VERSIONS[-1]}, not {api_version!r}")
    return array_api
