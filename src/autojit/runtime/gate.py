"""The right to a step's memory: its pointer table, numbers, sizes, output rings, arenas and plan.

One thread at a time has it. A native call takes it without a lock: it looks at both words and stores its thread in the
first, which nothing can come between because it holds the interpreter lock meanwhile. Python takes the lock, stores the
second word, after which no native call begins, and waits until the first is 0. So neither costs the other more than
two loads. The order of locks: a jitted function's, then a gate's, then those of caches and memory.
"""

from __future__ import annotations

import ctypes
import threading
import time
from typing import Self

from autojit.core.config import config
from autojit.core.late_interrupts import late_interrupts
from autojit.core.locks import is_mine, new_lock

GATE_WORDS = 2  # the thread of the native call, 0: none; 1 while Python has the gate or waits for it
_SHORTEST_WAIT_S = 20e-6
_LONGEST_WAIT_S = 1e-3


class Reentered(RuntimeError):
    """A thread asked for a gate that it has: from a signal handler, a finaliser, or an op that the step calls back."""


class _UnlessReentered:
    """Passes over ``Reentered`` alone: ``contextlib.suppress`` would put others in the place of groups of errors."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> bool:
        return kind is Reentered


UNLESS_REENTERED = _UnlessReentered()


class Gate:
    """See the module. ``address`` is that of the words.

    Python enters with ``held()``; where that is too slow, by hand::

        with gate.lock:
            gate.check()
            try:
                gate.close()
                ...
            finally:
                gate.words[1] = 0  # natively again; a store, because an interrupt would come before a call
    """

    __slots__ = ("__weakref__", "address", "lock", "words")

    def __init__(self) -> None:
        self.words = (ctypes.c_int64 * GATE_WORDS)()
        self.address = ctypes.addressof(self.words)
        self.lock = new_lock()

    def check(self) -> None:
        """After the lock was taken.

        Raises:
            Reentered: the calling thread has the gate already.
        """
        if self.words[1] or self.words[0] == threading.get_ident():
            raise Reentered("a step was called in the middle of a call of it by the same thread")

    def close(self) -> None:
        """Let no native call begin any more, and wait for the one that runs."""
        self.words[1] = 1
        wait_s = _SHORTEST_WAIT_S
        while self.words[0]:
            time.sleep(wait_s)
            late_interrupts.poll()
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    def held(self) -> Self:
        """Have the gate inside ``with``; waits for whoever has it.

        Raises:
            Reentered: the calling thread has it.
        """
        return self

    def __enter__(self) -> None:
        late_interrupts.__enter__()
        try:
            self.lock.acquire()
            try:
                self.check()
                try:
                    self.close()
                except BaseException:
                    self.words[1] = 0
                    raise
            except BaseException:
                self.lock.release()
                raise
        except BaseException:
            late_interrupts.__exit__()
            raise

    def __exit__(self, *error: object) -> None:
        self.words[1] = 0
        self.lock.release()
        late_interrupts.__exit__(*error)

    def is_mine(self) -> bool:
        """Whether the calling thread has the gate."""
        return self.words[0] == threading.get_ident() or (bool(self.words[1]) and is_mine(self.lock))

    def is_taken(self) -> bool:
        """Whether any thread has it or waits for it."""
        return bool(self.words[0] or self.words[1])

    def expect_mine(self) -> None:
        """In checked builds, see that the calling thread may touch what the gate is for."""
        assert not config.check or self.is_mine(), "the memory of a step is touched without its gate"

    def forget_others(self) -> bool:
        """In a forked child: whether another thread of the parent had the gate, which is free now."""
        if self.is_mine() or not self.is_taken():
            return False
        self.words[0] = self.words[1] = 0
        return True
