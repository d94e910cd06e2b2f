"""Tracebacks as the user reads them: their own frames, and of autojit's only those that say something.

A call of a compiled function passes through some twenty frames of autojit's before the user's function runs, and an op
in it through some ten more. Of every run of such frames the first is what the user called; behind the last of all is
where the error was raised. What is between tells the user nothing. ``AUTOJIT_FULL_TRACEBACK=1`` keeps it.
"""

from __future__ import annotations

import contextlib
from types import TracebackType

from autojit.core.config import config
from autojit.core.errors import AutojitError
from autojit.core.source import is_own

KEPT_OF_DEFECTS = 3  # innermost frames of autojit's that stay where the error is not one it means to raise


def trim(error: BaseException) -> None:
    """Take the inner frames of autojit's out of an error's traceback, and out of those of the errors it came from.

    Called by the frame that handles the error, where a call of the user's into autojit ends: a compiled function, a
    module, ``backward``, an optimiser's step. That frame stays.
    """
    if config.full_traceback:
        return
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        if found.__traceback__ is not None:
            _trim(found.__traceback__, 1 if isinstance(found, AutojitError) else KEPT_OF_DEFECTS)
        found = found.__cause__ or found.__context__


def _trim(traceback: TracebackType, kept: int) -> None:
    entries = [traceback]
    while entries[-1].tb_next is not None:
        entries.append(entries[-1].tb_next)
    codes = [entry.tb_frame.f_code for entry in entries]
    inner = [is_own(code) or code.co_filename == contextlib.__file__ for code in codes]
    last = len(entries) - (kept if inner[-1] else 0)
    before = traceback
    for place in range(1, len(entries)):
        if not inner[place] or not inner[place - 1] or place >= last:
            before.tb_next = entries[place]
            before = entries[place]
    before.tb_next = None
