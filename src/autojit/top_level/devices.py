"""The device that new tensors are put on when none is given."""

from __future__ import annotations

from types import ModuleType

import autojit as aj
from autojit.core.device import Device, DeviceLike, default_device, device, require_available
from autojit.core.device import set_default_device as _set
from autojit.dispatch.declared import declared


@declared(method=False)
def get_default_device() -> Device:
    """The device of new tensors when none is given: that of the innermost ``with device(..)``, or the set one.

    Example:
        >>> import autojit as aj
        >>> aj.get_default_device()
        device(type='cpu')
    """
    return default_device()


@declared(method=False)
def set_default_device(device: DeviceLike) -> None:
    """Put new tensors on a device when none is given; None means the CPU.

    Raises:
        RuntimeError: there is no such device.

    Example:
        >>> import autojit as aj
        >>> aj.set_default_device("cpu")
    """
    _set(None if device is None else require_available(_parsed(device)))


_parsed = device


@declared(method=False)
def get_device_module(device: DeviceLike = None) -> ModuleType:
    """The module of a device's kind, such as ``autojit.cuda``.

    Raises:
        RuntimeError: there is no module for the kind.

    Example:
        >>> import autojit as aj
        >>> aj.get_device_module("cuda").__name__
        'autojit.cuda'
    """
    kind = default_device().type if device is None else _parsed(device).type
    found = getattr(aj, kind, None)
    if not isinstance(found, ModuleType):
        raise RuntimeError(f"Device '{kind}' does not have a corresponding module registered as 'autojit.{kind}'.")
    return found
