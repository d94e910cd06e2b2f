"""Stand-ins for the libraries that the profiler talks to: the NVIDIA driver, NVTX, ITT, and a file of nvprof."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from autojit.cuda import driver, nvtx


class StubNvtx:
    """Notes what ranges are opened and closed."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.depths: list[int] = []
        self.open: list[str] = []
        self.marks: list[str] = []
        self.popped = 0

    def nvtxRangePushA(self, name: bytes) -> int:
        self.names.append(name.decode())
        self.depths.append(len(self.open))
        self.open.append(name.decode())
        return len(self.open) - 1

    def nvtxRangePop(self) -> int:
        self.open.pop()
        self.popped += 1
        return len(self.open)

    def nvtxMarkA(self, name: bytes) -> None:
        self.marks.append(name.decode())

    def nvtxRangeStartA(self, name: bytes) -> int:
        self.names.append(name.decode())
        return 17

    def nvtxRangeEnd(self, number: int) -> None:
        assert number == 17

    @property
    def is_balanced(self) -> bool:
        return not self.open and self.popped == len(self.names)


class StubDriver:
    """A driver with one device whose clock is the host's."""

    def __init__(self, devices: int = 1) -> None:
        self.devices = devices
        self.calls: list[str] = []
        self.marks: dict[int, int] = {}
        self.events = 0

    def cuInit(self, flags: int) -> int:
        return 0 if self.devices else 100  # CUDA_ERROR_NO_DEVICE

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = self.devices
        return 0

    def cuDeviceGet(self, device: Any, number: int) -> int:
        return 0 if number < self.devices else 101

    def cuDevicePrimaryCtxRetain(self, context: Any, device: Any) -> int:
        context._obj.value = 1
        return 0

    def cuCtxSetCurrent(self, context: Any) -> int:
        return 0

    def cuCtxSynchronize(self) -> int:
        self.calls.append("cuCtxSynchronize")
        return 0

    def cuEventCreate(self, event: Any, flags: int) -> int:
        self.events += 1
        event._obj.value = self.events
        return 0

    def cuEventRecord(self, event: Any, stream: Any) -> int:
        self.marks[event.value] = time.perf_counter_ns()
        return 0

    def cuEventElapsedTime(self, elapsed_ms: Any, start: Any, end: Any) -> int:
        elapsed_ms._obj.value = (self.marks[end.value] - self.marks[start.value]) / 1e6
        return 0

    def cuEventDestroy_v2(self, event: Any) -> int:
        self.events -= 1
        return 0

    def cuProfilerStart(self) -> int:
        self.calls.append("cuProfilerStart")
        return 0

    def cuProfilerStop(self) -> int:
        self.calls.append("cuProfilerStop")
        return 0


@contextmanager
def stub_nvtx() -> Iterator[StubNvtx]:
    """NVTX is a stub inside."""
    stub = StubNvtx()
    before = nvtx.set_library(stub)
    try:
        yield stub
    finally:
        nvtx.set_library(before)


@contextmanager
def stub_driver(devices: int = 1) -> Iterator[StubDriver]:
    """The NVIDIA driver is a stub inside."""
    stub = StubDriver(devices)
    before = driver.set_library(stub)
    try:
        yield stub
    finally:
        driver.set_library(before)


def write_nvprof(path: Path, ranges: list[tuple[str, int, int]], kernels: list[tuple[str, int, int, int, int]]) -> None:
    """A file as nvprof writes it.

    Args:
        ranges: (text, start, end) in nanoseconds; an end of 0 leaves the range open.
        kernels: (name, start and end of the call that launched it, start and end on the device).
    """
    texts = list(dict.fromkeys([*(r[0] for r in ranges), *(k[0] for k in kernels)]))
    ids = {text: number for number, text in enumerate(texts, 1)}
    with closing(sqlite3.connect(path)) as base, base:
        base.execute("CREATE TABLE StringTable (_id_ INTEGER PRIMARY KEY, value TEXT)")
        base.executemany("INSERT INTO StringTable VALUES (?, ?)", [(n, t) for t, n in ids.items()])
        base.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_MARKER "
            "(_id_ INTEGER PRIMARY KEY, flags INT, timestamp INT, id INT, objectKind INT, name INT)"
        )
        for number, (text, start, end) in enumerate(ranges, 1):
            insert = (
                "INSERT INTO CUPTI_ACTIVITY_KIND_MARKER (flags, timestamp, id, objectKind, name) VALUES (?,?,?,?,?)"
            )
            base.execute(insert, (2, start, number, 2, ids[text]))
            if end:
                base.execute(insert, (4, end, number, 2, 0))
        base.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME "
            "(_id_ INTEGER PRIMARY KEY, cbid INT, start INT, end INT, correlationId INT)"
        )
        base.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL "
            "(_id_ INTEGER PRIMARY KEY, start INT, end INT, correlationId INT, name INT)"
        )
        for number, (name, call_start, call_end, start, end) in enumerate(kernels, 1):
            base.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME (cbid, start, end, correlationId) VALUES (211, ?, ?, ?)",
                (call_start, call_end, number),
            )
            base.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL (start, end, correlationId, name) VALUES (?,?,?,?)",
                (start, end, number, ids[name]),
            )
