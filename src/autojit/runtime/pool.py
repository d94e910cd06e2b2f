"""The process's thread pool: native code calls `aj_parallel_for`, Python sets how many threads it may use.

The native signature is ``void aj_parallel_for(void (*body)(void *context, int64 chunk, int64 worker), void *context,
int64 chunks, int64 max_threads)``. It returns when `body` has run once for every chunk in ``[0, chunks)``, in any order
and on any thread. Chunks are claimed one by one, so a slow or sleeping thread delays nobody; 2 to 4 chunks a thread are
a good cut. Results must depend on the chunk alone, never on the worker.

`worker` is in ``[0, threads)`` and is unique among the threads of one job at one time: it may index scratch that
belongs to the job. There is one job at a time; a call that finds another in progress (from another Python thread, or
from inside a body) runs its chunks itself, as worker 0. Scratch shared by several executables is therefore never safe;
scratch in an executable's own arena is, because an executable runs one call at a time.

Threads start with the first job that needs them, sleep after a short spin and are never joined: the code they run is
never unloaded. A forked child starts its own.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time

from autojit.codegen.records import Field
from autojit.core.errors import ArgumentError
from autojit.core.locks import in_forked_child, new_lock
from autojit.core.once import once
from autojit.core.top_level import top_level
from autojit.core.undivided_work import undivided
from autojit.runtime.cores import available_cores
from autojit.runtime.denormals_ir import FLUSH_DENORMALS, can_flush
from autojit.runtime.host import cached_host_target
from autojit.runtime.loader import LoadedObject, load
from autojit.runtime.object_cache import default_cache
from autojit.runtime.pool_ir import FUTEX_BY_MACHINE, PoolWords, pool_ir, serial_pool_ir

MAX_THREADS = 1024
_SPIN_S = 40e-6  # a worker that finds work within this time answers in about 1 us, a sleeping one in about 40
_CALIBRATION_PAUSES = 1000
_OPT_LEVEL = 0  # a tenth of the compile time of 2; the pool waits for memory, not for instructions


@top_level
def get_num_threads() -> int:
    """Threads a compiled step may use, the calling one included."""
    if not _is_parallel():
        return 1
    return _wanted_threads


@top_level
def set_num_threads(num: int) -> None:
    """Let compiled steps use `num` threads, the calling one included. Takes effect with the next parallel loop.

    Results do not depend on it.

    Raises:
        ArgumentError: `num` is not in 1 to 1024.
    """
    global _wanted_threads
    if not 1 <= num <= MAX_THREADS:
        raise ArgumentError("set_num_threads: impossible number of threads", facts={"count": num, "most": MAX_THREADS})
    with _loading:
        _wanted_threads = num
        if _pool is not None and _is_parallel():
            _word(_pool, PoolWords.threads).value = num


def parallel_for_address() -> int:
    """Address of `aj_parallel_for`, to import into objects; loads the pool on first use and is never freed."""
    return _loaded_pool().address("aj_parallel_for")


def flush_denormals(is_wanted: bool) -> bool:
    """Let the calling thread, and the pool's threads while they work for it, take denormal numbers for zero; whether
    this processor can.
    """
    if not can_flush(_machine()):
        return False
    ctypes.CFUNCTYPE(None, ctypes.c_int32)(_loaded_pool().address(FLUSH_DENORMALS.symbol))(is_wanted)
    return True


def _loaded_pool() -> LoadedObject:
    global _pool
    if _pool is None:
        with undivided, _loading:
            if _pool is None:
                _pool = _load_pool()
    return _pool


def pool_request() -> tuple[str, int]:
    """The pool's module and LLVM's level for it."""
    return (pool_ir(_machine()) if _is_parallel() else serial_pool_ir(_machine())), _OPT_LEVEL


def pool_content() -> bytes:
    """The pool's object."""
    text, level = pool_request()
    return default_cache().object(text, cached_host_target(), level)


def _load_pool() -> LoadedObject:
    pool = load(pool_content())
    if _is_parallel():
        _word(pool, PoolWords.spins).value = _spins(pool)
        _word(pool, PoolWords.threads).value = _wanted_threads
    return pool


def _spins(pool: LoadedObject) -> int:
    """Pauses that take `_SPIN_S` on this processor (they differ tenfold between models)."""
    pause = ctypes.CFUNCTYPE(None, ctypes.c_int64)(pool.address("aj_pool_pause"))
    best_s = 1.0
    for _ in range(3):
        start_s = time.perf_counter()
        pause(_CALIBRATION_PAUSES)
        best_s = min(best_s, time.perf_counter() - start_s)
    return max(16, int(_SPIN_S / max(best_s, 1e-9) * _CALIBRATION_PAUSES))


def _word(pool: LoadedObject, word: Field[int]) -> ctypes.c_int32:
    return ctypes.c_int32.from_address(pool.address("aj_pool") + word.offset_bytes)


@once
def _is_parallel() -> bool:
    """Sleeping and waking need Linux's futex; elsewhere loops run on the calling thread."""
    return sys.platform == "linux" and _machine() in FUTEX_BY_MACHINE


def _machine() -> str:
    return os.uname().machine


@in_forked_child
def _forget_threads() -> None:
    if _pool is not None and _is_parallel():
        ctypes.CFUNCTYPE(None)(_pool.address("aj_pool_reset"))()


def _threads_from_environment() -> int:
    text = os.environ.get("AUTOJIT_NUM_THREADS", "").strip()
    if not text:
        return min(available_cores(), MAX_THREADS)
    if not text.isdigit() or not 1 <= int(text) <= MAX_THREADS:
        raise ArgumentError("AUTOJIT_NUM_THREADS is no number of threads", facts={"value": text, "most": MAX_THREADS})
    return int(text)


_wanted_threads = _threads_from_environment()
_pool: LoadedObject | None = None
_loading = new_lock()
