"""Capturing and compiling without the cyclic garbage collector.

A compile makes many objects that stay and few cycles. The collector would look at all of them again and again, which
takes a good tenth of the time.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from autojit.core.locks import in_forked_child, new_lock

_lock = new_lock()
_inside = 0
_was_enabled = False


class _Depth(threading.local):
    """How often this thread is inside."""

    count: int = 0


_mine = _Depth()


@contextmanager
def uncollected() -> Iterator[None]:
    """Inside, Python's garbage collector rests, in all threads; what was made counts as old afterwards."""
    global _inside, _was_enabled
    with _lock:
        if _inside == 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        _inside += 1
        _mine.count += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            _mine.count -= 1
            if _inside == 0 and _was_enabled:
                if gc.get_freeze_count() == 0:  # else they are the user's
                    gc.freeze()
                    gc.unfreeze()  # hands everything over to the oldest generation
                gc.enable()


@in_forked_child
def _only_this_thread() -> None:
    """The threads that compiled in the parent do not exist here."""
    global _inside
    if _inside and not _mine.count and _was_enabled:
        gc.enable()
    _inside = _mine.count
