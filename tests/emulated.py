"""An emulated CUDA device for tests, in processes that have none otherwise."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from autojit.core.device import Device, forget_device, space_at
from autojit.runtime.gpu import devices
from autojit.runtime.gpu.emulator.driver import EmulatedDriver
from autojit.tensor.state import meet_devices


@cache
def emulated_driver(order: int | None = None) -> EmulatedDriver:
    """One device for all tests of a process, so that kernels are made once; ``order`` as it takes it."""
    return EmulatedDriver(order=order, memory_bytes=256 << 20, pinned_bytes=1 << 20)


def fresh_driver() -> EmulatedDriver:
    """A device that nobody else has, so that kernels are made for it again."""
    return EmulatedDriver(memory_bytes=8 << 20, pinned_bytes=1 << 20)


@contextmanager
def emulated_cuda(order: int | None = None, driver: EmulatedDriver | None = None) -> Iterator[EmulatedDriver]:
    """Inside, ``cuda:0`` exists: the one of all tests with this order of lanes, or a driver's."""
    driver = driver or emulated_driver(order)
    forget_device("cuda")
    before = devices.set_driver(driver)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it says once that it is emulated
            space_at(Device("cuda", 0))
        yield driver
    finally:
        driver.streams.forget()
        forget_device("cuda")
        devices.set_driver(before)
        meet_devices()
