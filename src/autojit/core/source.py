"""Source locations: the user's line behind every node.

``here()`` walks out of autojit's own frames; it keeps only the code object and the instruction offset (two pointers),
the line is computed when somebody asks.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_OWN: dict[str, bool] = {}  # by file name: a string knows its hash, a code object computes it anew
_recorder: Callable[[FrameType], SourceLocation] | None = None


class SourceLocation:
    """A user's code object and an instruction in it; ``str`` gives ``file.py:41``."""

    __slots__ = ("code", "instruction")

    def __init__(self, code: CodeType | None, instruction: int) -> None:
        self.code = code
        self.instruction = instruction

    @property
    def file(self) -> str:
        return self.code.co_filename if self.code else "<unknown>"

    @property
    def function(self) -> str:
        return self.code.co_name if self.code else "<unknown>"

    @property
    def line(self) -> int:
        if self.code is None:
            return 0
        for start, end, line in self.code.co_lines():
            if start <= self.instruction < end and line is not None:
                return line
        return self.code.co_firstlineno

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.line}" if self.code else "<unknown>"

    __repr__ = __str__


UNKNOWN = SourceLocation(None, 0)


def is_own(code: CodeType) -> bool:
    """Whether a code object belongs to autojit (and not to the user or to autojit's tests)."""
    own = _OWN.get(code.co_filename)
    if own is None:
        own = _OWN[code.co_filename] = os.path.abspath(code.co_filename).startswith(_PACKAGE)
    return own


def here(of_history: bool = False, depth: int = 1) -> SourceLocation:
    """The innermost frame outside autojit; for a node of the history, what the recorder makes of it if one is set.

    The frames less than ``depth`` calls up are known to be autojit's.
    """
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None:
        code = frame.f_code
        own = _OWN.get(code.co_filename)
        if own is None:
            own = is_own(code)
        if not own:
            if of_history and _recorder is not None:
                return _recorder(frame)
            return SourceLocation(code, frame.f_lasti)
        frame = frame.f_back
    return UNKNOWN


class _Entered(threading.local):
    """A frame of autojit's that the thread is in, far out, and the user's line behind it once somebody asked."""

    frame: FrameType | None = None
    place: SourceLocation | None = None


_entered = _Entered()


def enter(frame: FrameType | None) -> tuple[FrameType | None, SourceLocation | None]:
    """Say that the thread is in a frame of autojit's, until `leave` is given what is returned.

    The way of `here_inside` ends there.
    """
    before = _entered.frame, _entered.place
    _entered.frame, _entered.place = frame, None
    return before


def leave(before: tuple[FrameType | None, SourceLocation | None]) -> None:
    """The end of what `enter` began."""
    _entered.frame, _entered.place = before


def here_inside(depth: int = 1) -> SourceLocation:
    """``here()``, which looks no further than the frame that was entered last: the user's line behind it stands."""
    entered = _entered.frame
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None:
        if frame is entered:
            if _entered.place is None:
                _entered.place = _outside(frame.f_back)
            return _entered.place
        code = frame.f_code
        own = _OWN.get(code.co_filename)
        if own is None:
            own = is_own(code)
        if not own:
            return SourceLocation(code, frame.f_lasti)
        frame = frame.f_back
    return UNKNOWN


def _outside(frame: FrameType | None) -> SourceLocation:
    while frame is not None and is_own(frame.f_code):
        frame = frame.f_back
    return UNKNOWN if frame is None else SourceLocation(frame.f_code, frame.f_lasti)


def set_recorder(recorder: Callable[[FrameType], SourceLocation] | None) -> None:
    """Let nodes of the history keep what ``recorder`` makes of the user's frame: anomaly mode keeps the stack."""
    global _recorder
    _recorder = recorder


def relay(wrapper: Callable[..., Any]) -> None:
    """Let messages speak of the function that ``wrapper`` calls, whose parameters have names, not of the wrapper."""
    _relays.add(_place(wrapper.__code__))


def _place(code: CodeType) -> tuple[str, int]:
    return code.co_filename, code.co_firstlineno


_relays: set[tuple[str, int]] = set()


def for_history(place: SourceLocation) -> SourceLocation | None:
    """What a node of the history keeps that is recorded where ``place`` was just found; None: it has to ask itself."""
    return place if _recorder is None else None


def user_call() -> tuple[SourceLocation, str, dict[str, object]] | None:
    """The call that led here from the innermost frame outside autojit: place, function, arguments by name.

    For error messages only, for it is slow.
    """
    callee: FrameType | None = None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_own(frame.f_code):
        if _place(frame.f_code) not in _relays or callee is None:
            callee = frame
        frame = frame.f_back
    if frame is None or callee is None or frame.f_code.co_filename.startswith("<frozen "):  # by ``python -m``
        return None
    return SourceLocation(frame.f_code, frame.f_lasti), _name_of(callee), _arguments_of(callee)


def _name_of(frame: FrameType) -> str:
    name = frame.f_code.co_name
    if name == "__call__" and "self" in frame.f_locals:
        name = type(frame.f_locals["self"]).__name__
    return name.strip("_") if name.startswith("__") else name


def _arguments_of(frame: FrameType) -> dict[str, object]:
    code, found = frame.f_code, frame.f_locals
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
    return {name: found[name] for name in code.co_varnames[:count] if name in found}
