"""The gate of a step: one thread at a time, whoever comes, in whatever way it leaves."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.core.config import config
from autojit.runtime.gate import Gate, Reentered


@pytest.fixture(autouse=True)
def _threads_change_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def test_one_thread_at_a_time_and_each_gets_its_turn() -> None:
    gate, inside, turns = Gate(), [0], [0] * 6

    def work(k: int) -> None:
        for _ in range(200):
            with gate.held():
                inside[0] += 1
                assert inside[0] == 1 and gate.is_mine() and gate.is_taken()
                inside[0] -= 1
                turns[k] += 1
            assert not gate.is_mine()

    workers = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert turns == [200] * 6 and not gate.is_taken()


def test_a_thread_that_has_the_gate_is_told_so_and_keeps_it() -> None:
    gate = Gate()
    with gate.held():
        for _ in range(2):
            with pytest.raises(Reentered), gate.held():
                pass
        assert gate.is_mine()
    assert not gate.is_taken()
    with pytest.raises(KeyError), gate.held():
        raise KeyError
    assert not gate.is_taken()


def test_python_waits_for_a_native_call_and_lets_none_begin() -> None:
    gate = Gate()
    gate.words[0] = 12345  # as a native call of another thread
    entered = threading.Event()

    def work() -> None:
        with gate.held():
            entered.set()

    waiting = threading.Thread(target=work)
    waiting.start()
    until_s = time.monotonic() + 120  # a loaded machine runs the thread late
    while gate.words[1] != 1 and time.monotonic() < until_s:
        time.sleep(0.001)
    assert not entered.wait(0.05) and gate.words[1] == 1
    gate.words[0] = 0
    waiting.join(120)
    assert entered.is_set() and not gate.is_taken()


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers on this system")
def test_ctrl_c_while_waiting_gives_the_gate_up() -> None:
    gate = Gate()
    gate.words[0] = 12345
    before = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(KeyboardInterrupt), gate.held():
            pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    gate.words[0] = 0
    assert not gate.is_taken()
    with gate.held():
        pass


def test_touching_a_step_without_its_gate_is_seen_in_checked_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "check", True)
    gate = Gate()
    with gate.held():
        gate.expect_mine()
    with pytest.raises(AssertionError, match="without its gate"):
        gate.expect_mine()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_runs_steps_that_other_threads_were_running() -> None:
    x = aj.full((400, 400), 0.5)
    step = aj.jit(lambda x: (x @ x @ x).tanh())
    wanted = step(x).numpy().copy()
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            step(x)

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    try:
        for _ in range(5):
            time.sleep(0.01)
            child = os.fork()
            if child == 0:
                os._exit(0 if np.array_equal(step(x).numpy(), wanted) else 1)
            _, status = os.waitpid(child, 0)
            assert os.waitstatus_to_exitcode(status) == 0
    finally:
        stop.set()
        for worker in workers:
            worker.join(120)


def test_a_call_in_the_middle_of_a_call_of_the_same_step_runs_line_by_line() -> None:
    inner: list[Any] = []

    @aj.jit
    def step(x: Any) -> Any:
        return x * 2

    x = aj.ones(3)
    for _ in range(3):
        step(x)
    native = step.last_step().entry
    for _ in range(2):
        with native.step.segment.gate.held():  # where a signal handler or a finaliser may find the thread
            inner.append(step(x + 1).tolist())
    assert inner == [[4.0] * 3] * 2
    assert step(x).tolist() == [2.0] * 3
