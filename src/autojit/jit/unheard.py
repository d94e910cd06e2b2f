"""A thread whose prints are dropped: what a captured function says when it is recorded once more, it has said before.

``sys.stdout`` belongs to the process. It is replaced while any thread is unheard, by one stream for all of them, which
drops what these threads write and hands on what others do.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from autojit.core.locks import in_forked_child, new_lock


class _Selective:
    """A stream that drops what some threads write, and is another stream in everything else."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        return len(text) if threading.get_ident() in _depths else int(self.stream.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


_lock = new_lock()
_depths: dict[int, int] = {}  # how often each thread is inside
_installed: list[_Selective] = []


@contextmanager
def unheard() -> Iterator[None]:
    """Inside, this thread's prints are dropped."""
    me = threading.get_ident()
    with _lock:
        _depths[me] = _depths.get(me, 0) + 1
        if len(_depths) == 1 and _depths[me] == 1:
            _installed.append(_Selective(sys.stdout))
            sys.stdout = _installed[-1]
    try:
        yield
    finally:
        with _lock:
            _leave(me)


def _leave(thread: int) -> None:
    _depths[thread] -= 1
    if not _depths[thread]:
        del _depths[thread]
    if not _depths and _installed:
        ours = _installed.pop()
        if sys.stdout is ours:  # else somebody else has replaced it meanwhile, and puts back what they found
            sys.stdout = ours.stream


@in_forked_child
def _only_this_thread() -> None:
    """The threads that were recording in the parent do not exist here."""
    me = threading.get_ident()
    for thread in [thread for thread in _depths if thread != me]:
        _depths[thread] = 1
        _leave(thread)
