"""Outcomes: how an attempt at a call of a jitted function went, and so how the call goes on.

An attempt that has not `Ran` has written nothing outside. What the function (`jit.function`) does next:

    Ran             return the result
    BeginsAgain     another attempt, from the root on, under other assumptions
    Rebinds         another attempt, with more places and hidden inputs as arguments and results of the steps
    Releases        another attempt, with fewer
    DrawnOtherwise  the call runs line by line, with what has been drawn for it
    ToCompare       the call runs as a step and eagerly, and both are compared
    Eagerly         the call runs line by line
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from autojit.core.records import record
from autojit.jit.draws import Raised
from autojit.jit.line_by_line import LineByLine

if TYPE_CHECKING:
    from autojit.jit.draw_plans import Drawn
    from autojit.jit.draws import Draw
    from autojit.jit.places import Location
    from autojit.jit.verify import Comparison


@record(eq=False)
class Ran:
    """The call has its result."""

    result: Any


@record(eq=False)
class BeginsAgain:
    """The call begins again at the root of its captures.

    Args:
        bound: argument leaves that share memory with what the step changes: they are bound.
        is_fixed: the capture must not leave the sizes of this call open; why has been noted.
        is_lost: a capture that continues a compiled path came to ask something else than the path decides.
    """

    bound: frozenset[int] = frozenset()
    is_fixed: bool = False
    is_lost: bool = False


@record(eq=False)
class Rebinds:
    """A capture found places that the function assigns to; they hold again what they held.

    ``drawn``: hidden inputs that are not arguments of the steps yet, and their values for this call. ``is_lasting``:
    the places stay arguments of steps that do not assign to them, too.
    """

    locations: Sequence[Location]
    why: str = "assigned by the function"
    drawn: Sequence[tuple[Draw, Any]] = ()
    is_lasting: bool = False

    def names(self) -> list[str]:
        """What they are called."""
        return [*(place.name for place in self.locations), *(f"drawn at {draw.source}" for draw, _ in self.drawn)]


@record(eq=False)
class Releases(Rebinds):
    """A capture found places that hold tensors to which the function no longer assigns: they become state."""

    why: str = "assigned no more"


@record(eq=False)
class DrawnOtherwise:
    """A call draws or assigns to what no step can be given.

    ``more``: draws beyond those of its plan; ``always``: why all calls do.
    """

    more: Sequence[tuple[Draw, Any]]
    always: type[LineByLine] | None = None

    def given(self, drawn: Drawn) -> list[tuple[Draw, Any]]:
        """All that has been drawn for the call."""
        draws = () if drawn.plan is None else drawn.plan.draws
        return [*zip(draws, drawn.values, strict=False), *self.more]


@record(eq=False)
class ToCompare:
    """The step that is about to run is to be compared with eager mode, and is not yet."""

    comparison: Comparison


@record(eq=False)
class Eagerly:
    """Steps cannot do what the call does."""

    reason: LineByLine


def again_with(drawn: Sequence[tuple[Draw, Any]], outcome: BeginsAgain) -> BeginsAgain | Rebinds | DrawnOtherwise:
    """How a call goes on that is to begin again, after an attempt that has drawn this for it.

    The next attempt is given it, and finds by itself the assumptions that this one has come to.
    """
    if any(type(value) is Raised for _, value in drawn):
        return DrawnOtherwise(drawn)
    return Rebinds((), drawn=drawn) if drawn else outcome


Outcome = Ran | BeginsAgain | Rebinds | DrawnOtherwise | ToCompare | Eagerly


class Turned(BaseException):
    """An attempt ends inside the function that it records (no Exception: captured code must not catch it)."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome


def attempted(attempt: Callable[..., Outcome], *given: object) -> Outcome:
    """The outcome of an attempt, also of one that ends inside the function: the one place where that is caught."""
    try:
        return attempt(*given)
    except Turned as turned:
        return turned.outcome
    except LineByLine as reason:
        return Eagerly(reason.with_traceback(None))  # whose frames would keep alive what the capture has made
