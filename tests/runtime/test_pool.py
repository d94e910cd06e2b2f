"""The thread pool: every chunk runs once, whoever calls and whatever happens to threads."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from autojit.core.errors import ArgumentError
from autojit.runtime import pool
from autojit.runtime.loader import LoadedObject, load
from autojit.runtime.pool_ir import serial_pool_ir

from .programs import COUNT_CHUNKS, compiled, run_python

Counter = Callable[[int, int, int], None]
CHUNKS = 64
WORKERS = 64


def counter(code: LoadedObject) -> Counter:
    native: Counter = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(code.address("count"))
    return native


@pytest.fixture(scope="module")
def code() -> LoadedObject:
    return load(compiled(COUNT_CHUNKS), {"aj_parallel_for": pool.parallel_for_address()})


@pytest.fixture
def threads() -> Iterator[None]:
    before = pool.get_num_threads()
    yield
    pool.set_num_threads(before)


def run_jobs(count: Counter, rounds: int, max_threads: int) -> set[int]:
    """Run jobs of every size; gives the workers that took part."""
    counts = np.zeros(CHUNKS + WORKERS, np.int64)
    for round_number in range(rounds):
        count(counts.ctypes.data, round_number % CHUNKS + 1, max_threads)
    sizes = np.arange(rounds) % CHUNKS + 1
    expected = [(sizes > chunk).sum() for chunk in range(CHUNKS)]
    assert counts[:CHUNKS].tolist() == expected
    return set(np.flatnonzero(counts[CHUNKS:]).tolist())


@pytest.mark.parametrize("number", [1, 2, 3, 8])
def test_every_chunk_runs_once(code: LoadedObject, threads: None, number: int) -> None:
    pool.set_num_threads(number)
    workers = run_jobs(counter(code), 4000, 1 << 40)
    assert 0 in workers
    assert max(workers) < number


ALL_CHUNKS = """
declare void @aj_parallel_for(ptr, ptr, i64, i64)
define void @count(ptr %seen, i64 %chunks, i64 %max) nounwind {
  call void @aj_parallel_for(ptr @body, ptr %seen, i64 %chunks, i64 %max)
  ret void
}
"""


def test_no_more_threads_than_asked_for(code: LoadedObject, threads: None) -> None:
    pool.set_num_threads(8)
    for limit in (1, 2, 3):
        assert max(run_jobs(counter(code), 1000, limit)) < limit


def test_several_threads_do_work(threads: None) -> None:
    busy = """
    define internal void @body(ptr %seen, i64 %chunk, i64 %worker) nounwind {
    entry:
      %at = getelementptr i64, ptr %seen, i64 %worker
      store atomic i64 1, ptr %at monotonic, align 8
      br label %wait
    wait:
      %i = phi i64 [ 0, %entry ], [ %n, %wait ]
      %n = add i64 %i, 1
      %v = load volatile i64, ptr %at
      %c = icmp slt i64 %n, 2000000
      br i1 %c, label %wait, label %out
    out:
      ret void
    }
    """
    pool.set_num_threads(2)
    code = load(compiled(ALL_CHUNKS + busy), {"aj_parallel_for": pool.parallel_for_address()})
    seen = np.zeros(2, np.int64)
    for _ in range(100):  # on a busy machine the second thread may come late
        counter(code)(seen.ctypes.data, 4, 2)
        if seen.all():
            return
    raise AssertionError("the second thread never worked")


def test_two_threads_work_from_the_two_ends(threads: None) -> None:
    """What a thread claims is at its own end: whoever did chunk k, nobody else did one before (or behind) it."""
    notes = """
    define internal void @body(ptr %seen, i64 %chunk, i64 %worker) nounwind {
      %at = getelementptr i64, ptr %seen, i64 %chunk
      store i64 %worker, ptr %at
      ret void
    }
    """
    pool.set_num_threads(2)
    code = load(compiled(ALL_CHUNKS + notes), {"aj_parallel_for": pool.parallel_for_address()})
    for chunks in (1, 2, 3, 1000, 1001):
        for _ in range(20):
            seen = np.full(chunks, -1)
            counter(code)(seen.ctypes.data, chunks, 2)
            assert list(seen) == sorted(seen)
            assert seen.min() >= 0


def test_python_threads_share_the_pool(code: LoadedObject, threads: None) -> None:
    pool.set_num_threads(3)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            run_jobs(counter(code), 3000, 3)
        except BaseException as error:
            failures.append(error)

    callers = [threading.Thread(target=work) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert not failures


def test_a_job_inside_a_job_runs_serially(threads: None) -> None:
    nested = (
        COUNT_CHUNKS.replace("@count", "@inner_count").replace("@body", "@inner")
        + """
    define internal void @body(ptr %counts, i64 %chunk, i64 %worker) nounwind {
      %row = getelementptr [128 x i64], ptr %counts, i64 %chunk
      call void @inner_count(ptr %row, i64 64, i64 100)
      ret void
    }
    define void @count(ptr %counts, i64 %chunks, i64 %max) nounwind {
      call void @aj_parallel_for(ptr @body, ptr %counts, i64 %chunks, i64 %max)
      ret void
    }
    """
    )
    pool.set_num_threads(3)
    code = load(compiled(nested), {"aj_parallel_for": pool.parallel_for_address()})
    counts = np.zeros((16, 128), np.int64)
    counter(code)(counts.ctypes.data, 16, 100)
    assert (counts[:, :64] == 1).all()


def test_the_serial_pool_does_the_same() -> None:
    serial = load(compiled(serial_pool_ir()))
    code = load(compiled(COUNT_CHUNKS), {"aj_parallel_for": serial.address("aj_parallel_for")})
    assert run_jobs(counter(code), 200, 8) == {0}


def test_forked_children_have_working_pools() -> None:
    output = run_python("""
    import ctypes, os, threading, warnings
    import numpy as np
    from autojit.runtime import pool
    from autojit.runtime.loader import load
    from programs import COUNT_CHUNKS, compiled
    warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn about forking with threads
    pool.set_num_threads(3)
    code = load(compiled(COUNT_CHUNKS), {"aj_parallel_for": pool.parallel_for_address()})
    count = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(code.address("count"))
    def work(rounds):
        counts = np.zeros(128, np.int64)
        for _ in range(rounds):
            count(counts.ctypes.data, 16, 8)
        assert (counts[:16] == rounds).all()
    stop = False
    def background():
        while not stop:
            work(10)
    thread = threading.Thread(target=background)
    thread.start()
    for _ in range(40):
        child = os.fork()
        if child == 0:
            work(200)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        work(50)
    stop = True
    thread.join()
    print("done")
    """)
    assert output.strip() == "done"


def test_threads_come_from_the_environment() -> None:
    code = "from autojit.runtime import pool; print(pool.get_num_threads())"
    assert run_python(code, AUTOJIT_NUM_THREADS="5").strip() == "5"
    assert run_python(code, AUTOJIT_NUM_THREADS="").strip() == str(pool.available_cores())


@pytest.mark.parametrize("count", [0, -1, 100_000])
def test_impossible_thread_counts_are_refused(count: int) -> None:
    with pytest.raises(ArgumentError, match="threads"):
        pool.set_num_threads(count)
