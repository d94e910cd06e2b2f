"""Work in several streams: the order that events and waits make is kept, and one that is missing is found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from itertools import pairwise

import numpy as np
import pytest

import autojit as aj
from autojit.runtime.gpu.emulator.driver import EmulatedDriver
from autojit.runtime.gpu.emulator.findings import EmulatedFault
from tests.emulated import emulated_cuda, fresh_driver

pytestmark = pytest.mark.skipif(aj.cuda.is_available(), reason="a device of its own")
Order = Callable[[aj.cuda.Stream, aj.cuda.Stream], None]


@pytest.fixture
def driver() -> Iterator[EmulatedDriver]:
    with emulated_cuda(driver=fresh_driver()) as found:
        yield found


def by_event(first: aj.cuda.Stream, second: aj.cuda.Stream) -> None:
    event = aj.cuda.Event()
    event.record(first)
    second.wait_event(event)


ORDERS: dict[str, Order] = {
    "wait_stream": lambda first, second: second.wait_stream(first),
    "event": by_event,
    "event waits": lambda first, second: first.record_event().wait(second),
    "event is waited for": lambda first, second: first.record_event().synchronize(),
    "event is asked": lambda first, second: first.record_event().query() and None,
    "stream is waited for": lambda first, second: first.synchronize(),
    "stream is asked": lambda first, second: first.query() and None,
    "device is waited for": lambda first, second: aj.cuda.synchronize(),
    "value is read": lambda first, second: _read_in(first),
}
NOT_ORDERS: dict[str, Order] = {
    "nothing": lambda first, second: None,
    "the other way": lambda first, second: first.wait_stream(second),
    "another stream is waited for": lambda first, second: second.synchronize(),
    "an event before the work": lambda first, second: second.wait_event(aj.cuda.Event()),
}


def _read_in(stream: aj.cuda.Stream) -> None:
    with aj.cuda.stream(stream):
        aj.ones(1, device="cuda").item()


def products(driver: EmulatedDriver, order: Order, step: Callable[[aj.Tensor], aj.Tensor]) -> aj.Tensor:
    """What is made in one stream and read in another."""
    first, second = aj.cuda.Stream(), aj.cuda.Stream()
    with aj.cuda.stream(first):
        x = aj.arange(8.0, device="cuda").exp()
    order(first, second)
    with aj.cuda.stream(second):
        return step(x).cpu()


@pytest.mark.parametrize("is_compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", ORDERS)
def test_ordered_work_is_right(driver: EmulatedDriver, name: str, is_compiled: bool) -> None:
    def step(x: aj.Tensor) -> aj.Tensor:
        return x + x

    step = aj.jit(step) if is_compiled else step
    np.testing.assert_allclose(products(driver, ORDERS[name], step), 2 * np.exp(np.arange(8.0)), rtol=1e-6)


@pytest.mark.parametrize("name", NOT_ORDERS)
def test_a_missing_wait_is_found(driver: EmulatedDriver, name: str) -> None:
    with pytest.raises(EmulatedFault, match="missing wait") as caught:
        products(driver, NOT_ORDERS[name], lambda x: x + x)
    assert "wait_stream" in str(caught.value)


def test_a_compiled_step_is_found_too(driver: EmulatedDriver) -> None:
    """In its first calls and later; and its own memory is its own in any stream."""
    step = aj.jit(lambda x: (x.softmax(1) @ x).sum(0))
    home, side = aj.cuda.current_stream(), aj.cuda.Stream()
    x = aj.ones(4, 4, device="cuda")
    expected = step(x).cpu().numpy()
    for _ in range(3):
        side.wait_stream(home)
        with aj.cuda.stream(side):
            found = step(x)
        np.testing.assert_array_equal(step(x).cpu().numpy(), expected)  # it waits for the step's own memory
        home.wait_stream(side)
        np.testing.assert_array_equal(found.cpu().numpy(), expected)
    side.wait_stream(home)
    with aj.cuda.stream(side):
        step(x)
    home.wait_stream(side)
    x.neg_()
    with aj.cuda.stream(side), _missing():
        step(x)


def _missing() -> AbstractContextManager[object]:
    return pytest.raises(EmulatedFault, match="missing wait")


def test_readers_need_not_wait_for_readers_and_parts_are_apart(driver: EmulatedDriver) -> None:
    x = aj.arange(8.0, device="cuda")
    streams = [aj.cuda.Stream() for _ in range(2)]
    for stream in streams:
        stream.wait_stream(aj.cuda.current_stream())
    for stream in streams:
        with aj.cuda.stream(stream):
            assert x.sum().item() == 28
    aj.cuda.synchronize()
    halves = x.chunk(2)
    for half, stream in zip(halves, streams, strict=True):
        with aj.cuda.stream(stream):
            half.mul_(2)
    with _missing():
        x.sum()


def test_order_is_transitive(driver: EmulatedDriver) -> None:
    streams = [aj.cuda.Stream() for _ in range(4)]
    x = aj.ones(4, device="cuda")
    streams[0].wait_stream(aj.cuda.current_stream())
    for before, stream in pairwise(streams):
        with aj.cuda.stream(before):
            x.mul_(2)
        stream.wait_stream(before)
    with aj.cuda.stream(streams[-1]):
        assert x.sum().item() == 32


def test_recorded_memory_is_kept_for_the_other_stream(driver: EmulatedDriver) -> None:
    side = aj.cuda.Stream()
    x = aj.ones(1000, device="cuda")
    x.record_stream(side)
    side.wait_stream(aj.cuda.current_stream())
    with aj.cuda.stream(side):
        y = x * 2
    del x
    side.synchronize()
    assert y.sum().item() == 2000


def test_one_stream_writes_nothing_down(driver: EmulatedDriver) -> None:
    (aj.ones(4, device="cuda") * 2).sum()
    assert not driver.streams.is_watching


@pytest.mark.parametrize("is_compiled", [False, True], ids=["eager", "compiled"])
def test_a_block_moves_the_work_of_its_thread_alone(driver: EmulatedDriver, is_compiled: bool) -> None:
    """Work of another thread stays in the device's own stream: so nothing orders it with the block's."""
    step = aj.jit(lambda x: x.exp()) if is_compiled else lambda x: x.exp()
    x, home, side = aj.ones(8, device="cuda"), aj.cuda.current_stream(), aj.cuda.Stream()
    step(x)
    side.wait_stream(home)
    with ThreadPoolExecutor(1) as other, aj.cuda.stream(side):
        assert other.submit(aj.cuda.current_stream).result() == home != aj.cuda.current_stream()
        y = other.submit(step, x).result()
        with _missing():
            y.neg()
        side.wait_stream(home)
        np.testing.assert_allclose((y + 0).cpu(), np.exp(np.ones(8)), rtol=1e-6)
