"""Locks that a forked child finds as it needs them: free, except for those that the forking thread holds itself.

A fork copies locks but not the threads that hold them, so a lock held elsewhere would never be released in the child.
What such a lock protects is left as it was in the middle of something; every user of `new_lock` therefore changes what
it protects in single steps that leave it sound, or mends it `in_forked_child`.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from autojit.core.late_interrupts import late_interrupts

_locks: weakref.WeakSet[Any] = weakref.WeakSet()
_repairs: list[Callable[[], None]] = []


def new_lock() -> Any:
    """A re-entrant lock (``threading.RLock``): signal handlers and finalisers may run in the middle of anything."""
    lock: Any = threading.RLock()
    _locks.add(lock)
    return lock


def new_condition() -> threading.Condition:
    """A condition on such a lock."""
    return threading.Condition(new_lock())


def in_forked_child(repair: Callable[[], None]) -> Callable[[], None]:
    """Call ``repair`` in every forked child, after the locks are free; as a decorator."""
    _repairs.append(repair)
    return repair


def is_mine(lock: Any) -> bool:
    """Whether the calling thread holds a lock of `new_lock`; for assertions."""
    return bool(lock._is_owned())


@contextmanager
def without_waiting(lock: threading.RLock) -> Iterator[bool]:
    """Enter the lock if no other thread holds it; whether it was entered."""
    with late_interrupts:
        is_taken = lock.acquire(blocking=False)
        try:
            yield is_taken
        finally:
            if is_taken:
                lock.release()


def _after_fork_in_child() -> None:
    for lock in tuple(_locks):
        if not lock._is_owned():
            lock._at_fork_reinit()
    for repair in _repairs:
        repair()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
