"""Whether autojit computes on CUDA devices; switches of CUDA libraries, most of them remembered and without effect."""

from __future__ import annotations

from autojit import cuda
from autojit.core.product_precision import may_round_operands, set_product_precision

__all__ = [
    "enable_cudnn_sdp", "enable_flash_sdp", "enable_math_sdp", "enable_mem_efficient_sdp", "flash_sdp_enabled",
    "is_built", "math_sdp_enabled", "matmul", "mem_efficient_sdp_enabled", "preferred_blas_library",
    "preferred_linalg_library",
]  # fmt: skip


class _ProductSettings:
    """How products on CUDA devices are computed. ``allow_tf32`` is the float32 matmul precision by another name."""

    def __init__(self) -> None:
        self.allow_fp16_reduced_precision_reduction = True  # without effect: sums of halves are float32
        self.allow_bf16_reduced_precision_reduction = True

    @property
    def allow_tf32(self) -> bool:
        """Whether operands of float32 may be rounded to 11 bits."""
        return may_round_operands()

    @allow_tf32.setter
    def allow_tf32(self, allowed: bool) -> None:
        set_product_precision("high" if allowed else "highest")


matmul = _ProductSettings()


def is_built() -> bool:
    """Whether CUDA devices can be used: every build compiles for them, and there is one, or an emulated one.

    Example:
        >>> import autojit as aj
        >>> aj.backends.cuda.matmul.allow_tf32 = True
        >>> aj.get_float32_matmul_precision()
        'high'
        >>> aj.backends.cuda.matmul.allow_tf32 = False
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


def preferred_linalg_library(backend: str | None = None) -> str:
    """``"default"``: no library is chosen among, since none is used; naming another is taken, and changes nothing."""
    return "default"


preferred_blas_library = preferred_linalg_library
