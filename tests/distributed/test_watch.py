"""The watchdog's laws about ranks that have ended, on processes of this machine, without MPI."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from autojit.distributed import watch as watching
from autojit.distributed.presence import Presence
from autojit.distributed.watch import PROCESS, Watch

FOREVER_S = 60  # a test that waits so long has failed


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits."""
    made = subprocess.Popen([sys.executable, "-S", "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    yield made
    made.kill()
    made.communicate()


class Told(Watch):
    """Rank 0 of three on one machine; rank 1 is another process. What it does is noted, and nothing is ended."""

    def __init__(self, other: int) -> None:
        super().__init__([0, 1, 2], 0, 3, ["here", "here", "here"], FOREVER_S)
        self.counters[1, PROCESS] = other
        self.presence = Presence({1: other})
        self.new_group([0, 1, 2])
        self.text = ""
        self.interrupted, self.ended = threading.Event(), threading.Event()
        self.interrupt = self.interrupted.set

    def _end(self, text: str) -> None:
        self.text = text
        self.ended.set()
        self.close()

    def watched(self) -> threading.Thread:
        thread = threading.Thread(target=self._look)
        thread.start()
        return thread


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "INTERRUPT_S", 0.01)
    monkeypatch.setattr(watching, "END_S", 0.02)


@pytest.mark.parametrize("has_descriptors", [True, False])
def test_who_has_ended_is_known_and_nobody_else(
    other: subprocess.Popen[bytes], has_descriptors: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_descriptors:
        monkeypatch.delattr("os.pidfd_open", raising=False)
    presence = Presence({5: other.pid, 7: 2**22 + 1})  # there is no process of that number
    assert presence.ended() == frozenset()
    other.kill()
    if not has_descriptors:
        other.wait()
    while not presence.ended(FOREVER_S):
        pass
    assert presence.ended() == {5}
    presence.close()


@pytest.mark.parametrize("is_compiled", [False, True])
def test_who_waits_for_a_dead_rank_is_interrupted_and_then_ended(
    other: subprocess.Popen[bytes], is_compiled: bool, soon: None
) -> None:
    watch = Told(other.pid)
    thread = watch.watched()
    if is_compiled:
        watch.counters[0, 0], watch.inside[0] = 1, 1
        other.kill()
        assert watch.ended.wait(FOREVER_S)
    else:
        with watch.waiting(0, "all_reduce"):
            other.kill()
            assert watch.ended.wait(FOREVER_S)
    thread.join()
    assert watch.interrupted.is_set()
    assert watch.lost == {1}
    assert "rank 0 on here waits in all_reduce, but rank 1 on here has failed" in watch.text


def test_where_others_go_on_a_rank_that_is_late_is_waited_for(other: subprocess.Popen[bytes], soon: None) -> None:
    watch = Told(other.pid)
    watch.goes_on = True
    thread = watch.watched()
    with watch.waiting(0, "all_reduce"):
        other.kill()
        assert watch.interrupted.wait(FOREVER_S)
        assert not watch.ended.wait(0.1)  # rank 2 may still come
        watch.counters[2, 0] = 1
        assert watch.ended.wait(FOREVER_S)
    thread.join()


def test_a_rank_that_has_left_is_not_missed(other: subprocess.Popen[bytes], soon: None) -> None:
    watch = Told(other.pid)
    watch.counters[1, PROCESS] = 0
    with watch.waiting(0, "all_reduce"):
        thread = watch.watched()
        other.kill()
        while not watch.presence.ended(FOREVER_S):
            pass
        assert watch.look() == frozenset()
        assert not watch.ended.wait(0.1)
    watch.close(is_orderly=True)
    thread.join()
    assert not watch.interrupted.is_set()
    assert watch.counters[0, PROCESS] == 0


def test_the_table_has_a_place_for_every_group_and_the_process() -> None:
    watch: Any = Watch([4, 9], 9, 10, ["here"] * 10, 1.0)
    words = watch.words(watching.GROUPS + 3)
    assert words["counter"] == watch.counters[1, 3:].ctypes.data
    assert np.shape(watch.counters) == (2, PROCESS + 1)
