"""The part of an observer that knows texts: made after every run where nothing looks at them before.

What a step prints, logs or warns of is made of numbers that only a run knows. Where the code hands a text on to a call
or returns it, a ``Late`` stands for it; elsewhere it is the text of the call at hand.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO

from autojit.core.source import is_own
from autojit.core.wrapping import own
from autojit.jit.instrumented_code import HELD, RETURNED
from autojit.jit.late_values import as_it_is, at_once, is_of_step, late, of_digits
from autojit.jit.observed_draws import ObservedDraws
from autojit.jit.places import is_a
from autojit.jit.pytree import flatten
from autojit.tensor.tensor import Tensor

if TYPE_CHECKING:
    from autojit.jit.foreign_calls import ForeignCalls


class ObservedTexts(ObservedDraws):
    """What one capture makes texts of."""

    foreign: ForeignCalls

    def __init__(self, rebound: frozenset[tuple[int, Any]]) -> None:
        super().__init__(rebound)
        self._stdout = sys.stdout  # of the caller; the step may put another in its place

    if TYPE_CHECKING:

        def defer(self, function: Callable[..., Any], *args: object, **kwargs: object) -> None: ...

    def _made_late(self, function: Any, arguments: Sequence[Any]) -> Callable[..., Any] | None:
        """What is called instead of a function that makes a text, or a number for one, of numbers of the step."""
        if function is not None and function is _dumps() and any(map(is_of_step, flatten(list(arguments))[0])):
            return self._dumped_late
        if not any(is_of_step(argument) for argument in arguments):
            return None
        form = own(function, "__self__", None)
        is_format = own(function, "__name__", "") == "format" and type(form) is str
        made = None
        if is_format:
            made = late(partial(str.format, form), arguments, self.outside)
        elif isinstance(function, Hashable) and function in _TEXT_MAKERS and _has_text(function, arguments[0]):
            made = late(_TEXT_MAKERS[function], arguments, self.outside)
        return None if made is None else lambda *_: made

    def _dumped_late(self, *args: object, **options: Any) -> Any:
        dumps = _dumps()
        return late(partial(dumps, **options), args, self.outside) or of_digits(dumps, *args, **options)

    def text_of(self, function: Callable[..., Any], arguments: Sequence[Any], use: int) -> Any:
        """What a function makes of what the step computes: late where its ``use`` lets it, else of this capture."""
        made = late(function, arguments, self.outside)
        if made is not None and can_wait(use):
            return made
        self.arrays.refuse("the text", *arguments)
        return function(*arguments) if made is None else made.now()

    def _print(self, *args: object, file: TextIO | None = None, **kwargs: Any) -> None:
        """To a stream that the step has made at once, which it may read; else after every run of the step."""
        if file is None and sys.stdout is not self._stdout:
            file = sys.stdout
        if self.is_at_once:
            print(*args, file=file, **kwargs)
        elif file is None:
            self.defer(print, *[as_it_is(value, self.outside) for value in args], **kwargs)
        elif id(file) in self.outside:
            self.foreign.note_change(file)
            self.foreign.defer_log(print, *args, file=file, **kwargs)
        else:
            print(*map(at_once, args), file=file, **kwargs)


def _dumps() -> Any:
    """``json.dumps``, if anybody has imported it."""
    return getattr(sys.modules.get("json"), "dumps", None)


def can_wait(use: int) -> bool:
    """Whether nothing looks at what the innermost frame of the user's makes, before the run is over.

    ``use``: of ``instrumented_code``, HELD, or RETURNED; what a captured function returns itself leaves the step.
    """
    if not use & RETURNED:
        return bool(use & HELD)
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_own(frame.f_code):
        frame = frame.f_back
    caller = None if frame is None else frame.f_back
    return caller is not None and caller.f_code.co_qualname in _CAPTURING and is_own(caller.f_code)


_CAPTURING = frozenset(("JitFunction._trace", "Rebinding.__call__"))


def _has_text(function: object, value: object) -> bool:
    """Whether a function makes a text, or a number for one, of a value; round makes a tensor of one."""
    return function is not round or not is_a(value, Tensor)


_TEXT_MAKERS: dict[Any, Callable[..., Any]] = {str: str, repr: repr, format: format, round: round}
