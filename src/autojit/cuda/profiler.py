"""Start and stop an external profiler that watches this process (nsys, nvprof): see docs/profiler.md."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from autojit.cuda import driver


def start() -> None:
    """Let the profiler collect from now on (``--profile-from-start off``, ``--capture-range=cudaProfilerApi``).

    Raises:
        DeviceError: there is no NVIDIA driver or no device.
    """
    driver.use_primary_context()
    driver.call("cuProfilerStart")


def stop() -> None:
    """Let the profiler stop collecting.

    Raises:
        DeviceError: there is no NVIDIA driver or no device.
    """
    driver.call("cuProfilerStop")


@contextmanager
def profile() -> Iterator[None]:
    """The profiler collects inside the block.

    Raises:
        DeviceError: there is no NVIDIA driver or no device.
    """
    start()
    try:
        yield
    finally:
        stop()
