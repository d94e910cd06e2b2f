"""Arenas and recycled arrays."""

from __future__ import annotations

import gc
import threading

import ml_dtypes
import numpy as np
import pytest

from autojit.core.errors import ArgumentError
from autojit.runtime import memory
from autojit.runtime.memory import CACHED_FROM_BYTES, HUGE_PAGE_BYTES, Arena, BlockCache, allocate_array, bucket_size

LARGE = (1024, 1024)


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch) -> BlockCache[memory.Mapping]:
    cache = BlockCache(64 << 20, memory.Mapping)
    monkeypatch.setattr(memory, "block_cache", cache)
    return cache


def test_memory_returns_when_the_last_view_goes(own_cache: BlockCache[memory.Mapping]) -> None:
    array = allocate_array(LARGE, np.float32)
    address = array.ctypes.data
    view = array[3:, ::2].T
    del array
    assert own_cache.stats().cached_bytes == 0
    view[...] = 1.0
    del view
    assert own_cache.stats().cached_bytes == 4 << 20
    again = allocate_array((512, 2048), np.int32)
    assert again.ctypes.data == address
    assert (own_cache.stats().hits, own_cache.stats().misses) == (1, 1)


def test_live_arrays_never_overlap(rng: np.random.Generator) -> None:
    live: list[tuple[np.ndarray, int]] = []
    for step in range(300):
        if live and rng.random() < 0.5:
            array, mark = live.pop(int(rng.integers(len(live))))
            assert (array == mark).all()
            del array
        else:
            array = allocate_array((int(rng.integers(60_000, 300_000)),), np.int64)
            array[:] = step
            live.append((array, step))
    assert all((array == mark).all() for array, mark in live)


@pytest.mark.parametrize("dtype", [np.float32, np.bool_, np.complex128, ml_dtypes.bfloat16, np.int8])
def test_arrays_are_ordinary(dtype: type) -> None:
    for shape in ((0,), (), (3, 0, 2), (5,), LARGE):
        array = allocate_array(shape, dtype)
        assert (array.shape, array.dtype) == (shape, np.dtype(dtype))
        assert array.flags.c_contiguous
        assert array.flags.aligned
        assert array.flags.writeable
        if array.nbytes >= CACHED_FROM_BYTES:
            assert array.ctypes.data % memory.ALIGNMENT_BYTES == 0


def test_the_cache_is_bounded_and_prefers_what_is_used() -> None:
    cache = BlockCache(8 << 20, memory.Mapping)
    blocks = [cache.take(3 << 20) for _ in range(4)]
    for block in blocks:
        cache.give_back(block)
    assert cache.stats().cached_bytes == 6 << 20
    other = cache.take(4 << 20)
    cache.give_back(other)  # pushes out a block of the size not asked for lately
    assert cache.stats().cached_bytes <= 8 << 20
    assert cache.take(4 << 20) is other
    huge = cache.take(16 << 20)
    cache.give_back(huge)
    assert cache.stats().cached_bytes <= 8 << 20
    cache.clear()
    assert cache.stats().cached_bytes == 0


def test_buckets_waste_at_most_a_quarter() -> None:
    for size in [CACHED_FROM_BYTES, CACHED_FROM_BYTES + 1, (1 << 20) + 1, 3_000_001, 40_000_000, (1 << 30) - 1]:
        assert size <= bucket_size(size) <= 1.25 * size
        assert bucket_size(bucket_size(size)) == bucket_size(size)


def test_memory_that_is_not_there_is_a_memory_error() -> None:
    with pytest.raises(MemoryError):
        allocate_array((1 << 58,), np.uint8)
    assert allocate_array(LARGE, np.float32).shape == LARGE


def test_threads_and_collections_keep_the_books_straight(own_cache: BlockCache[memory.Mapping]) -> None:
    class Cycle:
        def __init__(self) -> None:
            self.me = self
            self.array = allocate_array(LARGE, np.float32)

    def work() -> None:
        for _ in range(50):
            Cycle()
            allocate_array(LARGE, np.float32)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    gc.collect()
    stats = own_cache.stats()
    assert stats.used_bytes == 0
    assert stats.cached_bytes <= own_cache.limit_bytes
    assert stats.hits + stats.misses == 400


@pytest.mark.parametrize("size", [0, 1, 4096, HUGE_PAGE_BYTES, 3 * HUGE_PAGE_BYTES + 5])
def test_an_arena_is_aligned_zeroed_and_whole(size: int) -> None:
    arena = Arena(size)
    assert arena.address % (HUGE_PAGE_BYTES if size >= HUGE_PAGE_BYTES else 4096) == 0
    view = arena.view()
    assert view.shape == (size,)
    assert not view.any()
    view[...] = 255
    del arena
    assert (view == 255).all()


def test_negative_arenas_are_refused() -> None:
    with pytest.raises(ArgumentError):
        Arena(-1)


@pytest.mark.parametrize("order", [None, (1, 0)])
@pytest.mark.parametrize("shape", [(3, 4), LARGE])
@pytest.mark.parametrize("dtype", [np.float32, np.bool_, np.complex128, ml_dtypes.bfloat16])
def test_views_refer_to_the_array_so_that_its_owner_sees_them(
    dtype: type, shape: tuple[int, int], order: tuple[int, int] | None
) -> None:
    array = allocate_array(shape, dtype, order)
    assert array.strides == tuple(np.empty(shape, dtype, "C" if order is None else "F").strides)
    for view in (array[1:], array.T, array.reshape(-1, order="A"), array.view(np.uint8) if order is None else array[:]):
        assert view.base is array
