"""Source locations: the user's line behind every node.

``here()`` walks out of autojit's own frames, and of those of Python's library and NumPy between them and the user; it
keeps only code objects and the instruction offset (three pointers), the line is computed when somebody asks.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from inspect import signature
from types import CodeType, FrameType
from typing import Any, TypeVar

import numpy as np

from autojit.core.program_parts import PLAIN, Part
from autojit.core.rule_places import in_rule

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIBRARIES = (os.path.dirname(os.path.abspath(os.__file__)) + os.sep, os.path.dirname(np.__file__) + os.sep)
_OWN: dict[str, bool] = {}  # by file name: a string knows its hash, a code object computes it again each time
_PASSED: dict[str, bool] = {}  # the same for `is_passed`
_NAMED_BY_OBJECT = ("__call__", "__init__")  # users know these by the class of the object
_recorder: Callable[[FrameType], SourceLocation] | None = None


class SourceLocation:
    """A user's code object and an instruction in it; ``str`` gives ``file.py:41``.

    ``called`` is what the user called there: code of autojit's, or its name; None where nobody asked.
    """

    __slots__ = ("_line", "_part", "called", "code", "instruction")
    _part: Part  # set only where a step is captured: eager ops do without
    _line: int  # set when it was asked for: 40 us in a long function

    def __init__(self, code: CodeType | None, instruction: int, called: CodeType | str | None = None) -> None:
        self.code = code
        self.instruction = instruction
        self.called = called

    @property
    def part(self) -> Part:
        """The module and the phase of the program that an op of a step belongs to."""
        return getattr(self, "_part", PLAIN)

    def in_part(self, part: Part | None) -> SourceLocation:
        """The place, as one of this part of the program."""
        if part is not None:
            self._part = part
        return self

    def described(self) -> str:
        """``file.py:41``, and the module and phase behind it: ``file.py:41 (encoder.layer.3 backward)``."""
        part = str(self.part)
        return f"{self} ({part})" if part else str(self)

    @property
    def callee(self) -> str:
        """The name of what the user called there, "" if that is not known."""
        name = self.called.co_name if isinstance(self.called, CodeType) else self.called or ""
        return _plain_name(name)

    def is_call_of(self, other: SourceLocation) -> bool:
        """Whether two nodes come from one call of the user's."""
        return self.code is other.code and self.instruction == other.instruction

    @property
    def file(self) -> str:
        return self.code.co_filename if self.code else "<unknown>"

    @property
    def function(self) -> str:
        return self.code.co_name if self.code else "<unknown>"

    @property
    def line(self) -> int:
        known: int | None = getattr(self, "_line", None)
        if known is None:
            known = self._line = self._found_line()
        return known

    def _found_line(self) -> int:
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
Kind = TypeVar("Kind")
Place = tuple[CodeType, int, "CodeType | str | None"]  # what a SourceLocation is made of


def is_own(code: CodeType) -> bool:
    """Whether a code object belongs to autojit (and not to the user or to autojit's tests)."""
    own = _OWN.get(code.co_filename)
    if own is None:
        own = _OWN[code.co_filename] = os.path.abspath(code.co_filename).startswith(_PACKAGE)
    return own


def is_passed(code: CodeType) -> bool:
    """Whether a line of this code is not a user's: autojit's, or of a library through which the user's call came.

    ``contextlib`` around a decorated function, ``functools``, ``copy`` or NumPy's own functions tell a user nothing.
    """
    passed = _PASSED.get(code.co_filename)
    if passed is None:
        path = os.path.abspath(code.co_filename)
        is_library = path.startswith(_LIBRARIES) and "site-packages" not in path[len(_LIBRARIES[0]) :]
        is_library = is_library or path.startswith(_LIBRARIES[1]) or code.co_filename.startswith("<frozen ")
        passed = _PASSED[code.co_filename] = is_own(code) or is_library
    return passed


def here(of_history: bool = False, depth: int = 1, is_inside: bool = False) -> SourceLocation:
    """The innermost frame of a user; for a node of the history, what the recorder makes of it if one is set.

    The frames less than ``depth`` calls up are known to be autojit's. ``is_inside``: it looks no further than the frame
    that was entered last: the user's line behind it stands.
    """
    frame: FrameType | None = sys._getframe(depth)
    entered = _entered.frame if is_inside else None
    known = _kinds
    called: CodeType | None = None
    before: CodeType | None = None
    callee: FrameType | None = None  # the outermost of autojit's frames that does not only hand the call on
    relayed: FrameType | None = None  # the outermost of those that do
    while frame is not None:
        if frame is entered and not (of_history and _recorder is not None):
            if _entered.place is None:
                _entered.place = _outside(frame).in_part(_entered.part)
            return _entered.place
        code = frame.f_code
        found = known.get(id(code))
        if found is not None:
            kind = found[1]
        else:
            kind = _kind_of(code) if _PASSED.get(code.co_filename, True) else _USERS
        if not kind:
            if of_history and _recorder is not None:
                return _recorder(frame)
            if called is not None and _is_relay(called):
                called = before
                if before is not None and _is_relay(before):
                    called = _callee(sys._getframe(depth))
            if called is not None and called.co_name in _NAMED_BY_OBJECT:
                if _is_generated(frame):
                    return _outside(sys._getframe(depth))
                named = callee or relayed
                found_there = SourceLocation(code, frame.f_lasti, None if named is None else _name_of(named))
            else:
                found_there = SourceLocation(code, frame.f_lasti, called)
            return found_there.in_part(_entered.part) if is_inside else found_there
        if kind in (_OWN_CODE, _OWN_METHOD):
            callee = frame
        elif kind == _OWN_RELAY:
            relayed = frame
        before, called = called, code
        frame = frame.f_back
    return UNKNOWN


def user_place(depth: int = 1) -> SourceLocation:
    """``here(depth=depth)`` for who does not ask what the user called there: one look at every frame."""
    frame: FrameType | None = sys._getframe(depth)
    known = _kinds
    while frame is not None:
        code = frame.f_code
        is_users = id(code) not in known and (not _PASSED.get(code.co_filename, True) or not _kind_of(code))
        if is_users and not _is_generated(frame):
            return SourceLocation(code, frame.f_lasti)
        frame = frame.f_back
    return UNKNOWN


def place_in_history(depth: int) -> Place | SourceLocation:
    """``here(True, depth)`` for what eager ops record, as cheaply as possible: most often only what it is made of."""
    if in_rule.place is not None and _recorder is None:
        return in_rule.place
    frame: Any = sys._getframe(depth)
    outer: Any = None  # the last of those that are passed
    inner = third = None  # and those inside it
    passed = _PASSED
    code = frame.f_code
    try:
        while passed[code.co_filename]:
            third, inner, outer = inner, outer, frame
            frame = frame.f_back
            code = frame.f_code
        kind = _kinds[id(outer.f_code)][1]
        while kind == _OWN_RELAY:  # of the three outermost, else the rest is looked at
            outer, inner, third = inner, third, None
            kind = _kinds[id(outer.f_code)][1]
    except (KeyError, AttributeError):  # code that nobody has looked at, or no frame
        kind = _LIBRARY_CODE
    if kind == _OWN_CODE and _recorder is None:
        return code, frame.f_lasti, outer.f_code
    if kind == _OWN_METHOD and _recorder is None:
        return code, frame.f_lasti, _name_of_object(outer)
    return here(True, depth + 1)


def place_of_change(depth: int) -> Place | SourceLocation:
    """``here(depth=depth, is_inside=True)`` for what is changed in place, as cheaply as possible."""
    frame: FrameType | None = sys._getframe(depth)
    entered, place = _entered.frame, _entered.place
    if entered is None:
        return place_in_history(depth + 1) if _recorder is None else here(depth=depth + 1, is_inside=True)
    known = _kinds
    while frame is not None:
        if frame is entered and place is not None:
            return place
        if id(frame.f_code) not in known:
            break
        frame = frame.f_back
    return here(depth=depth + 1, is_inside=True)


def here_calling(name: str, depth: int) -> SourceLocation:
    """``here(True)`` of a node that is made while the user's frame, ``depth`` calls up, calls the function ``name``.

    Where that frame is not a user's, or is not known yet, somebody has come between: it is looked for.
    """
    frame = sys._getframe(depth - 1).f_back
    if frame is None:
        return here(True, 2)
    code = frame.f_code
    if _recorder is None and not _PASSED.get(code.co_filename, True) and id(code) not in _kinds:
        return SourceLocation(code, frame.f_lasti, name)
    return here(True, 2)


_USERS, _OWN_CODE, _OWN_RELAY, _LIBRARY_CODE, _OWN_METHOD = 0, 1, 2, 3, 4  # the last is named by its object
_kinds: dict[int, tuple[CodeType, int]] = {}
"""The kinds of code that is not a user's, by its id, which it has as long as it is here: a code object computes its
hash again each time. Users' is not kept alive.
"""
_KINDS_LIMIT = 1 << 14


def _kind_of(code: CodeType) -> int:
    """What a frame is to a walk out to the user."""
    if not is_passed(code):
        return _USERS
    kind = _LIBRARY_CODE
    if is_own(code):
        kind = _OWN_RELAY if _is_relay(code) else _OWN_METHOD if code.co_name in _NAMED_BY_OBJECT else _OWN_CODE
    if len(_kinds) >= _KINDS_LIMIT:
        _kinds.clear()
    _kinds[id(code)] = code, kind
    return kind


class _Entered(threading.local):
    """A frame of autojit's that the thread is in, far out, and the user's line behind it once somebody asked."""

    frame: FrameType | None = None
    place: SourceLocation | None = None
    part: Part | None = None  # of the program, which the ops inside belong to


_entered = _Entered()


Entering = tuple[FrameType | None, SourceLocation | None, Part | None]


def enter(frame: FrameType | None, part: Part | None = None, place: SourceLocation | None = None) -> Entering:
    """Say that the thread is in a frame of autojit's, until `leave` is given what is returned.

    The way of ``here(is_inside=True)`` ends there; ``place`` is the user's line behind it, if that is known already.
    What is found inside belongs to ``part`` of the program.
    """
    before = _entered.frame, _entered.place, _entered.part
    _entered.frame, _entered.place, _entered.part = frame, place, part
    return before


def leave(before: Entering) -> None:
    """The end of what `enter` began."""
    _entered.frame, _entered.place, _entered.part = before


def entered_part() -> Part | None:
    """The part of the program that the thread is in."""
    return _entered.part


def _outside(frame: FrameType) -> SourceLocation:
    """The user's line behind a frame of autojit's, and what it called."""
    found = _user_frame(frame)
    if found is None:
        return UNKNOWN
    user, callee = found
    return SourceLocation(user.f_code, user.f_lasti, None if callee is None else _name_of(callee))


def _is_generated(frame: FrameType) -> bool:
    """Whether a frame runs a method that ``dataclasses`` wrote for a class of autojit's."""
    own = str(frame.f_globals.get("__name__", "")).startswith("autojit.")
    return own and frame.f_code.co_filename == "<string>"


def _callee(start: FrameType) -> CodeType | None:
    """What the innermost frame of a user has called, where several frames only hand the call on."""
    found = _user_frame(start)
    return None if found is None or found[1] is None else found[1].f_code


def _user_frame(start: FrameType) -> tuple[FrameType, FrameType | None] | None:
    """The innermost frame of a user, and autojit's that it called; frames that only hand calls on are not spoken of."""
    callee: FrameType | None = None
    frame: FrameType | None = start
    while frame is not None and (is_passed(frame.f_code) or _is_generated(frame)):
        is_said = callee is None or _is_relay(callee.f_code) or not _is_relay(frame.f_code)
        if is_said and is_own(frame.f_code):
            callee = frame
        frame = frame.f_back
    return None if frame is None else (frame, callee)


def set_recorder(recorder: Callable[[FrameType], SourceLocation] | None) -> None:
    """Let nodes of the history keep what ``recorder`` makes of the user's frame: anomaly mode keeps the stack."""
    global _recorder
    _recorder = recorder


def relay(wrapper: Callable[..., Any]) -> None:
    """Let messages speak of the function that ``wrapper`` calls, whose parameters have names, not of the wrapper.

    Nor of functions that are written inside of it: what a user calls comes from elsewhere.
    """
    found = [wrapper.__code__]
    while found:
        code = found.pop()
        _relays.add((code.co_filename, code.co_firstlineno))
        _kinds.clear()
        found += [inner for inner in code.co_consts if isinstance(inner, CodeType)]


def _is_relay(code: CodeType) -> bool:
    return (code.co_filename, code.co_firstlineno) in _relays


_relays: set[tuple[str, int]] = set()  # a definition's place: methods have copies of its code


def for_history(place: SourceLocation) -> SourceLocation | None:
    """What a node of the history keeps that is recorded where ``place`` was just found; None: it has to ask itself."""
    return place if _recorder is None else None


def user_call() -> tuple[SourceLocation, str, dict[str, object]] | None:
    """The call that led here from the innermost frame outside autojit: place, function, arguments by name.

    For error messages only, for it is slow.
    """
    found = _user_frame(sys._getframe(1))
    if found is None:
        return None
    frame, callee = found
    if callee is None:
        return None
    return SourceLocation(frame.f_code, frame.f_lasti), _name_of(callee), _arguments_of(callee)


def _name_of(frame: FrameType) -> str:
    name = frame.f_code.co_name
    if _is_relay(frame.f_code):  # it failed itself
        name = getattr(frame.f_locals.get("function"), "__name__", name)
    return _name_of_object(frame) if name in _NAMED_BY_OBJECT else _plain_name(name)


def _name_of_object(frame: FrameType) -> str:
    """What users call the function of a frame that is a method of the names above; every op of a layer asks."""
    instance = frame.f_locals.get("self", _NOBODY)
    if instance is _NOBODY:
        return _plain_name(frame.f_code.co_name)
    kind = type(instance)
    return _plain_name(instance.name if kind in _named_by_function else kind.__name__)


def named_by_function(kind: type[Kind]) -> type[Kind]:
    """Let messages speak of the function that an object of the class stands for, its ``name``, not of the class."""
    _named_by_function.add(kind)
    return kind


_NOBODY: Any = object()
_named_by_function: set[type] = set()


def _plain_name(name: str) -> str:
    """``matmul`` for ``__matmul__``."""
    return name.strip("_") if name.startswith("__") else name


def stand_in(wrapper: Callable[..., Any]) -> None:
    """Let messages show what ``wrapper`` was given by the names of the parameters of the function that it calls.

    Its parameters are ``*arguments`` and ``**options``, and others that the function does not have.
    """
    _stand_ins.add((wrapper.__code__.co_filename, wrapper.__code__.co_firstlineno))


_stand_ins: set[tuple[str, int]] = set()


def _arguments_of(frame: FrameType) -> dict[str, object]:
    code, found = frame.f_code, frame.f_locals
    if (code.co_filename, code.co_firstlineno) in _stand_ins:
        return _handed_on(code, found)
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
    names = code.co_varnames[:count]
    shown = ("self", *names[1:]) if _is_method(code) else names
    return {as_shown: found[name] for as_shown, name in zip(shown, names, strict=True) if name in found}


def _handed_on(code: CodeType, found: dict[str, Any]) -> dict[str, object]:
    shown = signature(found["function"])
    own = code.co_varnames[: code.co_kwonlyargcount]
    given = {name: found[name] for name in own if name in found and name not in shown.parameters}
    try:
        return {**shown.bind_partial(*found["arguments"], **found["options"]).arguments, **given}
    except TypeError:  # they are not its arguments
        return given


def _is_method(code: CodeType) -> bool:
    """Whether code is that of a method, whose first parameter may have the name that it has in the function."""
    owner = code.co_qualname.rpartition(".")[0]
    has_first = code.co_argcount > 0 and code.co_varnames[0] != "cls"
    return has_first and bool(owner) and not owner.endswith("<locals>")
