"""Which vector registers eager kernels and compiled steps are made for."""

from __future__ import annotations

import platform

from autojit.backend import host_backend

__all__ = ["get_cpu_capability"]


def get_cpu_capability() -> str:
    """``"AVX512"``, ``"AVX2"`` or ``"DEFAULT"``, by torch's words.

    Example:
        >>> import autojit as aj
        >>> aj.backends.cpu.get_cpu_capability() in ("AVX512", "AVX2", "DEFAULT")
        True
    """
    if platform.machine() not in ("x86_64", "AMD64"):
        return "DEFAULT"
    return {64: "AVX512", 32: "AVX2"}.get(host_backend().target().vector_bytes, "DEFAULT")
