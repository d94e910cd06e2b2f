"""Who records what a capture assumes of open sizes, and whose questions about them it has to answer.

A question that all sizes do not answer alike is answered by the call at hand, and the capture holds for sizes that
answer as its own: a `SizeGuard`. What needs the concrete value of a size is answered too, and fixes it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from autojit.core import size_expressions as expressions
from autojit.core.size_expressions import Expression
from autojit.core.source import is_own

if TYPE_CHECKING:
    from autojit.core.sizes import SymbolicSize


class SizeGuard(NamedTuple):
    """``(expression relation 0) == outcome``: what a capture assumed of its sizes."""

    expression: Expression
    relation: str  # "==" or "<"
    outcome: bool

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether the sizes of a call fit."""
        value = self.expression.evaluate(sizes)
        return (value == 0 if self.relation == "==" else value < 0) is self.outcome

    def __str__(self) -> str:
        positive = Expression(tuple(t for t in self.expression.terms if t[1] > 0))
        negative = expressions.scale(Expression(tuple(t for t in self.expression.terms if t[1] < 0)), -1)
        sign = {("==", True): "==", ("==", False): "!=", ("<", True): "<", ("<", False): ">="}
        return f"{positive} {sign[self.relation, self.outcome]} {negative}"


class Recorder(Protocol):
    """A capture in progress."""

    def decide_size(self, expression: Expression, relation: str) -> bool:
        """Whether ``expression relation 0`` ("==" or "<"): true for some sizes only, so the capture holds for those."""

    def size_digits(self, expression: Expression) -> int:
        """The value that an expression has in this call."""

    def size_number(self, size: SymbolicSize) -> Any:
        """The size as a number that changes from call to call, for arithmetic that gives no size."""

    def note_error(self) -> None:
        """An error of autojit's was made: what was taken for general may have been a special case."""


class _Recording(threading.local):
    recorder: Recorder | None = None
    have_agreed: bool = False


asked = _Recording()


@contextmanager
def recording(recorder: Recorder | None) -> Iterator[None]:
    """Inside, comparisons that the expressions leave open ask the hint, and ``recorder`` notes them."""
    before, asked.recorder = asked.recorder, recorder
    try:
        yield
    finally:
        asked.recorder = before


@contextmanager
def agreed() -> Iterator[None]:
    """Inside, rules are applied to parts of a graph that was recorded: sizes that stand side by side have agreed."""
    before, asked.have_agreed = asked.have_agreed, True
    try:
        yield
    finally:
        asked.have_agreed = before


_Called = TypeVar("_Called", bound=Callable[..., Any])
_for_users: set[CodeType] = set()


def for_users(function: _Called) -> _Called:
    """Let a function count as the user who calls it: it calls what it is given in their place."""
    _for_users.add(function.__code__)
    return function


def is_for_user(frame: FrameType) -> bool:
    """Whether a text is made by a user's code, or in their place; messages and printed graphs are autojit's own."""
    code = frame.f_code
    if code in _for_users:
        return True
    if code.co_filename.startswith("<"):  # generated methods of records
        return not f"{frame.f_globals.get('__name__')}.".startswith("autojit.")
    return not is_own(code)
