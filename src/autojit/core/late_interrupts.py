"""Interrupts that come late: what a signal handler raises waits until autojit's own bookkeeping is in order again.

Python runs signal handlers in the main thread, between any two of its instructions: what Ctrl-C raises there would cut
autojit's own ``finally`` in two, or come between a lock's being taken and its being noted, and the lock would stay
taken for ever. Inside ``with late_interrupts:`` handlers run when they should, and what they raise

- goes on at once where the user's own code runs (a function that is captured), or a native call asks for it;
- is kept where autojit runs, or the libraries that it calls, and raised when the thread leaves.

The handlers are wrapped while the main thread is inside and put back when it leaves; other threads have none.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the enumerations of ``signal`` cost ten times as much
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_NUMBERS = tuple(sorted(int(n) for n in _signal.valid_signals()))
_LOOKED_THROUGH = sys.stdlib_module_names | {"numpy", "llvmlite"}  # they run for whoever calls them


def _is_ours(frame: FrameType | None) -> bool:
    """Whether autojit runs in a frame, or a library for it."""
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package not in _LOOKED_THROUGH:
            return package == "autojit"
        frame = frame.f_back
    return False


class _Wrapped:
    """What stands for a signal's handler. Outside, where an interrupt may have left it, it is no more than that."""

    def __init__(self, owner: LateInterrupts, number: int) -> None:
        self.owner, self.number = owner, number
        self.handler: Any = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        owner = self.owner
        if owner.depth <= owner.floor or owner.is_asked() or not _is_ours(frame):
            self.handler(number, frame)
            return
        try:
            self.handler(number, frame)
        except BaseException as error:
            if owner.kept is None:
                owner.kept = error.with_traceback(None)


class LateInterrupts:
    """See the module. A context that the thread may enter again inside; in other threads it does nothing."""

    def __init__(self) -> None:
        self.depth = 0  # how often the main thread is inside
        self.floor = 0  # up to which depth interrupts come at once
        self.kept: BaseException | None = None
        self.is_asked: Callable[[], bool] = bool  # whether a native call asks for what handlers raise
        self._wrapped = {number: _Wrapped(self, number) for number in _NUMBERS}
        self._found: tuple[Any, ...] = ()  # the handlers when they were last looked at
        self._with_handler: list[int] = []  # signals that have one in Python
        self._main = threading.main_thread().ident

    def __enter__(self) -> None:
        if threading.get_ident() != self._main:
            return
        if self.depth:
            self.depth += 1
            return
        try:
            self._wrap()
            self.depth = 1  # the handlers keep what they raise from here on: nothing comes in between
        except BaseException:
            self._unwrap()
            raise

    def __exit__(self, *error: object) -> None:
        if threading.get_ident() != self._main:
            return
        if self.depth > 1:
            self.depth -= 1
        else:
            try:
                self.depth = self.floor = 0
                self._unwrap()
            except BaseException:
                self._unwrap()
                raise
        if self.depth <= self.floor:
            self._raise_kept()

    def poll(self) -> None:
        """Raise what is kept: here it does no harm."""
        if self.kept is not None and threading.get_ident() == self._main:
            self._raise_kept()

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """While the user's function runs line by line: interrupts come as in eager mode, but where this is entered."""
        if threading.get_ident() != self._main:
            yield
            return
        before, self.floor = self.floor, self.depth
        try:
            self.poll()
            yield
        finally:
            self.floor = before

    def _raise_kept(self) -> None:
        kept, self.kept = self.kept, None
        if kept is not None:
            raise kept

    def _wrap(self) -> None:
        found = tuple(map(_signal.getsignal, _NUMBERS))
        if found != self._found:
            self._with_handler = [n for n, handler in zip(_NUMBERS, found, strict=True) if callable(handler)]
            self._found = found
        for number in self._with_handler:
            handler = _signal.getsignal(number)
            if type(handler) is not _Wrapped:
                self._wrapped[number].handler = handler
                _signal.signal(number, self._wrapped[number])

    def _unwrap(self) -> None:
        for number in self._with_handler:
            present = _signal.getsignal(number)
            if type(present) is _Wrapped:  # else the user's function has set another
                _signal.signal(number, present.handler)

    def _after_fork_in_child(self) -> None:
        """The thread that forked is the main thread here."""
        if self._main != threading.get_ident():
            self._main, self.depth, self.floor, self.kept = threading.get_ident(), 0, 0, None


late_interrupts: Any = LateInterrupts()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=late_interrupts._after_fork_in_child)
