"""Runs whose kernels share launches, on an emulated device that knows who wrote what when: bits as launched apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from autojit.codegen.cuda.entry_point import BARRIER
from autojit.codegen.cuda.grid_function import CudaKernel, Grid
from autojit.codegen.grid_text import Buffer, GridText
from autojit.codegen.lowered import DeviceCopy, DeviceFill, DeviceRun, Launch, Offset
from autojit.core.dtypes import float32
from autojit.core.errors import DeviceError
from autojit.ir.graph import Value
from autojit.runtime.gpu import bound_launch
from autojit.runtime.gpu.emulator.findings import EmulatedFault
from autojit.runtime.gpu.order import Place
from tests.runtime.gpu.runs import CUDA, Memory, ReportedError, Step, block_sums, value, weighted_sum
from tests.runtime.gpu.test_plan import World

N = 300
CALLS = 3


@pytest.fixture(autouse=True)
def _together(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that may share a launch does, across barriers of all blocks too."""
    monkeypatch.setenv("AUTOJIT_CUDA", "together")


def turned(n: int, threads: int) -> GridText:
    """The first buffer is half the second, that of each block of threads in reverse: through shared memory."""
    blocks = -(-n // threads)
    kernel = CudaKernel(Grid(threads, (blocks, 1, 1)))
    kernel.pointers([n, n])
    array = kernel.shared("float", threads)
    place = kernel.add(kernel.mul(kernel.block_x, threads), kernel.thread)
    source = kernel.least(place, n - 1)
    found = kernel.emit.load(kernel.address(kernel.buffers[1], float32, source), float32)
    kernel.emit.store(found, kernel.address(array, float32, kernel.thread))
    kernel.barrier()
    other = kernel.address(array, float32, kernel.sub(threads - 1, kernel.thread))
    half = kernel.emit.mul(kernel.emit.load(other, float32), kernel.emit.constant(0.5, float32))
    with kernel.when(kernel.test("ult", place, n)):
        kernel.emit.store(half, kernel.address(kernel.buffers[0], float32, place))
    return kernel.finished([Buffer("writes", 4), Buffer("reads", 4)])


class Program:
    """Random kernels over a pool of buffers, of which some move from call to call.

    Args:
        seed: of what they are.
        count: of kernels.
        limit: some report what they read from there on; what is behind them commits.
    """

    def __init__(self, seed: int, count: int, limit: float | None = None) -> None:
        rng = np.random.default_rng(seed)
        self.values = [value(N) for _ in range(9)]
        kinds: list[Place] = ["own", "own", "own", "state", "state", "argument", "argument", "result", "result"]
        self.places = dict(zip(self.values, kinds, strict=True))
        self.one = value(1)
        written = [v for v in self.values if self.places[v] in ("state", "argument")]
        work: list[Any] = []
        for k in range(count):
            source, other = (written[int(rng.integers(len(written)))] for _ in range(2))
            target = self.values[int(rng.integers(len(self.values)))]
            reports = limit is not None and k % 3 == 1
            commits = limit is not None and self.places[target] == "state"
            kind = int(rng.integers(6))
            if reports and target is not source:
                work.append(Launch(weighted_sum(N, [0.5], limit=limit), (target, source), f"sum {k}", k, commits))
            elif kind == 0 and target is not source:
                text = turned(N, int(rng.choice([32, 64, 96, 128])))
                work.append(Launch(text, (target, source), f"turned {k}", commits=commits))
            elif kind == 1:
                work.append(Launch(block_sums(N), (self.one, source), f"total {k}", commits=commits))
                continue
            elif kind == 2 and target is not source:
                work.append(DeviceCopy(target, source, 4 * N, commits))
            elif kind == 3:
                work.append(DeviceFill(target, 4 * N, commits))
            else:
                role = "updates" if target in (source, other) else "writes"
                text = weighted_sum(N, [0.25, float(np.float32(rng.normal()))], role)
                work.append(Launch(text, (target, source, other), f"sum {k}", commits=commits))
            if target not in written:
                written.append(target)
        self.work = tuple(work)

    def run(self, world: World, calls: int, monkeypatch: pytest.MonkeyPatch, *, joins: bool) -> Outcome:
        """All there is after each of some calls, and what was reported."""
        monkeypatch.setenv("AUTOJIT_CUDA", "together" if joins else "apart")
        rng = np.random.default_rng(5)
        fixed = {v: world.fresh(N) for v in self.values if self.places[v] in ("own", "state")}
        fixed[self.one] = world.fresh(1)
        for address in fixed.values():
            world.write(address, rng.normal(size=N if address != fixed[self.one] else 1).astype(np.float32))
        step = Step(Memory(world.device, fixed, self.places), DeviceRun(CUDA, self.work))
        found: list[np.ndarray] = []
        reported: list[tuple[Any, ...]] = []
        for _ in range(calls):
            given = {v: world.fresh(N) for v in self.values if v not in fixed}
            for address in given.values():
                world.write(address, rng.normal(size=N).astype(np.float32))
            try:
                step(given)
            except ReportedError as error:
                reported.append(error.args)
            found += [world.read(at, N if v is not self.one else 1) for v, at in {**fixed, **given}.items()]
        return Outcome(found, reported, step)


class Outcome:
    """What calls have left behind."""

    def __init__(self, found: Sequence[np.ndarray], reported: Sequence[tuple[Any, ...]], step: Step) -> None:
        self.found, self.reported, self.step = found, reported, step

    def assert_equals(self, other: Outcome) -> None:
        """Bit by bit; of errors the kernel and the site."""
        for mine, others in zip(self.found, other.found, strict=True):
            np.testing.assert_array_equal(mine.view(np.int32), others.view(np.int32))
        assert [error[:2] for error in self.reported] == [error[:2] for error in other.reported]


@pytest.mark.parametrize("order", [None, 3])
@pytest.mark.parametrize("seed", range(6))
def test_joined_kernels_compute_the_bits_of_those_launched_apart(
    seed: int, order: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, world = Program(seed, 14), World(order)
    apart = program.run(world, CALLS, monkeypatch, joins=False)
    joined = program.run(world, CALLS, monkeypatch, joins=True)
    joined.assert_equals(apart)
    assert joined.step.plan.stats.launches == 1 < apart.step.plan.stats.launches


@pytest.mark.parametrize("seed", range(4))
def test_what_is_guarded_and_reported_is_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    program, world = Program(seed, 12, limit=1.2), World(seed)
    apart = program.run(world, CALLS, monkeypatch, joins=False)
    joined = program.run(world, CALLS, monkeypatch, joins=True)
    joined.assert_equals(apart)
    assert seed or joined.reported, "no number is beyond the limit"


def test_parts_of_a_few_launches_are_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """More kernels than one launch takes: each launch meets by a word of its own."""
    monkeypatch.setattr(bound_launch, "plan_launches", partial(bound_launch.plan_launches, most_parts=5))
    program, world = Program(1, 20), World(1)
    apart = program.run(world, CALLS, monkeypatch, joins=False)
    joined = program.run(world, CALLS, monkeypatch, joins=True)
    joined.assert_equals(apart)
    stats = joined.step.plan.stats
    assert 2 < stats.launches < apart.step.plan.stats.launches and stats.graph_launches == CALLS - 1


def _without_barriers(text: Callable[..., str]) -> Callable[..., str]:
    """Entry points in which parts do not wait for each other."""

    def printed(*arguments: Any) -> str:
        whole = text(*arguments).replace("  call void @meet.grid(ptr addrspace(1) %meeting, i32 %thread)\n", "")
        return whole.replace(f"begin:\n{BARRIER}", "begin:")

    return printed


@pytest.mark.parametrize("order", [None, 1])
@pytest.mark.parametrize(
    ("n", "kind"), [(40, "race within a block"), (64 * 4, "race between blocks")], ids=["one block", "several"]
)
def test_a_barrier_that_is_missing_is_found(
    n: int, kind: str, order: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of the two: that of a block's threads, or that of all blocks."""
    world = World(order)
    _chain(world, n)()
    monkeypatch.setattr(bound_launch, "joined_text", _without_barriers(bound_launch.joined_text))
    with pytest.raises(EmulatedFault, match=kind):
        _chain(world, n)()


def test_more_blocks_than_run_at_once_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    step = _chain(world, 133 * 64)
    assert step.plan._launches[0].grid.blocks <= 132
    monkeypatch.setattr("autojit.runtime.gpu.emulator.driver._PROCESSORS", 1)
    with pytest.raises(DeviceError, match=r"more blocks are to run at once than there are processors"):
        step()


def test_blocks_that_wait_for_blocks_that_never_begin_are_a_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if they were launched without saying that they meet, on a device with room for some of them."""
    world = World()
    step = _chain(world, 10 * 64)
    launch = world.driver.launch_extents

    def apart(*arguments: Any, **how: Any) -> None:
        launch(*arguments)

    monkeypatch.setattr(world.driver, "launch_extents", apart)
    monkeypatch.setattr("autojit.runtime.gpu.emulator.machine._MOST_LANES", 128)
    with pytest.raises(EmulatedFault, match="deadlock"):
        step()
    monkeypatch.undo()
    step()  # who met is counted anew


def _chain(world: World, n: int) -> Step:
    """Two kernels, the second of which reads what the first has written; other blocks of it, if there are."""
    x, y, z = value(n), value(n), value(n)
    fixed: Mapping[Value, int] = {v: world.fresh(n) for v in (x, y, z)}
    shift = n // 2
    second = Launch(weighted_sum(n - shift, [1.0]), (z, Offset(y, 4 * shift)), "shifted")
    return Step(Memory(world.device, fixed, {}), DeviceRun(CUDA, (Launch(turned(n, 64), (y, x), "turned"), second)))
