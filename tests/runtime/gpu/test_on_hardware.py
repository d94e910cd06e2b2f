"""What runs promise, on a GPU where ``-m gpu`` finds one, else on the emulated device."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from autojit.codegen.lowered import DeviceCopy, DeviceFill, DeviceRun, Launch, Offset
from autojit.core.device import CPU
from autojit.core.errors import CompileError
from autojit.runtime.gpu.devices import cuda_device
from autojit.runtime.gpu.memory import PinnedMemory
from tests.devices import wants_hardware
from tests.runtime.gpu.runs import CUDA, Memory, ReportedError, Step, scaled, value
from tests.runtime.gpu.test_plan import Checked, RandomRun, World

pytestmark = pytest.mark.gpu


@pytest.fixture
def world(request: pytest.FixtureRequest) -> World:
    return World(1, cuda_device(0) if wants_hardware(request.config) else None)


@pytest.mark.parametrize("kernels", [1, 2, 5, 9])
@pytest.mark.parametrize("joins", [False, True])
def test_launches_and_graphs_compute_the_same(
    world: World, kernels: int, joins: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOJIT_CUDA", "together" if joins else "apart")
    run = RandomRun(world, kernels, shares=kernels == 9)
    for _ in range(5):
        run.call()
    assert run.step.plan.stats.graph_launches == (4 if kernels > 1 and not joins else 0)


def test_calls_may_be_queued_without_waiting(world: World) -> None:
    """Every call reads its own number and argument, although the host's words are others by then."""
    xs, ys = ([world.fresh(4) for _ in range(20)] for _ in range(2))
    x, y, scalar = value(4), value(4), value(0, "f32", CPU)
    on_host = np.zeros(1, np.float32)
    memory = Memory(world.device, {scalar: on_host.ctypes.data}, {x: "argument", y: "result"})
    step = Step(memory, DeviceRun(CUDA, (Launch(scaled(4), (y, x, scalar), "scale"),) * 3))
    for k, (source, target) in enumerate(zip(xs, ys, strict=True)):
        on_host[:] = k
        step({x: source, y: target})
        on_host[:] = -1
    for k, (source, target) in enumerate(zip(xs, ys, strict=True)):
        np.testing.assert_array_equal(world.read(target, 4), world.read(source, 4) * np.float32(k))


def test_more_words_than_one_prologue_takes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOJIT_CUDA", "apart")
    if world.driver.is_emulated:
        pytest.skip("500 kernels take seconds there; test_plan has fewer with smaller prologues")
    xs, y = [value(4) for _ in range(500)], value(4)
    memory = Memory(world.device, {y: world.fresh(4)}, dict.fromkeys(xs, "argument"))
    step = Step(memory, DeviceRun(CUDA, tuple(DeviceCopy(y, x, 16) for x in xs)))
    for _ in range(3):
        address = world.fresh(4)
        step(dict.fromkeys(xs, address))
        np.testing.assert_array_equal(world.read(memory.fixed[y], 4), world.read(address, 4))
    assert step.plan.stats.launches == 502


def test_a_report_leaves_the_state_as_it_was(world: World) -> None:
    checked = Checked(world)
    for _ in range(3):
        checked.call()
        before = checked.now()
        with pytest.raises(ReportedError) as told:
            checked.call(position=17)
        assert told.value.args == (5, 1, 17)
        np.testing.assert_array_equal(checked.now(), before)


@pytest.mark.parametrize("offset", [0, 4, 8, 12, 16])
def test_bytes_are_copied_and_cleared_from_any_address(world: World, offset: int) -> None:
    a, b = value(300), value(300)
    memory = Memory(world.device, {a: world.fresh(300), b: world.fresh(300)}, {})
    Step(
        memory, DeviceRun(CUDA, (DeviceCopy(Offset(a, offset), Offset(b, 4), 1000), DeviceFill(Offset(b, offset), 52)))
    )()
    found, other = world.read(memory.fixed[a], 300), world.read(memory.fixed[b], 300)
    first = offset // 4
    assert (other[first : first + 13] == 0).all()
    np.testing.assert_array_equal(found[first + 20 : first + 250], other[21:251])


def test_pinned_memory_is_copied_as_it_was_when_the_call_returned(world: World) -> None:
    pinned = PinnedMemory(world.driver, 0, 64)
    words = np.ctypeslib.as_array((ctypes.c_float * 16).from_address(pinned.address))
    target = world.fresh(16)
    for k in range(10):
        words[:] = k
        world.driver.copy_in(target, pinned.address, 64, world.device.stream)
        words[:] = -1
        assert (world.read(target, 16) == k).all()


def test_the_compiler_says_what_it_rejects(world: World) -> None:
    world.device.use()
    with pytest.raises(CompileError):
        world.driver.assemble(".version 7.8\n.target sm_90\n.address_size 64\nnonsense", "sm_90")
