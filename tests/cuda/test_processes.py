"""Threads and processes that share a device; and thousands of calls that leave nothing behind."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import nn
from autojit.runtime.gpu.emulator.driver import EmulatedDriver
from tests.emulated import emulated_cuda, fresh_driver

pytestmark = pytest.mark.skipif(aj.cuda.is_available(), reason="a device of its own")


@pytest.fixture
def driver() -> Iterator[EmulatedDriver]:
    with emulated_cuda(driver=fresh_driver()) as found:
        yield found


def trained(seed: int) -> tuple[Any, nn.Linear]:
    """A compiled training step with a model of its own."""
    aj.manual_seed(seed)
    model = nn.Linear(6, 3).to("cuda")
    optimizer = aj.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    @aj.jit
    def step(x: aj.Tensor) -> aj.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step, model


def test_threads_have_steps_of_their_own_and_share_one(driver: EmulatedDriver) -> None:
    x = aj.linspace(-1, 1, 24, device="cuda").reshape(4, 6)
    expected = []
    for seed in range(2):
        step, _ = trained(seed)
        expected.append([step(x).item() for _ in range(8)])
    shared = aj.jit(lambda x: (x.tanh() * 2).sum(1))
    wanted = [(x * (k + 1)).tanh().mul(2).sum(1).cpu().numpy() for k in range(2)]
    steps = [trained(seed)[0] for seed in range(2)]
    errors: list[BaseException] = []

    def work(k: int) -> None:
        try:
            for value in expected[k]:
                assert steps[k](x).item() == value
                np.testing.assert_allclose(shared(x * (k + 1)).cpu().numpy(), wanted[k], rtol=1e-6)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert shared.stats()["captures"] == 1


def in_child(work: Callable[[], object]) -> str:
    """What a forked child says of something: the error's text, or "done"."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            work()
            os.write(writer, b"done")
        except BaseException as error:
            os.write(writer, f"{type(error).__mro__[-4].__name__} {error}".encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader, "rb") as said:
        return said.read().decode()


def test_a_forked_child_may_use_the_cpu_and_is_refused_the_device(driver: EmulatedDriver) -> None:
    step, model = trained(0)
    x = aj.ones(4, 6, device="cuda")
    for _ in range(3):
        step(x)
    refused: list[Callable[[], object]] = [
        lambda: aj.ones(2, device="cuda"), lambda: x + 1, x.cpu, lambda: step(x), aj.cuda.synchronize,
        lambda: model(x), lambda: aj.ones(2).cuda(),
    ]  # fmt: skip
    for work in refused:
        said = in_child(work)
        assert "Cannot re-initialize CUDA in forked subprocess" in said and "'spawn'" in said
    allowed: list[Callable[[], object]] = [
        lambda: aj.ones(2).sum().item(), lambda: aj.jit(lambda v: v * 2)(aj.ones(2)).tolist(),
        lambda: nn.Linear(2, 2)(aj.ones(2)).sum().backward(),
    ]  # fmt: skip
    assert [in_child(work) for work in allowed] == ["done"] * len(allowed)
    assert np.isfinite(step(x).item())  # the parent's device is as it was


def held(driver: EmulatedDriver) -> tuple[int, ...]:
    """What a process holds of the device: memory, streams and events, graphs, modules."""
    gc.collect()
    streams = driver.streams
    return (
        driver.memory.used_bytes, len(streams._known), len(streams._events), len(driver._graphs),
        len(driver._modules), len(driver._node_arguments),
    )  # fmt: skip


@pytest.mark.parametrize("calls", [60, pytest.param(100_000, marks=pytest.mark.slow)])
def test_calls_leave_nothing_behind(driver: EmulatedDriver, calls: int) -> None:
    step, _ = trained(0)
    side, event = aj.cuda.Stream(), aj.cuda.Event()

    def work(count: int) -> None:
        for number in range(count):
            x = aj.ones(4, 6, device="cuda")
            loss = step(x)
            if number % 10 == 0:
                side.wait_stream(aj.cuda.current_stream())
                with aj.cuda.stream(side):
                    (x + 1).record_stream(side)
                    event.record()
                side.synchronize()
                aj.from_dlpack(loss.detach()).item()

    work(20)
    before, memory = held(driver), resident_bytes()
    work(calls)
    assert held(driver) == before
    assert resident_bytes() - memory < 32 << 20
    assert step.stats()["captures"] == 1


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
