"""Room on the stack for what walks a kernel's expressions.

The schedule and the code generator follow an expression from its result to what it reads, some frames per op; a kernel
has at most some hundred (``schedule.fusion.MAX_MEMBERS``). The depth is so bounded, but not by Python's limit of a
thousand, of which the user's own frames have taken an unknown part.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from autojit.core.locks import in_forked_child, new_lock

FRAMES = 12_000
"""Of 400 ops, up to 15 frames each (a guard whose arm reads through a look-up), twice for an arm nested in another."""


class _Depth(threading.local):
    """How often this thread is inside."""

    count: int = 0


_mine = _Depth()
_lock = new_lock()
_inside = 0
_raised = 0  # the limit while somebody is inside
_before = 0


@contextmanager
def headroom() -> Iterator[None]:
    """Inside, Python's limit of recursion is higher by `FRAMES`, in all threads; a limit that is set inside stays."""
    global _inside, _raised, _before
    with _lock:
        if _inside == 0:
            _before = sys.getrecursionlimit()
            _raised = _before + FRAMES
            sys.setrecursionlimit(_raised)
        _inside += 1
        _mine.count += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            _mine.count -= 1
            if _inside == 0 and sys.getrecursionlimit() == _raised:
                sys.setrecursionlimit(_before)


@in_forked_child
def _others_are_gone() -> None:
    """Only the thread that forked may be inside."""
    global _inside
    if _inside and not _mine.count and sys.getrecursionlimit() == _raised:
        sys.setrecursionlimit(_before)
    _inside = _mine.count
