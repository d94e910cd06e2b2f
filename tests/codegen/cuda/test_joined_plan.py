"""Which kernels share launches: laws of every plan, on random runs."""

from __future__ import annotations

import numpy as np
import pytest

from autojit.codegen.cuda.joined_plan import (
    MOST_PARTS,
    MOST_SHARED_BYTES,
    MOST_WORDS,
    JoinedGrid,
    PartFacts,
    PlacedPart,
    plan_launches,
)


def _keys(rng: np.random.Generator) -> tuple[int | None, ...]:
    """Parameters: some are those of other kernels, too."""
    return tuple(int(k) if k < 300 else None for k in rng.integers(400, size=int(rng.integers(1, 60))))


FEW = (None, None, None)


def _facts(rng: np.random.Generator) -> PartFacts:
    threads = int(rng.choice([32, 64, 96, 128, 256, 512, 1024]))
    blocks = int(rng.choice([1, 1, 1, 2, 7, 60, 200, 900, 40_000]))
    return PartFacts(threads, blocks, int(rng.choice([0, 0, 64, 9_000, 30_000])), _keys(rng))


def _after(rng: np.random.Generator, count: int) -> list[tuple[int, ...]]:
    return [
        tuple(sorted({int(rng.integers(k)) for _ in range(int(rng.integers(3)))})) if k else () for k in range(count)
    ]


def _run(seed: int) -> tuple[list[PartFacts], list[tuple[int, ...]], int]:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 60)) if seed % 5 else 250
    small = seed % 3 == 0  # chains of small kernels
    facts = [PartFacts(64, 1, 0, FEW) if small and rng.random() < 0.8 else _facts(rng) for _ in range(count)]
    return facts, _after(rng, count), int(rng.choice([1, 4, 132]))


def _blocks_of(grid: JoinedGrid, part: PlacedPart) -> set[int]:
    return {(part.first + k) % grid.blocks for k in range(part.spread)}


SEEDS = range(40)
both = pytest.mark.parametrize("meets", [False, True])


@both
@pytest.mark.parametrize("seed", SEEDS)
def test_every_kernel_is_launched_once_behind_all_that_it_waits_for(seed: int, meets: bool) -> None:
    facts, after, processors = _run(seed)
    grids = plan_launches(facts, after, processors, meets=meets)
    placed = {part.number: (n, k, part) for n, grid in enumerate(grids) for k, part in enumerate(grid.parts)}
    assert len(placed) == len(facts) == sum(len(grid.parts) for grid in grids)
    for number, before in enumerate(after):
        launch, place, part = placed[number]
        for other in before:
            launch_before, place_before, part_before = placed[other]
            if launch_before != launch:
                assert launch_before < launch
                continue
            assert place_before < place
            if part_before.phase == part.phase:  # on one block, which waits
                mine, others = (_blocks_of(grids[launch], p) for p in (part, part_before))
                assert mine == others and len(mine) == 1 and part.waits
            else:
                assert part_before.phase < part.phase


@both
@pytest.mark.parametrize("seed", SEEDS)
def test_blocks_that_meet_all_run_at_once_and_have_room(seed: int, meets: bool) -> None:
    facts, after, processors = _run(seed)
    for grid in plan_launches(facts, after, processors, meets=meets):
        assert [part.phase for part in grid.parts] == sorted(part.phase for part in grid.parts)
        assert len(grid.parts) <= MOST_PARTS
        if len(grid.parts) > 1:
            keys = [key for part in grid.parts for key in facts[part.number].parameters]
            assert len({key for key in keys if key is not None}) + keys.count(None) <= MOST_WORDS
        if grid.has_order:
            assert grid.blocks <= processors
        for part in grid.parts:
            one = facts[part.number]
            assert part.packs * one.threads <= grid.threads and part.spread <= grid.blocks
            assert not grid.has_order or grid.threads <= one.most_threads
            assert part.packs == 1 or part.packs * one.shared_bytes <= MOST_SHARED_BYTES
            assert one.threads == 32 or part.packs < 16  # a block has 16 barriers
            assert part.spread * part.packs <= one.blocks + part.packs - 1  # no block is there for nothing


@both
@pytest.mark.parametrize("seed", SEEDS)
def test_shared_memory_of_a_block_is_not_given_on_without_a_barrier(seed: int, meets: bool) -> None:
    facts, after, processors = _run(seed)
    for grid in plan_launches(facts, after, processors, meets=meets):
        users: set[int] = set()
        phase = 0
        for part in grid.parts:
            blocks = _blocks_of(grid, part)
            if part.phase > phase:
                phase, users = part.phase, set()
            if part.waits:
                users -= blocks
            if facts[part.number].shared_bytes:
                assert users.isdisjoint(blocks)
                users |= blocks


def test_what_fills_the_device_is_launched_for_itself() -> None:
    small, large = PartFacts(128, 4, 0, FEW), PartFacts(256, 50_000, 0, FEW)
    grids = plan_launches([small, small, large, small], [(), (0,), (1,), (2,)], 132, meets=True)
    assert [[part.number for part in grid.parts] for grid in grids] == [[0, 1], [2], [3]]
    assert [grid.is_alone for grid in grids] == [False, True, True]


def test_large_kernels_that_wait_for_nothing_are_side_by_side() -> None:
    large = PartFacts(256, 50_000, 0, FEW)
    (grid,) = plan_launches([large] * 3, [()] * 3, 132)
    assert (grid.blocks, grid.phases, grid.meets) == (150_000, 1, False)


def test_a_chain_of_kernels_of_one_block_is_one_block() -> None:
    (grid,) = plan_launches([PartFacts(64, 1, 0, FEW)] * 20, [(k - 1,) if k else () for k in range(20)], 132)
    assert (grid.blocks, grid.phases, grid.meets) == (1, 1, False) and grid.has_order


def test_kernels_of_one_block_that_wait_for_nothing_are_on_blocks_of_their_own() -> None:
    (grid,) = plan_launches([PartFacts(64, 1, 0, FEW)] * 20, [()] * 20, 132)
    assert (grid.blocks, grid.phases) == (20, 1) and not grid.has_order


def test_waiting_only_for_the_last_of_a_chain_needs_one_barrier_of_all() -> None:
    """Four kernels of one block in a chain, then one of many: two phases."""
    facts = [PartFacts(64, 1, 0, FEW)] * 4 + [PartFacts(64, 50, 0, FEW)]
    (grid,) = plan_launches(facts, [(), (0,), (1,), (2,), (3,)], 132, meets=True)
    assert (grid.phases, grid.meets) == (2, True)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_block_waits_for_another_unless_that_is_asked_for(seed: int) -> None:
    facts, after, processors = _run(seed)
    assert not any(grid.meets for grid in plan_launches(facts, after, processors))


def test_what_nobody_waits_for_is_together_behind_the_rest() -> None:
    """Updates of parameters, each of which is ready as soon as its gradient is."""
    work, update = PartFacts(256, 1000, 0, FEW), PartFacts(128, 40, 0, FEW)
    after = [(), (0,), (0,), (2,), (2,), (4,)]
    grids = plan_launches([work, update, work, update, work, update], after, 132)
    assert [[part.number for part in grid.parts] for grid in grids] == [[0], [2], [4], [1, 3, 5]]


def test_what_the_host_waits_for_does_not_wait_for_what_follows() -> None:
    small = PartFacts(64, 1, 0, FEW)
    facts = [small, small, PartFacts(32, 1, 0, FEW, tells=True), small, small]
    grids = plan_launches(facts, [(), (0,), (1,), (1,), (3,)], 132)
    assert [[part.number for part in grid.parts] for grid in grids] == [[0, 1, 2], [3, 4]]
