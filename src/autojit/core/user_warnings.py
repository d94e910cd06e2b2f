"""Warnings that point at the user's line.

Python shows a warning once per line it is about. A warning that is about a line of autojit's is shown once in a
program, whatever the user does wrong later, and says nothing about where. How deep the user's line is depends on the
way in (a function, a method, a module, a compiled step), so it is looked for.
"""

from __future__ import annotations

import sys
import warnings
from types import FrameType

from autojit.core.source import is_passed


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """``warnings.warn`` about the innermost line of a user's that led here."""
    level, frame = 2, sys._getframe(1)
    outer: FrameType | None = frame
    while outer is not None and is_passed(outer.f_code):
        if not _is_unseen(outer):
            level += 1
        outer = outer.f_back
    warnings.warn(message, category, stacklevel=level if outer is not None else 2)


def warn_beside_error(text: str) -> None:
    """A warning that never replaces the error it explains, even where warnings are errors."""
    try:
        warn(text, UserWarning)
    except UserWarning:
        sys.stderr.write(f"{text}\n")


def _is_unseen(frame: FrameType) -> bool:
    """Whether ``warnings`` does not count a frame: those of an import."""
    name = frame.f_code.co_filename
    return "importlib" in name and "_bootstrap" in name
