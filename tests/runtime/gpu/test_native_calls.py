"""What native code asks of NVIDIA's driver: which calls, how many, and what becomes of their errors."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from autojit.codegen.lowered import DeviceRun, Launch
from autojit.core.device import CPU
from autojit.core.errors import DeviceError
from autojit.ir.graph import Value
from autojit.runtime.failures import Failures
from autojit.runtime.gpu.channel import DeviceChannel, host_object
from autojit.runtime.gpu.devices import CudaDevice
from autojit.runtime.gpu.emulator.driver import EmulatedDriver
from autojit.runtime.gpu.libcuda import LibCuda
from autojit.runtime.gpu.order import Place
from autojit.runtime.gpu.plan import TransferPlan
from tests.runtime.gpu.fake_library import FakeLibrary
from tests.runtime.gpu.runs import CUDA, Memory, Step, value, weighted_sum

N = 16


@pytest.fixture(autouse=True)
def _every_kernel_is_launched_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs of many launches are what is tested here; of small kernels there would be one."""
    monkeypatch.setenv("AUTOJIT_CUDA", "apart")


class Bound:
    """A run of kernels on a driver whose kernels do nothing."""

    def __init__(self, limit: float | None = None, kernels: int = 5) -> None:
        self.library = FakeLibrary()
        self.device = CudaDevice(LibCuda(self.library), 0)
        self.x = value(N)
        others = [value(N) for _ in range(kernels)]
        address = self.device.driver.allocate(4 * N)
        places: dict[Value, Place] = {self.x: "argument"}
        work = [Launch(weighted_sum(N, [1.0], limit=limit), (y, self.x), f"kernel {k}") for k, y in enumerate(others)]
        self.step = Step(Memory(self.device, dict.fromkeys(others, address), places), DeviceRun(CUDA, tuple(work)))
        self.library.calls.clear()

    def call(self) -> list[str]:
        """The driver's functions that one call of the step calls."""
        self.library.calls.clear()
        self.step({self.x: 4096})
        return list(self.library.calls)


def test_a_step_is_two_calls_of_the_driver_from_the_third_time_on() -> None:
    bound = Bound()
    assert bound.call() == ["cuCtxSetCurrent", *["cuLaunchKernel"] * 6]
    assert "cuGraphInstantiateWithFlags" in bound.call()
    for _ in range(3):
        assert bound.call() == ["cuCtxSetCurrent", "cuGraphExecKernelNodeSetParams_v2", "cuGraphLaunch"]


def test_a_run_that_may_report_is_asked_until_it_has_told_or_is_done() -> None:
    """Nothing tells here, because the kernels do nothing: the queue is asked until it is empty."""
    bound = Bound(limit=1.0)
    assert bound.call() == ["cuCtxSetCurrent", *["cuLaunchKernel"] * 7, *["cuStreamQuery"] * 2]
    bound.call()
    expected = ["cuCtxSetCurrent", "cuGraphExecKernelNodeSetParams_v2", "cuGraphLaunch", "cuStreamQuery"]
    assert bound.call() == expected


def test_graphs_are_destroyed_when_they_are_old() -> None:
    bound = Bound()
    for _ in range(3):
        bound.call()
    bound.library.calls.clear()
    bound.step.plan.moved()
    assert [c for c in bound.library.calls if c != "cuCtxSetCurrent"] == [
        "cuStreamSynchronize", "cuGraphExecDestroy", "cuGraphDestroy",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("function", "calls_before"),
    [
        ("cuCtxSetCurrent", 0),
        ("cuLaunchKernel", 0),
        ("cuGraphAddKernelNode_v2", 1),
        ("cuGraphInstantiateWithFlags", 1),
        ("cuGraphExecKernelNodeSetParams_v2", 2),
        ("cuGraphLaunch", 2),
        ("cuStreamQuery", 2),
    ],
)
@pytest.mark.parametrize("result", [1, 700])
def test_an_error_of_the_driver_names_call_and_kernels_and_the_next_step_works(
    function: str, calls_before: int, result: int
) -> None:
    bound = Bound(limit=1.0)
    for _ in range(calls_before):
        bound.call()
    bound.library.failing[function] = result
    name = {1: "CUDA_ERROR_INVALID_VALUE", 700: "CUDA_ERROR_ILLEGAL_ADDRESS"}[result]
    for _ in range(2):
        with pytest.raises(DeviceError, match=rf"{function}[\s\S]*{name}") as told:
            bound.call()
        assert "kernel 0" in str(told.value) or "Graph" in function or function == "cuCtxSetCurrent"
        assert ("AUTOJIT_CUDA=emulate" in str(told.value)) == (result == 700)
    del bound.library.failing[function]
    bound.call()
    bound.call()
    assert bound.call()[-1] == "cuStreamQuery"


class Transfer:
    """A copy between host and device, as an entry of a plan does it."""

    def __init__(self, device: CudaDevice, body: str, target: Value, source: Value, places: dict[Value, int]) -> None:
        self.failures = Failures()
        self.channel = DeviceChannel(device, self.failures)
        self.plan = TransferPlan(Memory(device, places, {}), target, source, self.channel)
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        self.native = kind(host_object().address(body))

    def __call__(self) -> None:
        self.native(self.plan.address, 0, 0)
        self.failures.check()


def test_what_is_copied_to_the_device_and_back_is_the_same() -> None:
    driver = EmulatedDriver()
    device = CudaDevice(driver, 0)
    here, there = value(N, "f32", CPU), value(N)
    array, address = np.arange(N, dtype=np.float32), driver.allocate(4 * N)
    places = {here: array.ctypes.data, there: address}
    into, out = (
        Transfer(device, "aj_copy_in", there, here, places),
        Transfer(device, "aj_copy_out", here, there, places),
    )
    for _ in range(2):
        given = np.random.default_rng(0).normal(size=N).astype(np.float32)
        array[:] = given
        into()
        array[:] = 0
        out()
        np.testing.assert_array_equal(array, given)
    assert driver.counts["copies in"] == driver.counts["copies out"] == 2


@pytest.mark.parametrize("is_pinned", [False, True])
def test_only_a_copy_from_memory_that_the_driver_reads_later_is_waited_for(is_pinned: bool) -> None:
    library = FakeLibrary()
    device = CudaDevice(LibCuda(library), 0)
    here, there = value(N, "f32", CPU), value(N)
    array = np.arange(N, dtype=np.float32)
    source = device.driver.allocate_pinned(4 * N) if is_pinned else array.ctypes.data
    Transfer(device, "aj_copy_in", there, here, {here: source, there: device.driver.allocate(4 * N)})()
    assert library.calls.count("cuMemcpyHtoDAsync_v2") == 1
    assert library.calls.count("cuStreamSynchronize") == is_pinned


@pytest.mark.parametrize("body", ["aj_copy_in", "aj_copy_out"])
def test_a_copy_that_fails_is_an_error_and_the_next_works(body: str) -> None:
    library = FakeLibrary()
    device = CudaDevice(LibCuda(library), 0)
    here, there = value(N, "f32", CPU), value(N)
    array, address = np.arange(N, dtype=np.float32), device.driver.allocate(4 * N)
    ends = (there, here) if body == "aj_copy_in" else (here, there)
    transfer = Transfer(device, body, *ends, {here: array.ctypes.data, there: address})
    functions = ["cuMemcpyHtoDAsync_v2"] if body == "aj_copy_in" else ["cuMemcpyDtoHAsync_v2", "cuStreamSynchronize"]
    for function in functions:
        library.failing[function] = 719
        with pytest.raises(DeviceError, match=rf"a kernel failed[\s\S]*{function} reports it[\s\S]*719"):
            transfer()
        library.failing.clear()
        transfer()
