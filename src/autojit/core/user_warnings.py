"""Warnings that point at the user's line.

Python shows a warning once per line it is about. A warning that is about a line of autojit's is shown once in a
program, whatever the user does wrong later, and says nothing about where. How deep the user's line is depends on the
way in (a function, a method, a module, a compiled step), so it is looked for.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from autojit.core.source import is_passed


class _Taker(threading.local):
    """Who takes this thread's warnings over, to issue them whenever what led to them is done again."""

    take: Callable[[str, type[Warning]], bool] | None = None
    is_trying: bool = False  # errors are met again by whoever asks for what is tried now: they are explained then


taker = _Taker()


@contextmanager
def trying() -> Iterator[None]:
    """What fails inside will be done, and fail, again: nobody is told why yet."""
    before, taker.is_trying = taker.is_trying, True
    try:
        yield
    finally:
        taker.is_trying = before


def warn(message: str, category: type[Warning] = UserWarning, *, is_once: bool = False) -> None:
    """``warnings.warn`` about the innermost line of a user's that led here.

    ``is_once``: nobody says it again in this process, so the warning is given now.
    """
    if is_once or taker.take is None or not taker.take(message, category):
        _warn_now(message, category)


def _warn_now(message: str, category: type[Warning]) -> None:
    level, frame = 2, sys._getframe(1)
    outer: FrameType | None = frame
    while outer is not None and is_passed(outer.f_code):
        name = outer.f_code.co_filename
        if not ("importlib" in name and "_bootstrap" in name):  # ``warnings`` does not count frames of an import
            level += 1
        outer = outer.f_back
    warnings.warn(message, category, stacklevel=level if outer is not None else 2)


def warn_beside_error(text: str) -> None:
    """A warning that never replaces the error it explains, even where warnings are errors."""
    if taker.is_trying:
        return
    try:
        _warn_now(text, UserWarning)
    except UserWarning:
        sys.stderr.write(f"{text}\n")
