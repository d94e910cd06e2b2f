"""Devices of a stand-in for libcuda, whose memory is the host's: for what copies alone do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from autojit.core.device import forget_device
from autojit.cuda import streams
from autojit.runtime.gpu import devices
from autojit.runtime.gpu.libcuda import LibCuda
from autojit.tensor.state import meet_devices
from tests.runtime.gpu.fake_library import FakeLibrary


@contextmanager
def fake_devices(count: int = 2, memory_bytes: int = 1 << 30) -> Iterator[FakeLibrary]:
    """Inside, there are so many devices; what was there before is looked for again afterwards."""
    library = FakeLibrary(devices=count, memory_bytes=memory_bytes)
    forget_device("cuda")
    before = devices.set_driver(LibCuda(library))
    try:
        yield library
    finally:
        forget_device("cuda")
        streams._pools.clear()
        devices.set_driver(before)
        meet_devices()
