"""Which CUDA devices there are, what they are, and which one a thread uses where none is named.

Programs make some of these calls whether or not there is a device; without one those do nothing or count nothing. The
others raise `NoCudaError`, as torch raises there.
"""

from __future__ import annotations

from typing import Any, NoReturn

from autojit.core.device import Device, current_index, is_in_use, require_available, set_current_index, space_at
from autojit.core.device import device as parsed
from autojit.core.device import is_available as _is_available
from autojit.core.errors import ArgumentError, DeviceError
from autojit.core.records import record
from autojit.runtime.gpu import devices as found_devices
from autojit.runtime.gpu.devices import KNOWN_ARCHITECTURES, CudaDevice, cuda_device

__all__ = [
    "NoCudaError", "can_device_access_peer", "current_device", "device", "device_count", "device_of", "get_arch_list",
    "get_device_capability", "get_device_name", "get_device_properties", "init", "ipc_collect", "is_available",
    "is_bf16_supported", "is_initialized", "set_device", "synchronize",
]  # fmt: skip

_ANY = Device("cuda")


class NoCudaError(DeviceError, AssertionError):
    """A call needs a CUDA device that tensors can be placed on."""


def is_available() -> bool:
    """Whether tensors can be placed on a CUDA device: there is one, or an emulated one (``AUTOJIT_CUDA=emulate``).

    Example:
        >>> import autojit as aj
        >>> device = "cuda" if aj.cuda.is_available() else "cpu"
    """
    return _is_available("cuda")


def device_count() -> int:
    """How many CUDA devices tensors can be placed on."""
    return found_devices.device_count() if is_available() else 0


def is_initialized() -> bool:
    """Whether a device was used yet."""
    return is_in_use("cuda")


def init() -> None:
    """Begin to use the device, which its first tensor does as well.

    Raises:
        NoCudaError: there is none.
    """
    gpu_of(None, "init")


def require(name: str) -> None:
    """Raise unless there is a device.

    Raises:
        NoCudaError: there is none; it says what is missing.
    """
    try:
        require_available(_ANY)
    except DeviceError as error:
        _refuse(name, error)


def _refuse(name: str, error: DeviceError) -> NoReturn:
    missing = str(error).partition("\n")[0].partition(": ")[2]
    raise NoCudaError(f"cuda.{name}: there is no CUDA device: {missing}", fix="ask cuda.is_available() first") from None


def ordinal_of(place: Any) -> int:
    """The ordinal of a CUDA device given as such, by number or by name; None: the thread's current one.

    Raises:
        ValueError: it is no CUDA device.
    """
    if place is None:
        return current_index("cuda")
    chosen = parsed(place)
    if chosen.type != "cuda":
        raise ArgumentError(f"Expected a cuda device, but got: {chosen}")
    return current_index("cuda") if chosen.index is None else chosen.index


def gpu_of(place: Any, name: str) -> CudaDevice:
    """The device as the runtime uses it, which is in use from now on.

    Raises:
        NoCudaError: there is no CUDA device at all.
        DeviceError: there is none with this ordinal.
    """
    require(name)
    chosen = require_available(Device("cuda", ordinal_of(place)))
    space_at(chosen)
    return cuda_device(chosen.index or 0)


def current_device() -> int:
    """The ordinal of the thread's current device.

    Raises:
        NoCudaError: there is none.
    """
    require("current_device")
    return current_index("cuda")


def set_device(device: Any) -> None:
    """Let the thread's tensors on ``"cuda"`` be on this device; negative ordinals change nothing.

    Raises:
        NoCudaError: there is none.
        DeviceError: there is none with this ordinal.
    """
    if isinstance(device, int) and device < 0:
        return
    gpu_of(device, "set_device")
    set_current_index("cuda", ordinal_of(device))


class device:
    """A block in which a device is the current one; -1 and None change nothing, nor does anything without a device.

    Example:
        >>> import autojit as aj
        >>> with aj.cuda.device(0):
        ...     where = aj.cuda.current_device() if aj.cuda.is_available() else None
    """

    def __init__(self, device: Any) -> None:
        self.idx = -1 if device is None else device if isinstance(device, int) else ordinal_of(device)
        self._before = -1

    def __enter__(self) -> None:
        if self.idx >= 0 and is_available():
            self._before = current_index("cuda")
            set_device(self.idx)

    def __exit__(self, *error: object) -> None:
        if self._before >= 0:
            set_current_index("cuda", self._before)


class device_of(device):
    """A block in which the device of a tensor is the current one; tensors on the CPU change nothing."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.get_device() if obj.is_cuda else -1)


@record
class CudaDeviceProperties:
    """What a device is, under torch's names."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    shared_memory_per_block_optin: int
    is_emulated: bool
    warp_size: int = 32

    def __repr__(self) -> str:
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory >> 20}MB, multi_processor_count={self.multi_processor_count})"
        )


def get_device_properties(device: Any = None) -> CudaDeviceProperties:
    """Name, compute capability, memory and processors of a device.

    Raises:
        NoCudaError: there is none.
    """
    found = gpu_of(device, "get_device_properties").properties
    return CudaDeviceProperties(
        found.name, *found.capability, found.memory_bytes, found.processors, found.shared_bytes, found.is_emulated
    )


def get_device_name(device: Any = None) -> str:
    """The name of a device.

    Raises:
        NoCudaError: there is none.
    """
    return gpu_of(device, "get_device_name").properties.name


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The compute capability of a device, major and minor number.

    Raises:
        NoCudaError: there is none.
    """
    return gpu_of(device, "get_device_capability").properties.capability


def get_arch_list() -> list[str]:
    """The kinds of device that kernels are generated for."""
    return [f"sm_{number}" for number in KNOWN_ARCHITECTURES] if is_available() else []


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the device computes in bfloat16; older ones than 8.0 do so by conversions."""
    return is_available() and (including_emulation or get_device_capability() >= (8, 0))


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """Whether one device reads another's memory: autojit copies between them through the host."""
    gpu_of(device, "can_device_access_peer")
    return False


def synchronize(device: Any = None) -> None:
    """Wait until the device has done all that it was told.

    Raises:
        NoCudaError: there is none.
        DeviceError: something that it did failed.
    """
    gpu_of(device, "synchronize").synchronize_all()


def ipc_collect() -> None:
    """Free memory that other processes no longer use: none is shared.

    Raises:
        NoCudaError: there is no device.
    """
    require("ipc_collect")
