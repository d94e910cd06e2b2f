"""CUDA as far as autojit reaches it: is there a device to compute on, profiler control, NVTX ranges."""

from __future__ import annotations

from autojit.core.device import device as _device
from autojit.core.device import require_available as _require_available
from autojit.core.errors import DeviceError as _DeviceError
from autojit.cuda import amp, driver, nvtx, profiler
from autojit.cuda import calls as _calls
from autojit.cuda.calls import *


def is_available() -> bool:
    """Whether tensors can be placed on a CUDA device: there is one, and this build computes on it.

    Example:
        >>> import autojit as aj
        >>> device = "cuda" if aj.cuda.is_available() else "cpu"
    """
    try:
        _require_available(_device("cuda"))
    except _DeviceError:
        return False
    return driver.has_device()


def device_count() -> int:
    """How many CUDA devices tensors can be placed on."""
    return driver.count() if is_available() else 0


__all__ = ["amp", "device_count", "driver", "is_available", "nvtx", "profiler", *_calls.__all__]
