"""What the process has changed while any thread is inside is put back by the last, whatever threads and forks do."""

from __future__ import annotations

import os
import threading

import pytest

from autojit.core.process_changes import WhileInside


def noted() -> tuple[WhileInside, list[str]]:
    told: list[str] = []
    return WhileInside(lambda: told.append("begin"), lambda: told.append("end")), told


class OtherThread:
    """A thread that is inside from now on, until it is let go."""

    def __init__(self, inside: WhileInside) -> None:
        self._inside, self._entered, self._may_leave = inside, threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._stay)
        self._thread.start()
        assert self._entered.wait(120)

    def _stay(self) -> None:
        with self._inside():
            self._entered.set()
            self._may_leave.wait(120)

    def leave(self) -> None:
        self._may_leave.set()
        self._thread.join()


def test_the_first_changes_and_the_last_puts_back() -> None:
    inside, told = noted()
    with pytest.raises(KeyError), inside():
        with inside():
            assert inside.has_me()
        assert told == ["begin"]
        raise KeyError
    assert told == ["begin", "end"]
    assert not inside.has_me()


def test_threads_overlap() -> None:
    inside, told = noted()
    with inside():
        other = OtherThread(inside)
    assert (told, inside.has_me()) == (["begin"], False)
    other.leave()
    assert told == ["begin", "end"]


def test_it_is_put_back_for_a_while() -> None:
    inside, told = noted()
    with inside.put_back():
        assert told == []
    with inside(), inside.put_back():
        assert told == ["begin", "end"]
    assert told == ["begin", "end", "begin", "end"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no forks")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("forks_inside", [False, True])
def test_a_forked_child_has_only_the_thread_that_forked(forks_inside: bool) -> None:
    inside, told = noted()
    other = OtherThread(inside)
    if forks_inside:
        inside.enter()
    child = os.fork()
    if child == 0:
        os._exit(0 if (told == ["begin"] if forks_inside else told == ["begin", "end"]) else 1)
    other.leave()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    if forks_inside:
        inside.leave()
    assert told == ["begin", "end"]
