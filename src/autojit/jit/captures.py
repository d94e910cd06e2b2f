"""Captures: what is kept of one jitted function for one argument signature, and the counters of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from autojit.core.records import record
from autojit.core.source import UNKNOWN, SourceLocation, here
from autojit.core.user_warnings import warn
from autojit.jit.decision import Decision
from autojit.jit.line_by_line import LineByLine
from autojit.jit.outcomes import DrawnOtherwise, Rebinds, Turned
from autojit.jit.step import Capture, CompiledStep
from autojit.schedule.forms import KnownForms

if TYPE_CHECKING:
    from autojit.jit.decided_calls import DecidedCalls

REASONS_KEPT = 20
GIVEN_UP_KEPT = 8  # reasons of a kind: one kind does not push out another, whose limit counts on them

Branch = list[Decision | CompiledStep]  # alternatives, in the order they were captured


@record(frozen=False)
class JitStats:
    """Counters of one jitted function."""

    captures: int = 0
    calls: int = 0
    fallbacks: int = 0
    eager_calls: int = 0  # whose steps were being compiled
    capture_s: float = 0.0
    compile_s: float = 0.0
    reasons: list[str] = field(default_factory=list)
    _places: dict[str, SourceLocation] = field(default_factory=dict)  # of the calls that met them

    def add(self, made: Sequence[Decision | CompiledStep], capture_s: float, compile_s: float) -> None:
        """A capture has made these nodes."""
        self.captures += 1
        self.capture_s += capture_s
        self.compile_s += compile_s
        self.fallbacks += sum(len(part.lowered.fallbacks) for node in made for part in node.parts)

    def note(self, reason: str) -> None:
        """Remember why a capture could not be used."""
        if reason not in self.reasons:
            self.reasons.append(reason)
            self._places[reason] = here()
        for gone in self.reasons[:-REASONS_KEPT]:
            del self._places[gone]
        del self.reasons[:-REASONS_KEPT]

    def forget(self, reason: str) -> None:
        """What a reason said is so no longer."""
        if reason in self.reasons:
            self.reasons.remove(reason)
            del self._places[reason]

    def told_at(self, reason: str) -> str:
        """The user's line whose call met a reason first."""
        place = self._places.get(reason, UNKNOWN)
        return "" if place is UNKNOWN else f" (call at {place})"


@record(eq=False, frozen=False)
class Captures:
    """Captures of one argument signature: alternatives, each under the guards of its capture."""

    branch: Branch = field(default_factory=list)
    captures: int = 0
    forms: KnownForms = field(default_factory=KnownForms)
    given_up: list[LineByLine] = field(default_factory=list)  # why captures were, which says which others would be
    compiling: dict[int, Any] = field(default_factory=dict)  # by id of a branch: what will follow it, ``Compiling``
    used_at: int = 0  # which call through Python used it last, as far as is known (see ``kept_signatures.py``)
    come: int = 0  # calls of the kind that ran line by line before it was captured, or before it was forgotten
    leads_on: bool = False  # whether its last capture ended without a step: the call draws, or no step serves it
    is_told: bool = False  # whether a warning has said that there are too many
    decided: DecidedCalls | None = None  # calls of it in which Python decides, natively
    native_calls: int = 0  # by the entries of its steps, when they were looked at last

    def each(self) -> list[Capture]:
        """Every capture that is kept."""
        return list({id(node.capture): node.capture for node in nodes_of(self.branch)}.values())

    def begin(self, leaves: Sequence[Any]) -> None:
        """Count a capture for a call with these arguments.

        Raises:
            LineByLine: it would be given up as one before.
        """
        for reason in self.given_up:
            if reason.asked is not None:
                reason.asked.check(leaves)
        self.captures += 1

    def give_up(self, error: BaseException, note: Callable[[str], None]) -> DrawnOtherwise | None:
        """What raises is not kept; it is known which calls would be given up as this one was.

        A call that runs line by line is given what the capture has drawn, if it has.
        """
        self.captures -= 1
        is_more = isinstance(error, Turned) and isinstance(error.outcome, Rebinds)
        self.leads_on = is_more or isinstance(error, LineByLine)
        if not isinstance(error, LineByLine):
            return None
        if error.asked is not None or error.limit is not None:
            alike = [reason for reason in self.given_up if type(reason) is type(error)]
            if len(alike) + 1 == error.limit:
                error.always()
            others = [reason for reason in self.given_up if type(reason) is not type(error)]
            self.given_up = [*others, *[*alike, error.with_traceback(None)][-GIVEN_UP_KEPT:]]
        drawn, error.drawn = error.drawn, ()
        if not drawn:
            return None
        note(str(error))
        return DrawnOtherwise(drawn)


def nodes_of(branch: Branch) -> Iterator[Decision | CompiledStep]:
    """Every node below a branch; other threads may add some meanwhile."""
    stack = list(branch)
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, Decision):
            stack.extend(n for children in tuple(node.children.values()) for n in tuple(children))


def remove(branch: Branch, capture: Capture) -> None:
    """Take a capture that cannot be used out of the tree."""
    branch[:] = [node for node in branch if node.capture is not capture]


def too_many(name: str, captures: Captures) -> LineByLine:
    """Why no more is captured of a signature."""
    return LineByLine(
        f"{name} was captured {captures.captures} times for one kind of arguments: other calls run line by line"
    )


def warned(name: str, why: LineByLine, captures: Captures, reasons: Sequence[str]) -> LineByLine:
    """``why`` calls run line by line; a warning says once on what the captures of their signature differ."""
    if not captures.is_told:
        captures.is_told = True
        decisions = [node for node in nodes_of(captures.branch) if isinstance(node, Decision)]
        worst = max(decisions, key=lambda d: len(d.children), default=None)
        lines = [f"jit: {why}" if str(why).startswith(name) else f"jit: {name}: {why}"]
        if worst is not None and len(worst.children) > 1:
            what, outcomes = f"{worst.split.value.type} at {worst.split.source}", len(worst.children)
            lines.append(f"  decides on    {what}, {outcomes} outcomes")
        lines += [f"  last reasons  {reason}" for reason in reasons[-3:]]
        lines.append(
            "  fix           keep values that change in tensors; choose with aj.cond(condition, f, g, (x,)), repeat "
            "with aj.while_loop, or decide outside the step and pass the decision as a bool"
        )
        warn("\n".join(lines))
    return why
