"""Memory of devices: no two live blocks overlap, what is free is used again, nothing is kept when nobody has it."""

from __future__ import annotations

import gc
import itertools
import threading

import numpy as np
import pytest

from autojit.core.errors import OutOfMemoryError
from autojit.runtime.gpu.emulator.driver import EmulatedDriver
from autojit.runtime.gpu.emulator.findings import EmulatedFault
from autojit.runtime.gpu.libcuda import LibCuda
from autojit.runtime.gpu.memory import ALIGNMENT_BYTES, SLAB_BYTES, Block, DeviceMemory, PinnedMemory
from tests.runtime.gpu.fake_library import FakeLibrary

MIB = 1 << 20


def memory_of(library: FakeLibrary) -> DeviceMemory:
    return DeviceMemory(LibCuda(library), 0)


def overlap(a: Block, b: Block) -> bool:
    return a.address < b.address + b.size_bytes and b.address < a.address + a.size_bytes


def test_live_blocks_of_any_streams_never_overlap(rng: np.random.Generator) -> None:
    memory = memory_of(FakeLibrary())
    live: list[Block] = []
    for _ in range(400):
        if live and rng.random() < 0.45:
            memory.give_back(live.pop(int(rng.integers(len(live)))))
            continue
        size = int(2 ** rng.uniform(0, 22))
        block = memory.take(size, int(rng.integers(3)))
        assert block.size_bytes >= size and block.address % ALIGNMENT_BYTES == 0
        assert not any(overlap(block, other) for other in live)
        live.append(block)
    stats = memory.stats()
    assert stats.allocated == sum(block.size_bytes for block in live) <= stats.reserved
    assert stats.most_allocated >= stats.allocated and stats.most_reserved >= stats.reserved


def test_a_freed_block_is_the_next_one_of_its_stream_and_of_no_other() -> None:
    memory = memory_of(FakeLibrary())
    for size in (100, 3 * MIB):
        first = memory.take(size, 1)
        address = first.address
        memory.give_back(first)
        other = memory.take(size, 2)
        assert other.address != address
        assert memory.take(size, 1).address == address


def test_everything_goes_back_to_the_driver() -> None:
    library = FakeLibrary()
    memory = memory_of(library)
    blocks = [memory.take(size, 1) for size in (1, 1000, 70_000, MIB, 5 * MIB) for _ in range(5)]
    for block in blocks:
        memory.give_back(block)
    del block, blocks
    assert memory.stats().allocated == 0 and memory.stats().reserved == library.used_bytes > 0
    memory.empty_cache()
    gc.collect()
    assert library.used_bytes == memory.stats().reserved == 0
    memory.forget_peaks()
    assert memory.stats().most_allocated == memory.stats().most_reserved == 0


@pytest.mark.parametrize("size", [5000, 3 * MIB])
def test_a_circle_that_is_collected_gives_its_memory_to_the_next_and_to_nobody_else(size: int) -> None:
    """Compiled steps refer to themselves: the collector finalises all of a circle, also what a finaliser gave away."""
    library = FakeLibrary()
    memory = memory_of(library)
    for _ in range(3):
        circle: list[object] = [memory.hold(size, 1)]
        circle.append(circle)
        del circle
        gc.collect()
        assert library.used_bytes == memory.stats().reserved > 0
        assert memory.stats().allocated == 0
    assert memory.stats().reserved == (SLAB_BYTES if size < MIB else size)


def test_what_is_held_goes_back_with_its_holder() -> None:
    memory = memory_of(FakeLibrary())
    held = memory.hold(5000, 1)
    assert memory.stats().allocated >= 5000
    del held
    assert memory.stats().allocated == 0


def test_small_blocks_share_slabs() -> None:
    library = FakeLibrary()
    memory = memory_of(library)
    blocks = [memory.take(4096, 1) for _ in range(SLAB_BYTES // 4096)]
    assert library.used_bytes == SLAB_BYTES
    blocks.append(memory.take(1, 1))
    assert library.used_bytes == 2 * SLAB_BYTES


def test_free_blocks_of_every_stream_serve_a_block_that_finds_no_memory() -> None:
    memory = memory_of(FakeLibrary(memory_bytes=64 * MIB))
    for stream in (1, 2, 3):
        memory.give_back(memory.take(20 * MIB, stream))
    assert memory.take(60 * MIB, 4).size_bytes >= 60 * MIB


def test_out_of_memory_is_told_in_torchs_words_and_changes_nothing() -> None:
    memory = memory_of(FakeLibrary(memory_bytes=64 * MIB))
    block = memory.take(32 * MIB, 1)
    with pytest.raises(OutOfMemoryError, match=r"CUDA out of memory. Tried to allocate 40.00 MiB. GPU 0 has a total"):
        memory.take(40 * MIB, 1)
    assert memory.stats().allocated == block.size_bytes
    memory.give_back(block)
    del block
    assert memory.take(40 * MIB, 1).size_bytes >= 40 * MIB


def test_threads_share_the_memory() -> None:
    memory = memory_of(FakeLibrary())
    kept: list[list[Block]] = [[] for _ in range(4)]

    def work(mine: list[Block], seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(100):
            if mine and rng.random() < 0.5:
                memory.give_back(mine.pop())
            else:
                mine.append(memory.take(int(rng.integers(1, 5000)), 1))

    threads = [threading.Thread(target=work, args=(mine, seed)) for seed, mine in enumerate(kept)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    live = sorted((block for mine in kept for block in mine), key=lambda block: block.address)
    assert not any(overlap(a, b) for a, b in itertools.pairwise(live))
    assert memory.stats().allocated == sum(block.size_bytes for block in live)


def test_an_emulated_device_gets_blocks_of_exactly_the_size_and_none_twice() -> None:
    """So it finds whoever reads behind a tensor, before it was written, or when it is gone."""
    driver = EmulatedDriver()
    memory = DeviceMemory(driver, 0)
    block = memory.take(12, 0)
    driver.fill(block.address, 0, 12, 0)
    for start, size in ((8, 8), (-4, 8)):
        with pytest.raises(EmulatedFault):
            driver.fill(block.address + start, 0, size, 0)
    address = block.address
    memory.give_back(block)
    del block
    with pytest.raises(EmulatedFault):
        driver.fill(address, 0, 12, 0)
    other = memory.take(12, 0)
    assert other.address != address
    assert memory.stats().reserved == memory.stats().allocated == 12


def test_pinned_memory_goes_back_with_its_object() -> None:
    library = FakeLibrary()
    pinned = PinnedMemory(LibCuda(library), 0, 4096)
    assert library.used_bytes == 4096
    del pinned
    assert library.used_bytes == 0
    with pytest.raises(OutOfMemoryError, match="pinned"):
        PinnedMemory(LibCuda(library), 0, 1 << 40)


def test_memory_of_what_only_refers_to_itself_is_found_before_there_is_none() -> None:
    """As compiled steps do that nobody has any more."""
    memory = memory_of(FakeLibrary(memory_bytes=64 * MIB))

    class Step:
        def __init__(self) -> None:
            self.me, self.arena = self, memory.hold(40 * MIB, 1)

    gc.disable()
    try:
        Step()
        assert memory.stats().allocated >= 40 * MIB
        assert memory.take(50 * MIB, 2).size_bytes >= 50 * MIB
    finally:
        gc.enable()
