"""Futures: one result, told to everybody who asks, before or after."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from autojit.distributed.work import Work
from autojit.futures import Future, collect_all, wait_all
from autojit.jit import fork


def test_callbacks_follow_in_order_whether_asked_for_before_or_after() -> None:
    future: Future[int] = Future()
    seen: list[int] = []
    future.add_done_callback(lambda f: seen.append(f.value()))
    future.add_done_callback(lambda f: seen.append(f.value() + 1))
    assert not future.done()
    future.set_result(1)
    future.add_done_callback(lambda f: seen.append(f.value() + 2))
    assert seen == [1, 2, 3] and future.wait() == 1
    with pytest.raises(RuntimeError, match="once"):
        future.set_result(2)


def test_exceptions_go_along_chains() -> None:
    no_exception: Any = "text"
    first: Future[int] = Future()
    last = first.then(lambda f: f.value() + 1).then(lambda f: f.value() + 1)
    first.set_exception(KeyError("lost"))
    with pytest.raises(KeyError, match="lost"):
        last.wait()
    with pytest.raises(KeyError):
        wait_all([first])
    with pytest.raises(TypeError):
        Future[int]().set_exception(no_exception)


def test_a_value_is_not_there_before_it_is_set_and_wait_waits_for_it() -> None:
    future: Future[str] = Future()
    with pytest.raises(RuntimeError, match="not done"):
        future.value()
    threading.Timer(0.01, future.set_result, ("late",)).start()
    assert future.wait() == "late"


def test_forked_calls_and_collectives_give_futures_of_the_same_kind() -> None:
    futures: list[Future[Any]] = [fork(max, 1, 2), Work(None, lambda: None, (3,)).get_future()]
    assert all(isinstance(future, Future) for future in futures)
    assert collect_all(futures).wait() is futures and wait_all(futures) == [2, [3]]
    assert wait_all([future.then(lambda f: f.value()) for future in futures]) == [2, [3]]
    with pytest.raises(RuntimeError):
        futures[1].set_result(4)


def test_a_callback_that_raises_keeps_no_other_from_being_called() -> None:
    given, called = Future[int](), []

    def fail(future: Future[int]) -> None:
        raise ValueError("expected")

    given.add_done_callback(fail)
    given.add_done_callback(lambda future: called.append(future.value()))
    with pytest.warns(UserWarning, match="error when running the callback: ValueError: expected"):
        given.set_result(3)
    with pytest.warns(UserWarning, match="expected"):
        given.add_done_callback(fail)
    assert called == [3] and given.wait() == 3
