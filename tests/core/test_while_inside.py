"""What the process has changed while any thread is inside is put back by the last, whatever threads and forks do."""

from __future__ import annotations

import os
import threading

import pytest

from autojit.core.while_inside import WhileInside


def noted() -> tuple[WhileInside, list[str]]:
    told: list[str] = []
    return WhileInside(lambda: told.append("begin"), lambda: told.append("end")), told


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
    entered, may_leave = threading.Event(), threading.Event()

    def stay() -> None:
        with inside():
            entered.set()
            may_leave.wait(30)

    other = threading.Thread(target=stay)
    with inside():
        other.start()
        assert entered.wait(30)
    assert (told, inside.has_me()) == (["begin"], False)
    may_leave.set()
    other.join()
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
    entered, may_leave = threading.Event(), threading.Event()

    def stay() -> None:
        with inside():
            entered.set()
            may_leave.wait(30)

    other = threading.Thread(target=stay)
    other.start()
    assert entered.wait(30)
    if forks_inside:
        inside.enter()
    child = os.fork()
    if child == 0:
        os._exit(0 if (told == ["begin"] if forks_inside else told == ["begin", "end"]) else 1)
    may_leave.set()
    other.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    if forks_inside:
        inside.leave()
    assert told == ["begin", "end"]
