"""``__array_namespace_info__``: what the standard's inspection functions tell."""

from __future__ import annotations

from typing import Any

from autojit.array_api.promotion import DTYPES, isdtype
from autojit.core.device import CPU, Device
from autojit.core.dtypes import DType, default_dtype, int64


class NamespaceInfo:
    """Capabilities, devices and dtypes of the namespace."""

    def capabilities(self) -> dict[str, Any]:
        """Which optional parts there are."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Device:
        """Where arrays are made."""
        return CPU

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        """The dtypes of numbers without one."""
        real = default_dtype()
        return {"real floating": real, "complex floating": real.to_complex(), "integral": int64, "indexing": int64}

    def devices(self) -> list[Device]:
        """Where arrays can be."""
        return [CPU]

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, DType]:
        """The dtypes by name, all or of a kind."""
        return {name: dtype for name, dtype in DTYPES.items() if kind is None or isdtype(dtype, kind)}


def __array_namespace_info__() -> NamespaceInfo:
    """The namespace's capabilities, devices and dtypes."""
    return NamespaceInfo()
