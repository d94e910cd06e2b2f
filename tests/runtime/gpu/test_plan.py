"""Runs on an emulated device: kernel by kernel and as graphs, with memory that moves from call to call."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from autojit.codegen.cuda import prologue
from autojit.codegen.cuda.host_records import Channel, DriverCalls
from autojit.codegen.lowered import DeviceCopy, DeviceFill, DeviceRun, Launch, Offset, Scratch
from autojit.core.device import CPU
from autojit.core.errors import DeviceError
from autojit.core.sizes import named_size
from autojit.ir.graph import Value
from autojit.runtime.gpu import bodies, early, graphs, moving
from autojit.runtime.gpu.devices import CudaDevice
from autojit.runtime.gpu.emulator.driver import EmulatedDriver
from autojit.runtime.gpu.emulator.findings import EmulatedFault
from autojit.runtime.gpu.order import Access, Order, Place
from autojit.runtime.gpu.works import flat, items_of, with_report
from tests.runtime.gpu.runs import (
    CUDA,
    Memory,
    ReportedError,
    Step,
    block_sums,
    doubled,
    scaled,
    value,
    weighted_sum,
)

N = 70  # elements: more than a block, no multiple of anything
CALLS = 4


@pytest.fixture(autouse=True)
def _every_kernel_is_launched_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs of many launches are what is tested here; of small kernels there would be one (`test_joined_runs`)."""
    monkeypatch.setenv("AUTOJIT_CUDA", "apart")


class World:
    """A device with tensors on it, emulated unless it is given."""

    def __init__(self, order: int = 0, device: CudaDevice | None = None) -> None:
        self.device = device or CudaDevice(EmulatedDriver(order=order), 0)
        self.driver: Any = self.device.driver
        self.rng = np.random.default_rng(order)

    def fresh(self, n: int = N) -> int:
        """The address of random numbers."""
        self.device.use()
        address: int = self.driver.allocate(4 * n)
        self.write(address, self.rng.normal(size=n).astype(np.float32))
        return address

    def write(self, address: int, content: np.ndarray) -> None:
        self.driver.copy_in(address, content.ctypes.data, content.nbytes, self.device.stream)

    def read(self, address: int, n: int = N) -> np.ndarray:
        found = np.empty(n, np.float32)
        self.driver.copy_out(found.ctypes.data, address, found.nbytes, self.device.stream)
        if not self.driver.is_emulated:
            self.device.synchronize()
        return found


class RandomRun:
    """Kernels over a pool of buffers: what they do in the order of the program, and the same on the host."""

    def __init__(self, world: World, kernels: int, shares: bool = False) -> None:
        rng, self.world, self.shares = world.rng, world, shares
        self.values = [value(N) for _ in range(10)]
        kinds: list[Place] = [
            "own",
            "own",
            "own",
            "state",
            "state",
            "argument",
            "argument",
            "argument",
            "result",
            "result",
        ]
        self.places = dict(zip(self.values, kinds, strict=True))
        self.written: set[Value] = {v for v in self.values if self.places[v] in ("state", "argument")}
        self.acts: list[tuple[Value, list[Value], list[float]]] = []
        for _ in range(kernels):
            known = [v for v in self.values if v in self.written]
            sources = [known[int(rng.integers(len(known)))] for _ in range(int(rng.integers(1, 4)))]
            target = self.values[int(rng.integers(len(self.values)))]
            self.acts.append((target, sources, [float(w) for w in rng.normal(size=len(sources)).astype(np.float32)]))
            self.written.add(target)
        fixed = {v: world.fresh() for v in self.values if self.places[v] in ("own", "state")}
        self.memory = Memory(world.device, fixed, self.places)
        self.step = Step(self.memory, DeviceRun(CUDA, tuple(map(self._launch, self.acts))))

    def _launch(self, act: tuple[Value, list[Value], list[float]]) -> Launch:
        target, sources, weights = act
        role = "updates" if self.shares or target in sources else "writes"
        return Launch(weighted_sum(N, weights, role), (target, *sources), "sum")

    def call(self) -> None:
        """One call with memory of its own, compared with the host."""
        given = {v: self._place(v) for v in self.values if v not in self.memory.fixed}
        places = {**self.memory.fixed, **given}
        expected = {address: self.world.read(address) for address in places.values()}
        for target, sources, weights in self.acts:
            total = np.zeros(N, np.float32)
            for source, weight in zip(sources, weights, strict=True):
                total = total + expected[places[source]] * np.float32(weight)
            expected[places[target]] = total
        self.step(given)
        for address, content in expected.items():
            np.testing.assert_allclose(self.world.read(address), content, rtol=1e-4, atol=1e-4)

    def _place(self, v: Value) -> int:
        """Memory for a call: where arguments share it, that of a tensor that lives on, or of its own."""
        if not (self.shares and self.places[v] == "argument" and self.world.rng.random() < 0.7):
            return self.world.fresh()
        state = [v for v in self.values if self.places[v] == "state"]
        return self.memory.fixed[state[int(self.world.rng.integers(len(state)))]]


@pytest.mark.parametrize("seed", range(8))
def test_a_graph_in_any_order_computes_what_launches_do_wherever_arguments_are(seed: int) -> None:
    world = World(seed)
    run = RandomRun(world, kernels=int(world.rng.integers(3, 9)))
    for _ in range(CALLS):
        run.call()
    counts, kernels = world.driver.counts, len(run.acts)
    stats = run.step.plan.stats
    assert (stats.runs, stats.graph_launches, stats.instantiations) == (CALLS, CALLS - 1, 1)
    assert counts["instantiations"] == 1 and counts["graph launches"] == counts["node updates"] == CALLS - 1
    assert counts["launches"] == stats.launches == kernels + 1
    assert counts["waits"] == 0


@pytest.mark.parametrize("seed", range(8))
def test_arguments_may_be_each_other_or_what_lives_on(seed: int) -> None:
    run = RandomRun(World(seed), kernels=6, shares=True)
    for _ in range(CALLS):
        run.call()


@pytest.mark.parametrize("seed", range(3))
def test_an_edge_that_is_missing_is_found(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever it is: none of them is superfluous."""
    world = World(seed)
    run = RandomRun(world, kernels=5)
    addresses = {v: world.fresh() for v in run.values if v not in run.memory.fixed}
    memory = Memory(world.device, run.memory.fixed | addresses, {})  # what only may be the same memory is no fault
    launches = DeviceRun(CUDA, tuple(map(run._launch, run.acts)))
    edges = [(k, j) for k, before in enumerate(_edges(Step(memory, launches))) for j in before]
    assert edges
    for edge in edges:
        for module in (bodies, early):
            monkeypatch.setattr(module, "Order", partial(_without, *edge))
        step = Step(memory, launches)
        step()
        with pytest.raises(EmulatedFault, match="missing edge"):
            step()


def _edges(step: Step) -> list[tuple[int, ...]]:
    return Order([kernel.touched().accesses for kernel in step.plan._launches]).after


def _without(node: int, before: int, accesses: Sequence[Sequence[Access]]) -> Order:
    """What comes before a node comes before it still, but for one."""
    order = Order(accesses)
    kept = dict.fromkeys([*order.after[before], *(j for j in order.after[node] if j != before)])
    order.after[node] = tuple(kept)
    return order


@pytest.mark.parametrize("reporting", [[0], [1, 3], [4]])
def test_what_is_reported_is_told_behind_the_last_that_reports_and_nothing_waits_for_it(reporting: list[int]) -> None:
    world = World()
    x, ys = value(N), [value(N) for _ in range(5)]
    memory = Memory(world.device, {v: world.fresh() for v in (x, *ys)}, {})
    work = [
        Launch(weighted_sum(N, [1.0], limit=1e9 if k in reporting else None), (y, x), f"{k}", commits=k > reporting[-1])
        for k, y in enumerate(ys)
    ]
    step = Step(memory, DeviceRun(CUDA, tuple(work)))
    (place,) = [k for k, kernel in enumerate(step.plan._launches) if kernel.label == "report"]
    assert place == reporting[-1] + 1
    after = _edges(step)
    assert after[place] == (reporting[-1],) and not any(place in edges for edges in after)


def test_a_report_does_not_part_kernels_that_have_partial_results_in_common() -> None:
    x, y, z = value(N), value(1), value(N)
    summing = replace(block_sums(N), reports=True)
    run = DeviceRun(CUDA, (Launch(summing, (y, x), "sum"), Launch(weighted_sum(N, [1.0]), (z, x), "copy")))
    assert [work.label for work in flat(with_report(items_of(run)))] == ["sum", "sum", "report", "copy"]


@pytest.mark.parametrize("kernels", [1, 2, 5])
def test_one_kernel_is_launched_with_addresses_for_parameters(kernels: int) -> None:
    world = World()
    run = RandomRun(world, kernels)
    for _ in range(CALLS):
        run.call()
    is_graph = kernels > 1
    assert run.step.plan.stats.instantiations == is_graph
    assert world.driver.counts["launches"] == (kernels + 1 if is_graph else CALLS * kernels)


@pytest.mark.parametrize("count", [1, 3, 300])
def test_numbers_of_the_host_go_by_value(count: int) -> None:
    """Also more of them than a launch takes; they are read when the call begins, and may change at once after it."""
    world = World()
    x, ys = value(4), [value(4) for _ in range(count)]
    numbers = [value(0, "f32", CPU) for _ in range(count)]
    on_host = np.zeros(count, np.float32)
    fixed = {number: on_host.ctypes.data + 4 * k for k, number in enumerate(numbers)}
    fixed |= {y: world.fresh(4) for y in ys} | {x: world.fresh(4)}
    memory = Memory(world.device, fixed, {})
    kernel = scaled(4)
    shown = range(0, count, 97)  # to launch all of them takes long
    work = [Launch(kernel, (ys[k], x, numbers[k]), "scale") for k in shown]
    step = Step(memory, DeviceRun(CUDA, (*work, *[Launch(kernel, (ys[-1], x, n), "scale") for n in numbers[-1:]])))
    for _ in range(3):
        on_host[:] = world.rng.normal(size=count)
        expected = on_host.copy()
        step()
        on_host[:] = 7
        for k in (*shown, count - 1):
            np.testing.assert_allclose(world.read(fixed[ys[k]], 4), world.read(fixed[x], 4) * expected[k])


@pytest.mark.parametrize("most", [4, 8, 480])
def test_more_moving_words_than_a_launch_takes(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (moving, prologue):
        monkeypatch.setattr(module, "MOST_PROLOGUE_WORDS", most)
    world = World()
    xs, ys = [value(4) for _ in range(11)], [value(4) for _ in range(11)]
    places: dict[Value, Place] = dict.fromkeys(xs, "argument")
    memory = Memory(world.device, {y: world.fresh(4) for y in ys}, places)
    work = [Launch(weighted_sum(4, [1.0]), pair, "copy") for pair in zip(ys, xs, strict=True)]
    step = Step(memory, DeviceRun(CUDA, tuple(work)))
    for _ in range(3):
        addresses = {x: world.fresh(4) for x in xs}
        step(addresses)
        for x, y in zip(xs, ys, strict=True):
            np.testing.assert_array_equal(world.read(memory.fixed[y], 4), world.read(addresses[x], 4))
    parts = -(-len(xs) // most)
    assert step.plan.stats.launches == len(work) + parts
    assert world.driver.counts["node updates"] == 2 * parts


@pytest.mark.parametrize("kernels", [1, 4])
def test_an_argument_at_an_odd_address_gets_kernels_of_its_own_once(kernels: int) -> None:
    world = World()
    x, y = value(64), value(64)
    places: dict[Value, Place] = {x: "argument", y: "result"}
    memory = Memory(world.device, {}, places)
    step = Step(memory, DeviceRun(CUDA, (DeviceCopy(y, x, 256),) * kernels))
    assembled = []
    for offset in (0, 0, 0, 4, 4, 4, 0, 8):
        start = world.fresh(80)
        target = world.fresh(64)
        step({x: start + offset, y: target})
        np.testing.assert_array_equal(world.read(target, 64), world.read(start + offset, 64))
        assembled.append(world.driver.counts["assemblies"])
    assert assembled[3] > assembled[2] and len(set(assembled[3:])) == 1


@pytest.mark.parametrize("seed", range(6))
def test_copies_and_fills_reach_their_bytes_and_no_others(seed: int) -> None:
    world = World(seed)
    a, b = value(200), value(200)
    memory = Memory(world.device, {a: world.fresh(200), b: world.fresh(200)}, {})
    size, to, source, cleared = (4 * int(n) for n in world.rng.integers(0, 60, 4))
    run = DeviceRun(CUDA, (DeviceCopy(Offset(a, to), Offset(b, source), size), DeviceFill(Offset(b, 400), cleared)))
    expected, given = world.read(memory.fixed[a], 200), world.read(memory.fixed[b], 200)
    expected[to // 4 : (to + size) // 4] = given[source // 4 : (source + size) // 4]
    given[100 : 100 + cleared // 4] = 0
    Step(memory, run)()
    np.testing.assert_array_equal(world.read(memory.fixed[a], 200), expected)
    np.testing.assert_array_equal(world.read(memory.fixed[b], 200), given)


def test_partial_results_and_scratch_are_the_runs_own() -> None:
    world = World(5)
    x, y, z = value(N), value(1), value(1)
    scratch = Scratch(4 * N, False)
    memory = Memory(world.device, {y: world.fresh(1), z: world.fresh(1)}, {x: "argument"})
    work = (
        Launch(block_sums(N), (y, x), "sum"),
        Launch(weighted_sum(N, [2.0]), (scratch, x), "twice"),
        Launch(block_sums(N), (z, scratch), "sum"),
    )
    step = Step(memory, DeviceRun(CUDA, work))
    for _ in range(CALLS):
        address = world.fresh()
        step({x: address})
        total = world.read(address).sum(dtype=np.float64)
        np.testing.assert_allclose(
            [world.read(memory.fixed[v], 1)[0] for v in (y, z)], [total, 2 * total], rtol=1e-4, atol=1e-4
        )


class Checked:
    """Two kernels that may report, and two that change state."""

    def __init__(self, world: World) -> None:
        self.world = world
        x, t, u, v, w, self.state = (value(N) for _ in range(6))
        self.argument = x
        fixed = {one: world.fresh() for one in (t, u, self.state)}
        fixed |= {one: world.driver.allocate(4 * N) for one in (v, w)}
        self.memory = Memory(world.device, fixed, {x: "argument", self.state: "state"})
        work = (
            Launch(weighted_sum(N, [1.0], limit=100.0), (t, x), "first check", code=5),
            Launch(weighted_sum(N, [2.0], limit=50.0), (u, x), "second check", code=6),
            Launch(weighted_sum(N, [1.0, 1.0], "updates"), (self.state, self.state, t), "update", commits=True),
            DeviceCopy(Offset(self.state, 0), u, 8, commits=True),
            Launch(weighted_sum(N, [1.0]), (v, self.state), "copy", commits=True),  # to memory that is not written else
            Launch(weighted_sum(N, [1.0]), (w, v), "copy of the copy"),
        )
        self.step = Step(self.memory, DeviceRun(CUDA, work))

    def call(self, position: int | None = None, value: float = 1000.0) -> None:
        address = self.world.fresh()
        given = self.world.read(address)
        if position is not None:
            given[position] = value
            self.world.write(address, given)
        self.step({self.argument: address})

    def now(self) -> np.ndarray:
        return self.world.read(self.memory.fixed[self.state])


@pytest.mark.parametrize("good_calls", [0, 1, 2, 3])
def test_a_report_leaves_the_state_as_it_was_and_the_next_call_works(good_calls: int) -> None:
    """In every mode; both kernels report, and the program's first is the one that is told."""
    checked = Checked(World(good_calls))
    for _ in range(good_calls):
        checked.call()
    before = checked.now()
    for value_, code in ((1000.0, 5), (60.0, 6)):
        with pytest.raises(ReportedError) as told:
            checked.call(position=17, value=value_)
        assert told.value.args == (code, 1, 17)
        np.testing.assert_array_equal(checked.now(), before)
    checked.call()
    assert (checked.now() != before).any()


def test_no_run_is_waited_for_unless_a_user_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    checked = Checked(world)
    for _ in range(3):
        checked.call()
    assert world.driver.counts["waits"] == 0
    monkeypatch.setenv("AUTOJIT_CUDA", "emulate,blocking")
    other = World()
    run = RandomRun(other, kernels=3)
    for calls in range(1, 4):
        run.call()
        assert other.driver.counts["waits"] == calls


def test_a_fault_is_told_with_the_kernels_name_and_the_process_goes_on() -> None:
    world = World()
    x, y = value(N), value(N)
    memory = Memory(world.device, {y: world.fresh()}, {x: "argument"})
    step = Step(memory, DeviceRun(CUDA, (Launch(weighted_sum(N, [1.0]), (y, x), "scaled copy"),)))
    with pytest.raises(EmulatedFault, match=r"out of bounds[\s\S]*in +scaled copy") as told:
        step({x: world.fresh(N - 1)})
    assert told.value.kind == "out of bounds"
    address = world.fresh()
    step({x: address})
    np.testing.assert_array_equal(world.read(memory.fixed[y]), world.read(address))


def test_what_stays_in_place_may_be_moved() -> None:
    world = World(2)
    run = RandomRun(world, kernels=5)
    for _ in range(3):
        run.call()
    for v in [v for v in run.values if run.places[v] == "state"]:
        run.memory.move(v, world.fresh())
    run.step.plan.moved()
    for _ in range(3):
        run.call()
    assert run.step.plan.stats.instantiations == 2


def test_another_stream_waits_for_the_one_before() -> None:
    world = World()
    run = RandomRun(world, kernels=4)
    before = world.device.stream
    for stream in (before, world.driver.make_stream(), before):
        world.device.synchronize()  # the values are written and read here, not by the run
        world.device.set_stream(stream)
        waits = world.driver.counts["waits"]
        run.call()
        run.call()
        assert world.driver.counts["waits"] == waits  # the device waits, not the host


def test_a_run_gives_all_its_memory_back_when_it_goes() -> None:
    world = World()
    held = world.device.memory.stats().allocated
    checked = Checked(world)
    for _ in range(3):
        checked.call()
    assert world.device.memory.stats().allocated > held
    gc.disable()
    try:
        del checked
        assert world.device.memory.stats().allocated == held
    finally:
        gc.enable()


def test_memory_goes_back_when_another_stream_is_done_with_it() -> None:
    for other in (False, True):
        world = World()
        run = RandomRun(world, kernels=2)
        if other:
            world.device.set_stream(world.driver.make_stream())
        run.call()
        waits = world.driver.counts["waits"]
        del run
        gc.collect()
        assert world.driver.counts["waits"] - waits == other


@pytest.mark.parametrize("left_out", ["ask", "launch_graph"])
def test_a_signal_on_the_way_to_python_ends_the_step(left_out: str) -> None:
    """The function that native code calls is then left out: it has not answered, or not counted."""
    world = World()
    run = RandomRun(world, kernels=4)
    run.call()
    if left_out == "ask":
        words, place = run.step.channel._words, Channel.ask.place
        nothing = ctypes.cast(ctypes.CFUNCTYPE(None)(lambda: None), ctypes.c_void_p)
    else:
        words, place = run.step.channel._calls, DriverCalls.launch_graph.place
        nothing = ctypes.cast(ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 0), ctypes.c_void_p)
    there = words[place]
    words[place] = nothing.value or 0
    with pytest.raises(KeyboardInterrupt):
        run.call()
    words[place] = there
    run.call()
    assert run.step.plan.stats.instantiations == 1


def test_a_graph_that_cannot_be_made_is_an_error_and_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    run = RandomRun(world, kernels=4)
    run.call()

    def refuse(*nodes: object) -> None:
        raise DeviceError("no graphs today")

    make: Callable[..., object] = world.driver.make_graph
    monkeypatch.setattr(world.driver, "make_graph", refuse)
    with pytest.raises(DeviceError, match="no graphs today"):
        run.call()
    monkeypatch.setattr(world.driver, "make_graph", make)
    run.call()
    assert run.step.plan.stats.instantiations == 1


@pytest.mark.parametrize("seed", range(3))
def test_sizes_have_graphs_of_their_own_as_long_as_they_come_again(seed: int) -> None:
    """What is computed follows the sizes of each call; a size that comes once has no graph, and eight have one."""
    world, n = World(), named_size("n", 8)
    x, y, z = (value(N) for _ in range(3))
    places = {v: world.fresh() for v in (x, y, z)}
    memory = Memory(world.device, places, {})
    step = Step(memory, DeviceRun(CUDA, (Launch(doubled(n), (y, x), "y"), Launch(doubled(n), (z, y), "z"))))
    content, made, seen = world.read(places[x]), set[int](), set[int]()
    before = 0
    for size in world.rng.choice([0, 1, 3, *range(60, N + 1)], 60):
        world.write(places[z], np.zeros(N, np.float32))
        memory.resize(n=int(size))
        step()
        expected = np.where(np.arange(N) < size, 4 * content, 0)
        np.testing.assert_array_equal(world.read(places[z]), expected.astype(np.float32))
        graph_count = step.plan.stats.instantiations
        if graph_count > before:
            assert size in seen, "a graph for what has not come before"
            made.add(int(size))
        before = graph_count
        seen.add(size)
        assert world.driver.live_graphs <= graphs.MOST_GRAPHS
    assert len(made) >= graphs.MOST_GRAPHS and step.plan.stats.graph_launches
