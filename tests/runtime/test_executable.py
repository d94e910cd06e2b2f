"""A loaded step called from Python."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from autojit.core.errors import ArgumentError, CompileError
from autojit.runtime.executable import Executable, OutputSpec
from autojit.runtime.loader import load

from .programs import ADD_ONE, compiled, run_python

SPEC = OutputSpec((16,), np.dtype(np.float32))

HELPER = "define void @helper(ptr %p) nounwind { store float 99.0, ptr %p ret void }"


def add_one() -> Executable:
    return Executable(load(compiled(ADD_ONE)), 1, [SPEC])


def test_runs_into_fresh_and_given_outputs() -> None:
    x = np.arange(16, dtype=np.float32)
    step = add_one()
    (fresh,) = step.run([x])
    given = np.empty(16, np.float32)
    (same,) = step.run([x], [given])
    assert same is given
    assert (fresh == x + 1).all()
    assert (given == x + 1).all()


def test_a_donated_input_is_updated_in_place() -> None:
    x = np.arange(16, dtype=np.float32)
    add_one().run([x], [x])
    assert (x == np.arange(1, 17)).all()


def test_wrong_arrays_are_refused() -> None:
    step = add_one()
    x = np.zeros(16, np.float32)
    with pytest.raises(ArgumentError, match="wrong number"):
        step.run([x, x])
    with pytest.raises(ArgumentError, match="input 0 is not contiguous"):
        step.run([np.zeros(32, np.float32)[::2]])
    for bad in (np.zeros(15, np.float32), np.zeros(16, np.float64)):
        with pytest.raises(ArgumentError, match="output 0 does not fit"):
            step.run([x], [bad])
    frozen = np.zeros(16, np.float32)
    frozen.flags.writeable = False
    with pytest.raises(ArgumentError, match="output 0 does not fit"):
        step.run([x], [frozen])


def test_a_missing_step_function_is_an_error() -> None:
    with pytest.raises(CompileError, match="aj_step"):
        Executable(load(compiled(HELPER)), 0, [])


def test_a_forked_child_does_not_wait_for_its_parents_calls() -> None:
    output = run_python("""
    import os, threading, time, warnings
    import numpy as np
    from autojit.runtime.executable import Executable
    from autojit.runtime.loader import load
    from programs import compiled
    warnings.simplefilter("ignore", DeprecationWarning)
    sleep = "declare i32 @usleep(i32) define void @aj_step(ptr %t) { %r = call i32 @usleep(i32 300000) ret void }"
    step = Executable(load(compiled(sleep)), 0, [])
    thread = threading.Thread(target=step.run, args=([],))
    thread.start()
    time.sleep(0.05)
    child = os.fork()
    if child == 0:
        step.run([])
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    thread.join()
    print("done")
    """)
    assert output.strip() == "done"


def test_threads_take_turns() -> None:
    step = add_one()
    failures: list[int] = []

    def work(seed: int) -> None:
        x = np.full(16, seed, np.float32)
        for _ in range(500):
            if not (step.run([x])[0] == seed + 1).all():
                failures.append(seed)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures
