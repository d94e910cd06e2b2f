"""How much memory of a CUDA device is used; nothing, as long as the device was not used."""

from __future__ import annotations

from typing import Any

from autojit.core.errors import OutOfMemoryError
from autojit.cuda.devices import gpu_of, is_initialized
from autojit.runtime.gpu.memory import DeviceMemoryStats

__all__ = [
    "OutOfMemoryError", "empty_cache", "max_memory_allocated", "max_memory_reserved", "mem_get_info",
    "memory_allocated", "memory_reserved", "memory_stats", "memory_summary", "reset_max_memory_allocated",
    "reset_peak_memory_stats",
]  # fmt: skip


def _stats(device: Any) -> DeviceMemoryStats:
    if not is_initialized():
        return DeviceMemoryStats(0, 0, 0, 0)
    return gpu_of(device, "memory_stats").memory.stats()


def memory_allocated(device: Any = None) -> int:
    """The bytes that tensors and compiled steps have on the device.

    Example:
        >>> import autojit as aj
        >>> aj.cuda.memory_allocated() >= 0
        True
    """
    return _stats(device).allocated


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that they had at a time."""
    return _stats(device).most_allocated


def memory_reserved(device: Any = None) -> int:
    """The bytes that the driver has given, with those that are kept for the next tensors."""
    return _stats(device).reserved


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes that it had given at a time."""
    return _stats(device).most_reserved


def reset_peak_memory_stats(device: Any = None) -> None:
    """Count the most from now on.

    Raises:
        NoCudaError: there is no device.
    """
    gpu_of(device, "reset_peak_memory_stats").memory.forget_peaks()


reset_max_memory_allocated = reset_peak_memory_stats


def empty_cache() -> None:
    """Give memory of the device back that nothing uses, so that other programs have it."""
    if is_initialized():
        gpu_of(None, "empty_cache").memory.empty_cache()


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Bytes of the device's memory that are free, and all.

    Raises:
        NoCudaError: there is no device.
    """
    gpu = gpu_of(device, "mem_get_info")
    gpu.use()
    return gpu.driver.free_and_total()


def memory_stats(device: Any = None) -> dict[str, int]:
    """The counts by torch's names of them."""
    stats = _stats(device)
    return {
        "allocated_bytes.all.current": stats.allocated,
        "allocated_bytes.all.peak": stats.most_allocated,
        "reserved_bytes.all.current": stats.reserved,
        "reserved_bytes.all.peak": stats.most_reserved,
    }


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """The counts as a table.

    Raises:
        NoCudaError: there is no device.
    """
    gpu = gpu_of(device, "memory_summary")
    stats = gpu.memory.stats()
    rows = [
        ("Metric", "Cur Usage", "Peak Usage"),
        ("Allocated memory", _shown(stats.allocated), _shown(stats.most_allocated)),
        ("GPU reserved memory", _shown(stats.reserved), _shown(stats.most_reserved)),
    ]
    title = f"CUDA memory summary, device {gpu.number}: {gpu.properties.name}"
    return "\n".join([title, *(f"| {name:<22} | {now:>12} | {most:>12} |" for name, now, most in rows)])


def _shown(size_bytes: int) -> str:
    return f"{size_bytes} B" if size_bytes < 1 << 10 else f"{size_bytes / (1 << 20):.2f} MiB"
