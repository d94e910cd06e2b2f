"""The CPU as a device module, with the names that such modules share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from autojit import amp
from autojit.core.device import device as _parsed
from autojit.core.device import require_available

__all__ = [
    "Stream", "amp", "current_device", "current_stream", "device_count", "is_available", "is_initialized", "set_device",
    "stream", "synchronize",
]  # fmt: skip


class Stream:
    """The one order in which the CPU works."""

    def __init__(self, priority: int = -1) -> None:
        self.priority = priority

    def wait_stream(self, stream: Any) -> None:
        """Nothing: whatever was called before is done."""


_STREAM = Stream()


def is_available() -> bool:
    """True."""
    return True


def is_initialized() -> bool:
    """True."""
    return True


def device_count() -> int:
    """One.

    Example:
        >>> import autojit as aj
        >>> aj.cpu.device_count()
        1
    """
    return 1


def current_device() -> str:
    """The name of the device."""
    return "cpu"


def set_device(device: Any) -> None:
    """Nothing; there is one.

    Raises:
        RuntimeError: the device is not the CPU.
    """
    if require_available(_parsed(device)).type != "cpu":
        raise RuntimeError(f"cpu.set_device: {device} is not the CPU")


def synchronize(device: Any = None) -> None:
    """Nothing: calls return when their work is done."""


def current_stream(device: Any = None) -> Stream:
    """The stream."""
    return _STREAM


@contextmanager
def stream(stream: Stream | None) -> Iterator[None]:
    """A block in which work is done, as everywhere, in the order of the calls."""
    yield
