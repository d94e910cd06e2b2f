"""CUDA devices as places of tensors: they exist from when somebody asks for one and a driver has it."""

from __future__ import annotations

from autojit.core.device import register_device
from autojit.cuda.space import CudaSpace
from autojit.runtime.gpu.devices import device_count, require_driver
from autojit.tensor.state import meet_devices


def find() -> None:
    """Let devices of the kind ``cuda`` exist.

    Raises:
        DeviceError: there are none; it says what is missing.
    """
    require_driver()
    register_device("cuda", CudaSpace, device_count)
    meet_devices()
