"""Bodies of loops and branches that run as Python runs them while a step is captured: turn by turn, branch by branch.

A body that is captured runs once, however often it is taken later. So what it does besides computing (it appends,
counts, draws, prints, looks at values, changes tensors that it does not carry) would happen once, and not as in eager
mode. Where a capture finds such a body it begins again, and from then on the loop or branch at that place of the user's
code is plain Python for this function: its turns are recorded one after the other, and what decides on them are
decisions of the step, as for ``while`` and ``if``.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any, NoReturn

from autojit.core.errors import TraceError
from autojit.core.source import SourceLocation, here
from autojit.jit.line_by_line import Uncompiled
from autojit.jit.outcomes import BeginsAgain, Turned, again_with
from autojit.jit.read_hooks import active
from autojit.tensor.state import state

Place = tuple[CodeType | None, int, str]
"""Where the user's code calls a loop or branch: code, instruction, and what it calls there."""


class SteppedBodies:
    """Those of one compiled function. ``note`` is told why a place is one."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self.places: set[Place] = set()
        self._note = note

    def add(self, place: Place, source: SourceLocation, what: str) -> None:
        """From the next capture on, what is called at a place runs as Python runs it."""
        self.places.add(place)
        self._note(
            f"{place[2]} at {source} runs turn by turn in the step, because its body {what} (carry or return what it "
            "computes, and store it after the call, to keep it one op)"
        )


def place_of(what: str, source: SourceLocation) -> Place:
    """The place of a loop or branch that is called at ``source``."""
    return source.code, source.instruction, what.partition(":")[0]


def runs_turn_by_turn(what: str) -> bool:
    """Whether the loop or branch that is being called runs as in eager mode though a step is captured."""
    stepped: SteppedBodies | None = getattr(state.trace, "stepped", None)
    return stepped is not None and bool(stepped.places) and place_of(what, here()) in stepped.places and is_plain()


def is_plain() -> bool:
    """Whether tensors have nothing besides their values here: elements of a batch may take different branches."""
    return all(layer.is_body for layer in state.layers)


def run_turn_by_turn(trace: Any, what: str, error: Exception) -> NoReturn:
    """The body that ``trace`` records does what a body that is captured once does not do as eager mode does it.

    Raises:
        Turned: the capture that it is a part of begins again, and runs the loop or branch as Python runs it.
        GivenUp: its call runs line by line (in ``vmap`` and its kin, where both branches may be taken).
        ``error``: no step is being captured.
    """
    root: Any = trace
    while root.runs_often and root.outer is not None:
        root = root.outer
    if root.runs_often or root.stepped is None or root.is_whole:
        raise error
    if not trace.is_plain:
        root.give_up(Uncompiled(f"{trace.name} in vmap or jvp {what}, at {here()}: ran line by line"))
    root.stepped.add(trace.place, trace.source, what)
    drawn = [] if active.observer is None else active.observer.drawn
    raise Turned(again_with(drawn, BeginsAgain()))


def refuse_effect(trace: Any, what: str) -> NoReturn:
    """``run_turn_by_turn`` for a body that does something to what exists outside it."""
    error = TraceError(
        f"{trace.name}: the body {what}, outside of it, and may run any number of times or never",
        {"at": here()},
        "let the body return what is to be stored and store it after the call; draw random numbers with "
        "autojit's own functions",
    )
    run_turn_by_turn(trace, what, error)
