"""The emulated device as a driver: memory, code that is kept, queues, counters, and functions for native code."""

from __future__ import annotations

import ctypes
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from autojit.core.errors import ArgumentError, CompileError, DeviceError, OutOfMemoryError
from autojit.runtime.gpu.driver import NATIVE_FUNCTIONS, Driver, KernelNode
from autojit.runtime.gpu.emulator.driver import EmulatedDriver
from autojit.runtime.gpu.emulator.findings import EmulatedFault
from autojit.runtime.gpu.structs import KernelNodeParams
from tests.runtime.gpu.emulator.emulation import MIB, Words, entry, start

TWO = ".param .u64 p0, .param .u64 p1"
DOUBLE = """
    mov.u32 %r1, %tid.x; mul.wide.u32 %rd1, %r1, 4; ld.param.u64 %rd2, [p0]; ld.param.u64 %rd3, [p1];
    add.s64 %rd4, %rd2, %rd1; add.s64 %rd5, %rd3, %rd1;
    ld.global.b32 %r2, [%rd4]; add.u32 %r2, %r2, %r2; st.global.b32 [%rd5], %r2;
"""


@pytest.fixture
def driver() -> Iterator[EmulatedDriver]:
    made = EmulatedDriver(memory_bytes=MIB, pinned_bytes=MIB)
    yield made
    made.close()


def kernel(driver: EmulatedDriver) -> int:
    return driver.function(driver.load(driver.assemble(entry(DOUBLE, TWO), "sm_90")), "kernel")


def address_of(array: np.ndarray) -> int:
    return int(array.ctypes.data)


def test_it_is_a_driver(driver: EmulatedDriver) -> None:
    made: Driver = driver
    assert made.is_emulated and made.count() == 1 and made.context(0) == 0
    known = made.properties(0)
    assert (known.name, known.architecture, known.capability) == ("emulated sm_90", "sm_90", (9, 0))
    assert known.is_emulated and known.memory_bytes == MIB
    for call in (made.properties, made.use):
        with pytest.raises(DeviceError, match="one emulated device"):
            call(1)


def test_bytes_come_back_as_they_went(driver: EmulatedDriver) -> None:
    for size in (0, 1, 3, 100, 4096):
        values = np.frombuffer(np.random.default_rng(size).bytes(size), "u1").copy()
        found, first, second = np.zeros(size, "u1"), driver.allocate(size), driver.allocate(size)
        driver.copy_in(first, address_of(values), size, 0)
        driver.copy_within(second, first, size, 0)
        driver.copy_out(address_of(found), second, size, 0)
        np.testing.assert_array_equal(found, values)
        driver.fill(first, 7, size, 0)
        driver.copy_out(address_of(found), first, size, 0)
        assert (found == 7).all()


def test_blocks_are_aligned_apart_and_counted(driver: EmulatedDriver) -> None:
    sizes = [1, 100, 256, 257, 5000]
    addresses = [driver.allocate(size) for size in sizes]
    assert all(address % 256 == 0 for address in addresses)
    ordered = sorted(zip(addresses, sizes))
    assert all(first + size + 256 <= second for (first, size), (second, _) in itertools.pairwise(ordered))
    used = sum(-(-size // 256) * 256 for size in sizes)
    assert driver.free_and_total() == (MIB - used, MIB)
    for address in addresses:
        driver.release(address)
    assert driver.free_and_total() == (MIB, MIB)


def test_memory_is_as_much_as_it_says_and_can_be_used_again(driver: EmulatedDriver) -> None:
    for _ in range(50):
        blocks = [driver.allocate(MIB // 4) for _ in range(4)]
        with pytest.raises(MemoryError, match="out of memory"):
            driver.allocate(1)
        with pytest.raises(OutOfMemoryError):
            driver.allocate(2 * MIB)
        for block in blocks:
            driver.write(block, np.ones(10, "u4"))
            driver.release(block)


def test_random_blocks_keep_their_bytes(driver: EmulatedDriver) -> None:
    chance = np.random.default_rng(0)
    held: dict[int, np.ndarray] = {}
    for _ in range(2000):
        if held and (chance.random() < 0.5 or driver.free_and_total()[0] < 40000):
            address = int(chance.choice(list(held)))
            values = held.pop(address)
            np.testing.assert_array_equal(driver.read(address, "u1", values.shape), values)
            driver.release(address)
        else:
            values = np.frombuffer(chance.bytes(int(chance.integers(1, 9000))), "u1")
            address = driver.allocate(len(values))
            assert address not in held
            driver.write(address, values)
            held[address] = values
    for address, values in held.items():
        np.testing.assert_array_equal(driver.read(address, "u1", values.shape), values)


def test_fresh_memory_counts_as_unwritten_though_it_was_used_before(driver: EmulatedDriver) -> None:
    function = kernel(driver)
    for _ in range(10):
        first, second = driver.allocate(MIB // 4), driver.allocate(128)
        with pytest.raises(EmulatedFault, match="uninitialised read"):
            start(driver, function, first, second)
        driver.write(first, np.zeros(MIB // 16, "u4"))
        start(driver, function, first, second)
        driver.release(first)
        driver.release(second)


def test_copies_are_held_to_their_blocks(driver: EmulatedDriver) -> None:
    block, host = driver.allocate(100), np.zeros(200, "u1")
    calls = [
        lambda: driver.copy_in(block, address_of(host), 101, 0),
        lambda: driver.copy_in(block + 100, address_of(host), 1, 0),
        lambda: driver.copy_out(address_of(host), block - 1, 1, 0),
        lambda: driver.copy_within(block, block + 50, 51, 0),
        lambda: driver.copy_within(block, 4096, 4, 0),
        lambda: driver.fill(block, 0, 101, 0),
        lambda: driver.copy_in(block, block, 10, 0),
        lambda: driver.copy_out(block, block, 10, 0),
        lambda: driver.copy_in(address_of(host), address_of(host), 10, 0),
    ]
    for call in calls:
        with pytest.raises(EmulatedFault, match="out of bounds"):
            call()
    driver.release(block)
    with pytest.raises(EmulatedFault, match="use after release"):
        driver.fill(block, 0, 4, 0)
    for release in (block, block + 1, 0):
        with pytest.raises(ArgumentError, match="no block begins"):
            driver.release(release)


def test_the_host_cannot_touch_the_device_s_memory() -> None:
    child = (
        "import ctypes\n"
        "from autojit.runtime.gpu.emulator.driver import EmulatedDriver\n"
        "driver = EmulatedDriver(memory_bytes=1 << 20, pinned_bytes=1 << 16)\n"
        "pinned = driver.allocate_pinned(8)\n"
        "ctypes.memset(pinned, 1, 8)\n"
        "assert driver.read(pinned, 'u1', (8,)).sum() == 8\n"
        "print('pinned', flush=True)\n"
        "print(ctypes.string_at(driver.allocate(8), 8))\n"
    )
    done = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout) == (-11, "pinned\n"), done.stderr


def test_kernels_reach_pinned_memory(driver: EmulatedDriver) -> None:
    place = driver.allocate_pinned(256)
    words = np.ctypeslib.as_array((ctypes.c_uint32 * 64).from_address(place))
    words[:] = np.arange(64)
    start(driver, kernel(driver), place, place + 128)
    np.testing.assert_array_equal(words[32:], 2 * np.arange(32))
    device = driver.allocate(128)
    driver.copy_in(device, place, 128, 0)
    driver.copy_out(place + 128, device, 128, 0)
    np.testing.assert_array_equal(words[32:], np.arange(32))
    driver.release_pinned(place)


def test_code_is_bytes_that_another_driver_takes(driver: EmulatedDriver) -> None:
    code = driver.assemble(entry(DOUBLE, TWO), "sm_90")
    assert isinstance(code, bytes)
    other = EmulatedDriver(memory_bytes=MIB, pinned_bytes=MIB)
    source, target = other.allocate(128), other.allocate(128)
    other.write(source, np.arange(32, dtype="u4"))
    start(other, other.function(other.load(code), "kernel"), source, target)
    np.testing.assert_array_equal(other.read(target, "u4", (32,)), 2 * np.arange(32))
    other.close()
    with pytest.raises(ArgumentError, match="no code"):
        driver.load(b"\x7fELF")
    with pytest.raises(CompileError):
        driver.assemble("this is no PTX", "sm_90")
    with pytest.raises(ArgumentError, match="no such kernel"):
        driver.function(driver.load(code), "another")


def test_launches_that_no_device_takes_are_refused(driver: EmulatedDriver) -> None:
    function = kernel(driver)
    words = Words(driver.allocate(128), driver.allocate(128))
    for blocks, threads in (
        ((0, 1, 1), 32),
        ((1, 1, 1), 0),
        ((1, 1, 1), 1025),
        ((1, 70000, 1), 32),
        ((1, 1, 70000), 32),
    ):
        with pytest.raises(DeviceError, match="launch"):
            driver.launch(function, blocks, threads, words.address, 0)
    limited = entry(DOUBLE, TWO).replace("p1)\n{", "p1)\n.maxntid 64\n{")
    small = driver.function(driver.load(driver.assemble(limited, "sm_90")), "kernel")
    with pytest.raises(DeviceError, match="launch"):
        driver.launch(small, (1, 1, 1), 65, words.address, 0)
    large = entry(DOUBLE, TWO, f".shared .align 16 .b8 tile[{256 << 10}];")
    with pytest.raises(DeviceError, match="launch"):
        driver.launch(
            driver.function(driver.load(driver.assemble(large, "sm_90")), "kernel"), (1, 1, 1), 32, words.address, 0
        )


def test_queues_and_marks_answer(driver: EmulatedDriver) -> None:
    stream, event = driver.make_stream(), driver.make_event(True)
    driver.record(event, stream)
    driver.wait_for_event(0, event)
    driver.synchronize_event(event)
    driver.synchronize(stream)
    assert driver.is_idle(stream) and driver.is_reached(event)
    assert driver.counts["waits"] == 2
    with pytest.raises(DeviceError, match="no times"):
        driver.elapsed_ms(event, event)
    driver.destroy_event(event)
    driver.destroy_stream(stream)
    with pytest.raises(ArgumentError, match="stream"):
        driver.synchronize(stream)
    with pytest.raises(ArgumentError, match="event"):
        driver.is_reached(event)


def test_calls_are_counted(driver: EmulatedDriver) -> None:
    function, host = kernel(driver), np.arange(32, dtype="u4")
    source, target = driver.allocate(128), driver.allocate(128)
    driver.copy_in(source, address_of(host), 128, 0)
    for _ in range(3):
        start(driver, function, source, target)
    driver.copy_out(address_of(host), target, 128, 0)
    driver.copy_within(source, target, 128, 0)
    driver.fill(source, 0, 4, 0)
    names = (
        "launches",
        "copies in",
        "copies out",
        "copies within",
        "fills",
        "assemblies",
        "allocations",
        "graph launches",
    )
    assert [driver.counts[name] for name in names] == [3, 1, 1, 1, 1, 1, 2, 0]


def doubled_on(driver: EmulatedDriver, function: int, number: int) -> bool:
    """Whether a kernel is right, on memory of its own."""
    source, target = driver.allocate(128), driver.allocate(128)
    driver.write(source, np.full(32, number, "u4"))
    start(driver, function, source, target)
    found = driver.read(target, "u4", (32,))
    driver.release(source)
    driver.release(target)
    return bool((found == 2 * number).all())


def test_threads_may_use_one_device(driver: EmulatedDriver) -> None:
    function = kernel(driver)
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda number: doubled_on(driver, function, number), range(100)))
    assert driver.free_and_total() == (MIB, MIB)


def test_a_forked_child_has_a_device_of_its_own(driver: EmulatedDriver) -> None:
    function, pinned = kernel(driver), driver.allocate_pinned(4)
    ctypes.memset(pinned, 1, 4)
    child = os.fork()
    if child == 0:
        ctypes.memset(pinned, 2, 4)
        os._exit(0 if doubled_on(driver, function, 21) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert driver.read(pinned, "u1", (4,)).tolist() == [1, 1, 1, 1]
    assert doubled_on(driver, function, 4)


# -- functions for native code


def native(driver: EmulatedDriver, name: str, *types: type) -> ctypes._FuncPointer:
    return ctypes.CFUNCTYPE(ctypes.c_int, *types)(driver.native(name))


ADDRESS, WORD, SIZE = ctypes.c_uint64, ctypes.c_uint32, ctypes.c_size_t


def test_every_function_that_plans_call_is_there(driver: EmulatedDriver) -> None:
    addresses = [driver.native(name) for name in NATIVE_FUNCTIONS]
    assert all(addresses) and len(set(addresses)) == len(addresses)
    assert driver.native("cuLaunchKernel") == driver.native("cuLaunchKernel")
    with pytest.raises(DeviceError, match="no such function"):
        driver.native("cuNoSuchThing")


def test_native_code_copies_launches_and_waits(driver: EmulatedDriver) -> None:
    source, target, copy = (driver.allocate(128) for _ in range(3))
    host, found = np.arange(32, dtype="u4"), np.zeros(32, "u4")
    words = Words(source, target)
    launch = native(driver, "cuLaunchKernel", ADDRESS, *[WORD] * 7, *[ADDRESS] * 3)
    transfer = [
        native(driver, f"cuMemcpy{way}Async_v2", ADDRESS, ADDRESS, SIZE, ADDRESS) for way in ("HtoD", "DtoH", "DtoD")
    ]
    fill = native(driver, "cuMemsetD8Async", ADDRESS, ctypes.c_ubyte, SIZE, ADDRESS)
    wait = native(driver, "cuStreamSynchronize", ADDRESS)
    assert native(driver, "cuCtxSetCurrent", ADDRESS)(0) == 0
    assert transfer[0](source, address_of(host), 128, 0) == 0
    assert launch(kernel(driver), 1, 1, 1, 32, 1, 1, 0, 0, words.address, 0) == 0
    assert transfer[2](copy, target, 128, 0) == 0
    assert fill(target, 0, 128, 0) == 0
    assert transfer[1](address_of(found), copy, 128, 0) == 0
    assert wait(0) == 0
    np.testing.assert_array_equal(found, 2 * host)
    assert driver.take_failure() is None
    assert driver.counts["launches"] == 1 and driver.counts["waits"] == 1


def test_native_code_updates_and_launches_graphs(driver: EmulatedDriver) -> None:
    function = kernel(driver)
    source, first, second = (driver.allocate(128) for _ in range(3))
    driver.write(source, np.arange(32, dtype="u4"))
    before, now = Words(source, first), Words(source, second)
    graph = driver.make_graph([KernelNode(function, (1, 1, 1), 32, before.address)])
    assert ctypes.sizeof(KernelNodeParams) == 72
    given = KernelNodeParams(function, 1, 1, 1, 32, 1, 1, 0, now.address, 0, 0, 0)
    pointer = ctypes.POINTER(KernelNodeParams)
    update = native(driver, "cuGraphExecKernelNodeSetParams_v2", ADDRESS, ADDRESS, pointer)
    assert update(graph.number, graph.nodes[0], ctypes.byref(given)) == 0
    assert native(driver, "cuGraphLaunch", ADDRESS, ADDRESS)(graph.number, 0) == 0
    np.testing.assert_array_equal(driver.read(second, "u4", (32,)), 2 * np.arange(32))
    assert driver.counts["node updates"] == driver.counts["graph launches"] == 1


@pytest.mark.parametrize(
    ("offset", "code", "kind"),
    [(4096 * 16, 700, "out of bounds"), (2, 716, "misaligned"), (0, 719, "uninitialised read")],
)
def test_native_code_gets_the_driver_s_codes_and_the_reason_is_kept(
    driver: EmulatedDriver, offset: int, code: int, kind: str
) -> None:
    source, target = driver.allocate(256), driver.allocate(256)
    launch = native(driver, "cuLaunchKernel", ADDRESS, *[WORD] * 7, *[ADDRESS] * 3)
    words = Words(source + offset, target)
    assert launch(kernel(driver), 1, 1, 1, 32, 1, 1, 0, 0, words.address, 0) == code
    failure = driver.take_failure()
    assert isinstance(failure, EmulatedFault) and failure.kind == kind
    assert driver.take_failure() is None
    assert launch(999, 1, 1, 1, 32, 1, 1, 0, 0, words.address, 0) == 1
    assert native(driver, "cuStreamSynchronize", ADDRESS)(12345) == 1
    assert isinstance(driver.take_failure(), ArgumentError)
