"""Whether autojit computes on CUDA devices; switches of CUDA libraries: remembered, and without effect."""

from __future__ import annotations

from types import SimpleNamespace

from autojit import cuda

__all__ = [
    "enable_cudnn_sdp", "enable_flash_sdp", "enable_math_sdp", "enable_mem_efficient_sdp", "flash_sdp_enabled",
    "is_built", "math_sdp_enabled", "matmul", "mem_efficient_sdp_enabled",
]  # fmt: skip

matmul = SimpleNamespace(
    allow_tf32=False, allow_fp16_reduced_precision_reduction=True, allow_bf16_reduced_precision_reduction=True
)
"""Attributes that programs set; products are computed in the precision of their operands."""


def is_built() -> bool:
    """Whether CUDA devices can be used: every build compiles for them, and there is one, or an emulated one.

    Example:
        >>> import autojit as aj
        >>> aj.backends.cuda.matmul.allow_tf32 = True
        >>> aj.backends.cuda.is_built() == aj.cuda.is_available()
        True
    """
    return cuda.is_available()


def enable_flash_sdp(enabled: bool) -> None:
    """Nothing: attention is computed in one way, which the compiler fuses."""


enable_mem_efficient_sdp = enable_cudnn_sdp = enable_math_sdp = enable_flash_sdp


def flash_sdp_enabled() -> bool:
    """False: that kernel is NVIDIA's."""
    return False


mem_efficient_sdp_enabled = flash_sdp_enabled


def math_sdp_enabled() -> bool:
    """True: attention is computed as it is written."""
    return True
