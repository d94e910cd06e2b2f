"""Failed calls: after a call that raises, optimisers keep what they kept before it.

What a step of an optimiser needs (moments, counters) is made before anything runs: while the step is captured, or when
a compiled step finds it cleared. The capture may be refused yet, and what is compiled may raise.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class _Call(threading.local):
    """The call that this thread makes through Python: by id of the optimiser, how to put back what it kept."""

    put_back: dict[int, Callable[[], None]] | None = None


_call = _Call()


@contextmanager
def undone_if_failed() -> Iterator[Callable[[], None]]:
    """What optimisers keep is put back if the body raises, or calls what it is given: its attempts came to nothing."""
    before = _call.put_back
    mine: dict[int, Callable[[], None]] = {}
    _call.put_back = mine

    def undo() -> None:
        for put_back in mine.values():
            put_back()

    try:
        yield undo
    except BaseException:
        undo()
        raise
    finally:
        _call.put_back = before


def may_change(holder: Any) -> None:
    """An optimiser may be about to make state for the present call."""
    if _call.put_back is not None and id(holder) not in _call.put_back:
        _call.put_back[id(holder)] = holder.kept()


def has_run() -> None:
    """The compiled step has run: whatever comes up now, what optimisers keep is what it has left."""
    if _call.put_back is not None:
        _call.put_back.clear()
