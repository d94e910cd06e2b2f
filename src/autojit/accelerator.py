"""The device besides the CPU that tensors can be placed on, whatever its kind (torch.accelerator)."""

from __future__ import annotations

from autojit import cuda
from autojit.core.device import Device
from autojit.core.device import device as _device
from autojit.core.errors import DeviceError as _DeviceError


def is_available() -> bool:
    """Whether tensors can be placed on another device than the CPU.

    Example:
        >>> import autojit as aj
        >>> device = aj.accelerator.current_accelerator() if aj.accelerator.is_available() else "cpu"
    """
    return cuda.is_available()


def device_count() -> int:
    """How many such devices there are."""
    return cuda.device_count()


def current_accelerator(check_available: bool = False) -> Device | None:
    """The kind of device, without an ordinal; None where there is none."""
    return _device("cuda") if cuda.is_available() else None


def current_device_index() -> int:
    """The ordinal of the device that is used where none is named.

    Raises:
        DeviceError: there is no such device.
    """
    _require()
    return cuda.current_device()


def set_device_index(device: object) -> None:
    """Use this device where none is named.

    Raises:
        DeviceError: there is no such device.
    """
    _require()
    cuda.set_device(device)


def current_stream(device: object = None) -> cuda.Stream:
    """The queue that work is put in.

    Raises:
        DeviceError: there is no such device.
    """
    _require()
    return cuda.current_stream(device)


def set_stream(stream: cuda.Stream) -> None:
    """Put work in another queue from now on.

    Raises:
        DeviceError: there is no such device.
    """
    _require()
    cuda.set_stream(stream)


def synchronize(device: object = None) -> None:
    """Wait until the device has done all that it was told.

    Raises:
        DeviceError: there is no such device.
    """
    _require()
    cuda.synchronize(device)


def _require() -> None:
    if not cuda.is_available():
        raise _DeviceError("Cannot access accelerator device when none is available; the CPU needs no such call.")


__all__ = [
    "current_accelerator", "current_device_index", "current_stream", "device_count", "is_available", "set_device_index",
    "set_stream", "synchronize",
]  # fmt: skip
