"""Work that neither a fork nor an interrupt must cut in two: imports that were left for later, and LLVM.

A forked child inherits what other threads were in the middle of and not the threads that would finish it: a half-made
module, whose import waits for ever, or LLVM with its locks taken. So a fork waits until no thread is inside. So does
the end of the process, which frees what belongs to LLVM while daemon threads may still run.

Whoever takes a lock in such work enters here first: a thread that waits at the door with a lock would hold up one that
is inside.
"""

from __future__ import annotations

import atexit
import os
import threading
from typing import Any

from autojit.core.late_interrupts import late_interrupts


class _Here(threading.local):
    """Of this thread: how often it is inside, and whether it helps one that is."""

    depth: int = 0
    is_helper: bool = False


class Undivided:
    """A context for such work, entered by any number of threads; at the door new ones wait while somebody forks."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.RLock())
        self._inside = 0
        self._closed_by = 0  # the thread that forks, or ends the process
        self._here = _Here()

    def __enter__(self) -> None:
        late_interrupts.__enter__()  # what an interrupt cut in two would count as inside for ever
        me, here = threading.get_ident(), self._here
        with self._changed:
            if not here.depth and not here.is_helper:
                self._changed.wait_for(lambda: self._closed_by in (0, me))
            self._inside += 1
            here.depth += 1

    def __exit__(self, *error: object) -> None:
        with self._changed:
            self._inside -= 1
            self._here.depth -= 1
            self._changed.notify_all()
        late_interrupts.__exit__()

    def let_in(self) -> None:
        """The calling thread works for one that is inside, which waits for it: it never waits at the door."""
        self._here.is_helper = True

    def before_fork(self) -> None:
        """Hold the lock with no other thread inside."""
        late_interrupts.__enter__()
        self._changed.acquire()
        self._close()

    def after_fork_in_parent(self) -> None:
        """Let threads in again."""
        self._closed_by = 0
        self._changed.notify_all()
        self._changed.release()
        late_interrupts.__exit__()

    def after_fork_in_child(self) -> None:
        """The same, where those who waited do not exist."""
        self._closed_by = 0
        self._changed = threading.Condition(threading.RLock())
        late_interrupts.__exit__()

    def at_exit(self) -> None:
        """Wait until no other thread is inside; those that come then wait for the end."""
        with self._changed:
            self._close()

    def _close(self) -> None:
        self._closed_by = threading.get_ident()
        self._changed.wait_for(lambda: self._inside == self._here.depth)


undivided: Any = Undivided()
atexit.register(undivided.at_exit)

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=undivided.before_fork,
        after_in_parent=undivided.after_fork_in_parent,
        after_in_child=undivided.after_fork_in_child,
    )
