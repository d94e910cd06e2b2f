"""Scratch of runs: who needs memory at a time has it alone; large blocks are used again."""

from __future__ import annotations

import numpy as np
import pytest

from autojit.codegen.lowered import DeviceRun, Launch, Scratch
from autojit.runtime.gpu import scratch
from autojit.runtime.gpu.scratch import SHARED_FROM_BYTES, Need, blocks_for
from tests.runtime.gpu.runs import CUDA, Memory, Step, value, weighted_sum
from tests.runtime.gpu.test_plan import World


@pytest.mark.parametrize("seed", range(20))
def test_nobody_shares_at_a_time_and_blocks_are_large_enough(seed: int) -> None:
    rng = np.random.default_rng(seed)
    firsts = [int(k) for k in rng.integers(0, 30, 25)]
    sizes = [int(SHARED_FROM_BYTES * 2 ** rng.uniform(-3, 3)) for _ in firsts]
    needs = [Need(size, k, k + int(rng.integers(0, 6))) for size, k in zip(sizes, firsts, strict=True)]
    chosen, blocks = blocks_for(needs)
    for k, (need, block) in enumerate(zip(needs, chosen, strict=True)):
        assert need.size_bytes <= blocks[block]
        sharing = [other for j, other in enumerate(needs) if j != k and chosen[j] == block]
        assert need.size_bytes >= SHARED_FROM_BYTES or not sharing
        assert all(other.last < need.first or need.last < other.first for other in sharing)
    assert sum(blocks) <= sum(sizes)


def test_one_after_the_other_needs_two_blocks() -> None:
    needs = [Need(4 * SHARED_FROM_BYTES, k, k + 1) for k in range(20)]
    assert len(blocks_for(needs)[1]) == 2


@pytest.mark.parametrize("shared_from", [1, 1 << 20])
def test_a_graph_keeps_the_order_of_those_that_share(shared_from: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain through scratch, in random orders of nodes: the emulated device finds a missing edge."""
    monkeypatch.setattr(scratch, "SHARED_FROM_BYTES", shared_from)
    world = World(3)
    x, ys = value(16), [value(16) for _ in range(8)]
    memory = Memory(world.device, {y: world.fresh(16) for y in ys}, {x: "argument"})
    work: list[Launch] = []
    for k, y in enumerate(ys):
        part = Scratch(64, False)
        work.append(Launch(weighted_sum(16, [float(k)]), (part, x), "times k"))
        work.append(Launch(weighted_sum(16, [1.0]), (y, part), "copy"))
    before = world.device.memory.stats().reserved
    step = Step(memory, DeviceRun(CUDA, tuple(work)))
    taken = world.device.memory.stats().reserved - before
    assert (taken < 8 * 64) == (shared_from == 1)
    for _ in range(4):
        address = world.fresh(16)
        step({x: address})
        for k, y in enumerate(ys):
            np.testing.assert_array_equal(world.read(memory.fixed[y], 16), world.read(address, 16) * np.float32(k))


def test_a_run_of_nothing_does_nothing() -> None:
    world = World()
    step = Step(Memory(world.device, {}, {}), DeviceRun(CUDA, ()))
    step()
    step()
    assert world.driver.counts["launches"] == world.driver.counts["instantiations"] == 0
