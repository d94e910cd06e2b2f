"""Kernels that are compiled beside the calls they are for: until one is there, NumPy serves.

Compiling takes 50 to 400 ms, or 20 to 50 from the disk cache: long against a sequence that NumPy goes through in a few
ms, and unbearable in somebody's debugger. So the first call of a kind asks for nothing (most programs that make one
call make no second), the second has the kernel made by a thread, and calls after that use it. Results then differ
from NumPy's by rounding. Where that must not be, two things say so: deterministic algorithms wait for the kernel from
the first call on, and who compares results of the same call (``gradcheck``) lets none come meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Any

from autojit.core.locks import in_forked_child, new_lock
from autojit.core.process_changes import WhileInside
from autojit.core.undivided_work import undivided

MOST_KINDS = 1024
Make = Callable[[], Any]

_NOT_YET: Any = object()  # asked for once, or being made


class AwaitedKernels:
    """Kernels by what they are for. ``at_once``: whoever asks waits for the kernel."""

    def __init__(self) -> None:
        self.at_once = False
        self._known: dict[Hashable, Any] = {}
        self._made: dict[Hashable, Any] = {}  # what nobody has asked for since; an exception where there is none
        self._waiting: deque[tuple[Hashable, Make]] = deque()
        self._is_working = False
        self._is_settled = False
        self.settled = WhileInside(lambda: self._settle(True), lambda: self._settle(False))
        """A context in which no kernel comes: equal calls give equal results, whichever thread makes them."""
        self._lock = new_lock()

    @property
    def is_settled(self) -> bool:
        """Whether some thread is inside ``settled``."""
        return self._is_settled

    @property
    def is_working(self) -> bool:
        """Whether a thread is making kernels."""
        return self._is_working

    def find(self, kind: Hashable, make: Make) -> Any:
        """The kernel, which ``make`` makes; None as long as there is none.

        Raises:
            what ``make`` raised.
        """
        found = self._known.get(kind, self)
        if found is not self and found is not _NOT_YET:
            return found
        if self._is_settled:
            return None
        if self.at_once:
            made = self._known[kind] = make()
            return made
        if found is self:
            if len(self._known) >= MOST_KINDS:
                self._known.clear()
            self._known[kind] = _NOT_YET
            return None
        return self._second(kind, make)

    def _second(self, kind: Hashable, make: Make) -> Any:
        """The kernel if it was made meanwhile; it is asked for if it has not been."""
        with self._lock:
            if kind in self._made:
                made = self._made[kind]
                if made is _NOT_YET:
                    return None
                del self._made[kind]
                if isinstance(made, BaseException):
                    raise made
                self._known[kind] = made
                return made
            self._made[kind] = _NOT_YET
            self._waiting.append((kind, make))
            if self._is_working:
                return None
            self._is_working = True
        self._begin()
        return None

    def _begin(self) -> None:
        with undivided:
            from autojit.runtime.background import helper  # with the compiler, when a kernel is first needed
        if helper(self._work, "kernels of eager mode") is None:
            self._work()  # the interpreter ends, and with it the need to be quick

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._is_working = False
                    return
                kind, make = self._waiting.popleft()
            try:
                made = make()
            except Exception as error:  # the next call raises it, where the user sees it
                made = error
            with self._lock:
                self._made[kind] = made

    def _settle(self, is_settled: bool) -> None:
        self._is_settled = is_settled

    def forget_threads(self) -> None:
        """In a forked child: the thread that worked does not exist."""
        self._waiting.clear()
        self._made.clear()
        self._is_working = False


awaited = AwaitedKernels()
in_forked_child(awaited.forget_threads)
