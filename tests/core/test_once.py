"""Made once per key: racing threads get one result, and nothing that was handed out is ever dropped."""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from autojit.core.locks import is_mine, new_lock
from autojit.core.once import once


@pytest.fixture(autouse=True)
def _threads_change_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def in_threads(count: int, work: Callable[[int], Any]) -> list[Any]:
    """What ``work`` gives in each of several threads that start at the same moment."""
    found: list[Any] = [None] * count
    begin = threading.Barrier(count)

    def run(k: int) -> None:
        begin.wait()
        try:
            found[k] = work(k)
        except BaseException as error:
            found[k] = error

    threads = [threading.Thread(target=run, args=(k,)) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert not any(thread.is_alive() for thread in threads)
    return found


class Thing:
    """Something that owns something."""


def test_racing_threads_get_one_thing_that_was_made_once() -> None:
    made: list[weakref.ref[Thing]] = []

    @once
    def thing(key: int) -> Thing:
        found = Thing()
        time.sleep(1e-3)
        made.append(weakref.ref(found))
        return found

    for key in range(20):
        found = in_threads(8, lambda k, key=key: thing(key))  # type: ignore[misc]
        assert len(set(map(id, found))) == 1
        assert len(made) == key + 1 and made[key]() is found[0]


def test_what_raises_is_made_again_and_the_error_goes_to_whoever_asked() -> None:
    calls: list[int] = []

    @once
    def third_time() -> Thing:
        calls.append(1)
        if len(calls) < 3:
            raise KeyError(len(calls))
        return Thing()

    found = in_threads(8, lambda k: third_time())
    assert sum(isinstance(f, KeyError) for f in found) == 2
    assert len({id(f) for f in found if isinstance(f, Thing)}) == 1 and len(calls) == 3


def test_asked_for_in_the_middle_of_its_own_making_the_first_result_stays() -> None:
    inner: list[Thing] = []

    @once
    def thing() -> Thing:
        if not inner:
            inner.append(Thing())
            inner[0] = thing()  # as a signal handler would
        return Thing()

    assert thing() is inner[0] and thing() is inner[0]


def test_forgotten_things_are_made_again() -> None:
    @once
    def thing() -> Thing:
        return Thing()

    before = thing()
    thing.forget()
    assert thing() is not before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_finds_free_what_other_threads_held_and_held_what_it_holds_itself() -> None:
    theirs, mine = new_lock(), new_lock()
    is_held, may_go = threading.Event(), threading.Event()

    def hold() -> None:
        with theirs:
            is_held.set()
            may_go.wait(120)

    thread = threading.Thread(target=hold)
    thread.start()
    is_held.wait(120)
    with mine:
        child = os.fork()
        if child == 0:
            os._exit(0 if is_mine(mine) and theirs.acquire(timeout=60) and is_mine(theirs) else 1)
        _, status = os.waitpid(child, 0)
    may_go.set()
    thread.join()
    assert os.waitstatus_to_exitcode(status) == 0
