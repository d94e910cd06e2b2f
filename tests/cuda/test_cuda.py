"""autojit.cuda: what there is without a device, and the libraries behind stubs."""

from __future__ import annotations

from typing import Any

import pytest

import autojit as aj
from autojit.cuda import driver, nvtx
from autojit.runtime.gpu.devices import cuda_device
from tests.autograd.profiler_stubs import stub_driver, stub_nvtx
from tests.cuda.fake_devices import fake_devices


def test_a_device_that_tensors_cannot_be_placed_on_is_not_available() -> None:
    assert not aj.cuda.is_available()  # devices were looked for, and none was found
    with stub_driver(devices=2):
        assert driver.count() == 2 and driver.has_device()
        assert not aj.cuda.is_available() and aj.cuda.device_count() == 0
    with stub_driver(devices=0):
        assert not driver.has_device()


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOJIT_CUDA_LIBRARY", "/nowhere/libcuda.so")
    before = driver.set_library(None)
    try:
        assert driver.count() == 0
        with pytest.raises(RuntimeError, match=r"driver's library is not installed[\s\S]*/nowhere/libcuda.so"):
            aj.cuda.profiler.start()
    finally:
        driver.set_library(before)


def test_the_profiler_stops_after_an_error() -> None:
    with stub_driver() as stub:
        with pytest.raises(KeyError), aj.cuda.profiler.profile():
            raise KeyError
        assert stub.calls == ["cuProfilerStart", "cuProfilerStop"]


def test_an_error_of_the_driver_is_raised() -> None:
    with stub_driver() as stub:
        stub.cuProfilerStart = lambda: 201  # type: ignore[method-assign]
        with pytest.raises(RuntimeError, match=r"cuProfilerStart failed[\s\S]*201 CUDA_ERROR_INVALID_CONTEXT"):
            aj.cuda.profiler.start()


def test_events_measure_between_marks_and_are_freed() -> None:
    with stub_driver() as stub:
        clock = driver.EventClock()
        marks = [clock.mark() for _ in range(3000)]  # more than are made at once
        clock.wait()
        assert clock.elapsed_us(marks[0], marks[-1]) > 0
        clock.close()
        assert stub.events == 0


def test_events_are_marks_in_the_stream_that_work_goes_to() -> None:
    with stub_driver() as stub, fake_devices(count=1):
        streams: list[Any] = []
        stub.cuEventRecord = lambda event, stream: streams.append(stream) or 0  # type: ignore[method-assign]
        clock = driver.EventClock()
        clock.mark()
        aj.ones(3).to("cuda")
        clock.mark()
        with aj.cuda.stream(aj.cuda.Stream()):
            clock.mark()
        clock.close()
        assert streams[:2] == [None, cuda_device(0).stream] and len(set(streams)) == 3


def test_ranges_and_marks() -> None:
    with stub_nvtx() as stub:
        assert aj.cuda.nvtx.range_push("outer") == 0
        with nvtx.range("step {}", 3):
            nvtx.mark("now")
        assert nvtx.range_pop() == 0
        nvtx.range_end(nvtx.range_start("free"))
    assert stub.names == ["outer", "step 3", "free"] and stub.marks == ["now"] and not stub.open
