"""torch.cuda.amp: ``autojit.amp`` for a CUDA device; off, with a warning, while there is none."""

from __future__ import annotations

from typing import Any

from autojit import amp
from autojit.amp.autocast_mode import custom_bwd as _custom_bwd
from autojit.amp.autocast_mode import custom_fwd as _custom_fwd
from autojit.core.dtypes import DType, float16

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]


class autocast(amp.autocast):
    """``amp.autocast("cuda", ..)``.

    Example:
        >>> import autojit as aj
        >>> with aj.cuda.amp.autocast(enabled=aj.cuda.is_available()):
        ...     y = aj.ones(2, 2) @ aj.ones(2, 2)
        >>> y.dtype
        autojit.float32
    """

    def __init__(self, enabled: bool = True, dtype: DType = float16, cache_enabled: bool = True) -> None:
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(amp.GradScaler):
    """``amp.GradScaler("cuda", ..)``."""

    def __init__(
        self,
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled)


def custom_fwd(fwd: Any = None, *, cast_inputs: DType | None = None) -> Any:
    """``amp.custom_fwd`` for CUDA."""
    return _custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)


def custom_bwd(bwd: Any) -> Any:
    """``amp.custom_bwd`` for CUDA."""
    return _custom_bwd(bwd, device_type="cuda")
