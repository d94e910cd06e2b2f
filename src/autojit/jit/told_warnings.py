"""Warnings in a step: issued after every run, about the line that eager mode names, under the filters that held there.

``warnings.warn`` is a call made for its effect, deferred like others (``foreign_calls.py``); three things set it apart.
It finds its line by its caller's frame, which is gone when the step has run. What it does depends on filters, which a
step may change for a while (``with warnings.catch_warnings()``). And it may raise, or write to a list of the step's:
then it happens in the capture, where the step's own code sees it.
"""

from __future__ import annotations

import sys
import warnings
from contextlib import nullcontext
from functools import partial
from types import BuiltinMethodType, FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from autojit.core.source import is_own, is_passed
from autojit.jit.late_values import at_once

if TYPE_CHECKING:
    from autojit.jit.observer import Observer


class Place(NamedTuple):
    """What a warning is about: a file and a line of it, the module's name, and which of its warnings were shown."""

    file: str
    line: int
    module: str
    registry: dict[Any, Any]


class _Filters(NamedTuple):
    """What decides on warnings."""

    filters: tuple[Any, ...]
    show: tuple[Any, ...]

    @classmethod
    def now(cls) -> _Filters:
        return cls(tuple(warnings.filters), (warnings.showwarning, vars(warnings).get("_showwarnmsg_impl")))

    def since(self, first: _Filters) -> _Filters:
        """The filters put in front of those that there were first; of ``show``, what is another now."""
        alike = 0
        while (
            alike < min(len(self.filters), len(first.filters)) and self.filters[-1 - alike] == first.filters[-1 - alike]
        ):
            alike += 1
        added = self.filters[: len(self.filters) - alike]
        return _Filters(added if alike else (*added, None), self.show if self.show != first.show else ())

    def put(self) -> None:
        """What ``since`` gave, before the filters of now; in a ``with warnings.catch_warnings()``."""
        added = [item for item in self.filters if item is not None]
        is_all = len(added) < len(self.filters)
        now = () if is_all else [item for item in warnings.filters if item not in added]
        warnings.resetwarnings()
        warnings.filters[:] = [*added, *now]  # type: ignore[index]
        if self.show:
            warnings.showwarning, vars(warnings)["_showwarnmsg_impl"] = self.show

    def records(self) -> bool:
        """Whether warnings are added to a list and go nowhere else."""
        return type(self.show[1]) is BuiltinMethodType


class ToldWarnings:
    """The warnings of one capture."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._first = _Filters.now()

    def warn(
        self,
        message: object,
        category: type[Warning] | None = None,
        stacklevel: int = 1,
        source: Any = None,
        *,
        skip_file_prefixes: tuple[str, ...] = (),
    ) -> None:
        """``warnings.warn``, called by the captured function."""
        found = _Filters.now()
        kind = type(message) if isinstance(message, Warning) else category or UserWarning
        about = _about(sys._getframe(1), stacklevel, skip_file_prefixes)
        if (found.show != self._first.show and found.records()) or _is_error(found.filters, message, kind, about):
            place = about if isinstance(about, Place) else _outside(about)
            warnings.warn_explicit(at_once(message), kind, *place, source)
        else:
            changed = found.since(self._first) if found != self._first else None
            self._observer.defer(partial(issue, about, kind, changed), message)

    def take(self, message: str, category: type[Warning]) -> bool:
        """A warning of autojit's own; in a body of a loop or branch, it comes in the capture alone."""
        if self._observer.body is not None:
            return False
        self.warn(message, category)
        return True


def issue(about: Place | int, kind: type[Warning], filters: _Filters | None, message: Warning | str) -> None:
    """Warn, under the filters that the step has set."""
    place = about if isinstance(about, Place) else _outside(about)
    with nullcontext() if filters is None else warnings.catch_warnings():
        if filters is not None:
            filters.put()
        warnings.warn_explicit(message, kind, *place)


def _is_error(filters: tuple[Any, ...], message: object, kind: type[Warning], about: Place | int) -> bool:
    """Whether the first filter that fits makes an error of it."""
    for action, text, category, module, line in filters:
        if issubclass(kind, category) and (text is None or text.match(str(at_once(message)))):
            place = None if module is None and not line else about if isinstance(about, Place) else _outside(about)
            if place is None or ((module is None or module.match(place.module)) and line in (0, place.line)):
                return bool(action == "error")
    return False


def _about(frame: FrameType | None, level: int, skipped: tuple[str, ...]) -> Place | int:
    """The place that a warning of this level is about; how many frames of the caller's it is away, if outside."""
    left, inside = max(level, 2 if skipped else 1), False
    while frame is not None and not _is_capture(frame):
        is_seen = not (is_passed(frame.f_code) or (inside and frame.f_code.co_filename.startswith(skipped or "\0")))
        inside |= is_seen
        left -= is_seen
        if not left:
            return _place(frame)
        frame = frame.f_back
    return left


def _outside(level: int) -> Place:
    """The place of the caller's, this many frames above the call of the step."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        level -= not is_passed(frame.f_code)
        if not level:
            return _place(frame)
        frame = frame.f_back
    return Place("sys", 1, "sys", vars(sys).setdefault("__warningregistry__", {}))  # as Python where there is no such


def _is_capture(frame: FrameType) -> bool:
    return frame.f_code.co_qualname == "JitFunction._trace" and is_own(frame.f_code)


def _place(frame: FrameType) -> Place:
    names = frame.f_globals
    registry = names.setdefault("__warningregistry__", {})
    return Place(frame.f_code.co_filename, frame.f_lineno, names.get("__name__", "<string>"), registry)
