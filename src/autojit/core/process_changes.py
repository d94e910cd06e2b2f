"""Something of the process that is otherwise while any thread is inside: changed by the first, put back by the last.

Python's limit of recursion, its garbage collector, ``sys.stdout`` and the functions of ``math`` belong to all threads.
Whoever needs one changed says how it is changed and put back; threads may overlap, nest and fork.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from autojit.core.late_interrupts import late_interrupts
from autojit.core.locks import in_forked_child, new_lock


class WhileInside:
    """One such change: ``begin`` makes it, ``end`` puts it back; never both at the same time, always alternately."""

    def __init__(self, begin: Callable[[], None], end: Callable[[], None]) -> None:
        self._begin, self._end = begin, end
        self._depths: dict[int, int] = {}  # how often each thread is inside
        self._lock = new_lock()
        in_forked_child(self._only_this_thread)

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Inside, the change holds, in all threads."""
        with late_interrupts:
            self.enter()
            try:
                yield
            finally:
                self.leave()

    def enter(self) -> None:
        """This thread is inside, once more; it leaves as often."""
        me = threading.get_ident()
        with self._lock:
            if not self._depths:
                self._begin()
            self._depths[me] = self._depths.get(me, 0) + 1

    def leave(self) -> None:
        """This thread leaves, once."""
        me = threading.get_ident()
        with self._lock:
            self._depths[me] -= 1
            if not self._depths[me]:
                del self._depths[me]
            if not self._depths:
                self._end()

    def has_me(self) -> bool:
        """Whether the calling thread is inside."""
        return threading.get_ident() in self._depths

    @contextmanager
    def put_back(self) -> Iterator[None]:
        """Inside, things are as they are when nobody is inside; whoever enters or leaves meanwhile waits."""
        with late_interrupts, self._lock:
            if self._depths:
                self._end()
            try:
                yield
            finally:
                if self._depths:
                    self._begin()

    def _only_this_thread(self) -> None:
        """The other threads of the parent do not exist in the child."""
        me, was_inside = threading.get_ident(), bool(self._depths)
        self._depths = {me: self._depths[me]} if me in self._depths else {}
        if was_inside and not self._depths:
            self._end()
