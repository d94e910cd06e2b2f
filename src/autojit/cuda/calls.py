"""Calls of torch.cuda that programs make whether or not there is a device, and those that need one.

Without a device the former do nothing or count nothing; the latter raise, as torch does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from autojit.core.errors import DeviceError

__all__ = [
    "Event", "NoCudaError", "Stream", "current_device", "current_stream", "device", "empty_cache", "get_arch_list",
    "get_device_capability", "get_device_name", "get_device_properties", "get_rng_state", "get_rng_state_all", "init",
    "initial_seed", "ipc_collect", "is_bf16_supported", "is_initialized", "manual_seed", "manual_seed_all",
    "max_memory_allocated", "max_memory_reserved", "mem_get_info", "memory_allocated", "memory_reserved",
    "memory_summary", "reset_peak_memory_stats", "seed", "seed_all", "set_device", "set_rng_state",
    "set_rng_state_all", "synchronize",
]  # fmt: skip


class NoCudaError(DeviceError, AssertionError):
    """A call needs a CUDA device that tensors can be placed on."""


def _absent(name: str) -> NoReturn:
    raise NoCudaError(
        f"cuda.{name}: autojit computes on the CPU only, so there is no CUDA device",
        fix="ask cuda.is_available() first",
    )


def manual_seed(seed: int) -> None:
    """Seed the generator of the device, if there is one.

    Example:
        >>> import autojit as aj
        >>> aj.cuda.manual_seed_all(0)
    """
    int(seed)


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all devices, of which there may be none."""
    int(seed)


def seed() -> None:
    """Seed the generator of the device unpredictably, if there is one."""


def seed_all() -> None:
    """Seed the generators of all devices unpredictably."""


def empty_cache() -> None:
    """Give memory of the device back that is not used: none is."""


def memory_allocated(device: Any = None) -> int:
    """The bytes that tensors take on the device: 0 without one."""
    return 0


max_memory_allocated = memory_reserved = max_memory_reserved = memory_allocated


def is_initialized() -> bool:
    """Whether the device was used yet."""
    return False


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the device computes in bfloat16."""
    return False


def get_arch_list() -> list[str]:
    """The kinds of device that kernels are built for."""
    return []


def get_rng_state_all() -> list[Any]:
    """The states of all devices' generators."""
    return []


def set_rng_state_all(new_states: Any) -> None:
    """Continue all devices' generators from states."""
    if list(new_states):
        _absent("set_rng_state_all")


class device:
    """A block in which a device is the current one; -1, and a device that is not there, change nothing."""

    def __init__(self, device: Any) -> None:
        self.idx = device

    def __enter__(self) -> None:
        """Nothing to switch."""

    def __exit__(self, *error: object) -> None:
        """Nothing to switch back."""


class Stream:
    """A queue of work on the device, which must be there."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        _absent("Stream")


class Event:
    """A mark in a stream, which must be there."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        _absent("Event")


def _needing(name: str) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> NoReturn:
        _absent(name)

    call.__name__ = call.__qualname__ = name
    call.__code__ = call.__code__.replace(co_name=name, co_qualname=name)  # what errors show
    call.__doc__ = "Of a CUDA device; without one it raises."
    return call


synchronize = _needing("synchronize")
current_device = _needing("current_device")
current_stream = _needing("current_stream")
set_device = _needing("set_device")
get_device_name = _needing("get_device_name")
get_device_capability = _needing("get_device_capability")
get_device_properties = _needing("get_device_properties")
get_rng_state = _needing("get_rng_state")
set_rng_state = _needing("set_rng_state")
initial_seed = _needing("initial_seed")
init = _needing("init")
ipc_collect = _needing("ipc_collect")
mem_get_info = _needing("mem_get_info")
memory_summary = _needing("memory_summary")
reset_peak_memory_stats = _needing("reset_peak_memory_stats")
