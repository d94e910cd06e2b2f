"""Waiting for what is compiled beside: several threads may need the same, each is let through when it is there."""

from __future__ import annotations

import threading
import time

import pytest

from autojit.core.locks import new_lock
from autojit.runtime import background


def test_one_thread_at_a_time_joins_what_several_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """``Thread.join`` of CPython 3.11 fails now and then where two threads wake up from it together."""
    inside, most = [0], [0]

    class Ending:
        def join(self) -> None:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            time.sleep(0.002)
            inside[0] -= 1

    monkeypatch.setitem(background._begun, "what several need", (Ending(), new_lock()))  # type: ignore[arg-type]
    threads = [threading.Thread(target=background.wait_for, args=("what several need",)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (inside, most) == ([0], [1])


def test_waiting_for_what_was_never_begun_ends_at_once() -> None:
    background.wait_for("what nobody has begun")
