"""Which hidden inputs a call of a step draws: known before it runs, as they are given to it.

A ``Plan`` is the draws that a capture has met, with the ways that lead to them: what it has read outside besides, and
what it has decided on numbers in between (``draw_ways.py``). Draws are made only as far as that is still so: nothing is
fetched that eager mode would not fetch. What comes where no known way goes on, a capture tells.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.records import record
from autojit.jit.draw_ways import Given, Way, is_number
from autojit.jit.draws import Draw, Raised, is_drawn_from
from autojit.jit.guards import Guard, stand_ins
from autojit.jit.line_by_line import LineByLine, NewPlaces
from autojit.jit.outcomes import DrawnOtherwise
from autojit.jit.places import is_a
from autojit.jit.pytree import flatten
from autojit.jit.read_hooks import PLAIN
from autojit.jit.rebound_values import entering, mapped
from autojit.runtime.entry_spec import MISSING
from autojit.tensor.state import guard_epoch
from autojit.tensor.tensor import Tensor

if TYPE_CHECKING:
    from autojit.jit.step import Capture

PLANS_LIMIT = 32  # of one function: beyond that the oldest is forgotten, and found again by tracing the function
WAYS_LIMIT = 128  # of one plan: twice as many as there are captures of one kind of arguments
ROUNDS_LIMIT = 16  # of one call; what is assigned in an object that every run makes again is found in every round


@record(eq=False, frozen=False)
class Plan:
    """The draws of the calls that go any of the ``ways``; ``key``: of ``Keys``."""

    draws: tuple[Draw, ...] = ()
    key: Any = None
    common: Any = None  # the key that it gets when a second call of other numbers or sizes draws the same
    ways: list[Way] = field(default_factory=list)
    # the way whose reads were found as they were last, at which epoch, and which of its guards are read nevertheless
    _known: tuple[Way | None, int, Sequence[Guard]] = None, -1, ()

    def is_as_it_was(self, way: Way) -> bool:
        """Whether what a capture has read besides is as it was."""
        epoch = int(guard_epoch[0])
        known, counted, read = self._known
        is_counted = known is way and counted == epoch
        if not all(guard.holds() for guard in (read if is_counted else way.guards)):
            return False
        if not is_counted:
            others = stand_ins(way.guards)
            read = [guard for guard in way.guards if not guard.by_epoch or guard in others]
            self._known = way, epoch, read
        return True

    def goes(self, given: Given) -> bool:
        """Whether one of its ways is known to be that of a call which has all that it draws."""
        numbers = range(len(self.draws) + 1)
        return any(all(way.goes_on(k, given) for k in numbers) and self.is_as_it_was(way) for way in self.ways)


_NOTHING = Plan()  # is drawn by calls that no plan is known for: a capture tells


class Drawn:
    """What has been drawn for one call, by which plan."""

    def __init__(self, plan: Plan | None = None, values: Sequence[Any] = ()) -> None:
        self.plan = plan
        self.values = list(values)
        self.rounds = 0  # in which captures have found what the step is to take besides

    def copy(self) -> Drawn:
        """The same for another run of the call."""
        return Drawn(self.plan, self.values)


class Plans:
    """The plans of one function, and the one that this thread follows."""

    def __init__(self, plans: Sequence[Plan] = ()) -> None:
        self.plans = list(plans)
        self.line_by_line: type[LineByLine] | None = None  # why no call runs as a step
        self._mine = threading.local()

    @property
    def current(self) -> Plan:
        """The plan of the call that this thread makes."""
        found: Plan = self._mine.__dict__.get("plan", _NOTHING)
        return found

    def draw(self, drawn: Drawn, arguments: tuple[Any, ...] | None) -> list[Any] | DrawnOtherwise:
        """What is drawn for a call, if it can be had; ``drawn``: what was drawn for it before; the rest is added."""
        if not self.plans:
            return drawn.values
        raised: list[tuple[Draw, Any]] = []

        def next_one(draw: Draw) -> bool:
            try:
                drawn.values.append(draw.make(arguments))
            except BaseException as error:
                raised.append((draw, Raised(error)))
            return not raised

        if drawn.plan is None:
            drawn.plan = self._followed(drawn, arguments, next_one)
        else:
            all(map(next_one, drawn.plan.draws[len(drawn.values) :]))
        self._mine.plan = drawn.plan
        return DrawnOtherwise(raised) if raised else drawn.values

    def _followed(self, drawn: Drawn, arguments: Any, next_one: Callable[[Draw], bool]) -> Plan:
        """The plan of a call that draws as far as a known way goes on; its draws are made meanwhile."""
        keys = Keys(arguments)
        known = keys.exact, keys.of_kind, keys.of_sizes
        ways = [(plan, way) for plan in tuple(self.plans) if plan.key in known for way in tuple(plan.ways)]
        followed: tuple[Plan, Way] | None = None  # whose reads are as they were
        given: Given | None = None
        known_of = 0  # how many draws that knows
        while True:
            number = len(drawn.values)
            if followed is not None and all(len(plan.draws) <= number for plan, _ in ways):
                return followed[0]  # whatever is decided now, nothing that is known draws more
            if any(way.compares(number) for _, way in ways):
                given = given or Given.of(arguments[0], (), arguments[1:])
                for value in drawn.values[known_of:]:
                    given.drawn.extend(flatten(mapped(value, entering))[0])
                known_of = number
                ways = [(plan, way) for plan, way in ways if way.goes_on(number, given)]
            if followed not in ways:
                found = next(((plan, way) for plan, way in ways if plan.is_as_it_was(way)), None)
                if found is None:
                    return _NOTHING if followed is None else self._begun(followed[0], number, keys)
                followed = found
            plan = followed[0]
            if len(plan.draws) == number or not next_one(plan.draws[number]):
                return plan

    def _begun(self, plan: Plan, number: int, keys: Keys) -> Plan:
        """The plan of calls that begin to draw as another one does; a capture tells whether there is more."""
        if len(plan.draws) == number:
            return plan
        draws = plan.draws[:number]
        found = (plan for plan in self.plans if len(plan.draws) == number and all(map(Draw.is_as, plan.draws, draws)))
        return next(found, None) or Plan(draws, keys.exact, keys.common(draws))

    def follow(self, drawn: Drawn, more: Sequence[tuple[Draw, Any]], arguments: object) -> None:
        """The call goes on under a plan of these: what has been drawn for it, and ``more`` that a capture has met.

        When its captures meet something new again and again, it goes on line by line.
        """
        drawn.rounds += 1
        if drawn.rounds >= ROUNDS_LIMIT:
            self.line_by_line = NewPlaces
        draws = (*(() if drawn.plan is None else drawn.plan.draws), *(draw for draw, _ in more))
        if not draws:
            return
        drawn.values += [value for _, value in more]
        keys = Keys(arguments)
        common = keys.common(draws)
        found = None
        for plan in self.plans:
            is_long = len(plan.draws) == len(draws)
            if plan.common == common and is_long and all(map(Draw.is_as, plan.draws, draws)):
                found = plan
                found.key = keys.exact if found.key == keys.exact else common  # other numbers draw the same
                break
        if found is None:
            found = Plan(draws, keys.exact, common)
            self.plans.append(found)
            del self.plans[:-PLANS_LIMIT]
        drawn.plan = found

    def learn(self, capture: Capture, counts: Sequence[int], given: tuple[Any, ...]) -> None:
        """A capture under the current plan has come to its end: what it has read, and decided before each draw.

        ``given``: what its places held, what was drawn, and the arguments.
        """
        plan = self.current
        if plan.draws and not plan.goes(Given.of(given[0], given[1], given[2:])):
            plan.ways.append(Way(capture, counts))
            del plan.ways[:-WAYS_LIMIT]
            if plan not in self.plans:
                self.plans.append(plan)
                del self.plans[:-PLANS_LIMIT]


_FLAGS = (bool, str, type(None))


class Keys:
    """What may decide on the draws of a call, of its arguments and of what it assigns to."""

    def __init__(self, arguments: object) -> None:
        leaves, tree = flatten(arguments)
        flags = tuple([(k, leaf) for k, leaf in enumerate(leaves) if leaf is MISSING or type(leaf) in _FLAGS])
        opaque = [leaf for leaf in leaves if type(leaf) not in PLAIN and is_drawn_from(leaf)]
        flags += tuple([(-1, tuple(map(id, opaque)).index(id(leaf))) for leaf in opaque])  # which of them are one
        sizes = tuple([tuple(leaf.shape) for leaf in leaves if is_a(leaf, Tensor | np.ndarray)])
        whole = tuple([leaf for leaf in leaves if type(leaf) is int])
        numbers = tuple([leaf for leaf in leaves if type(leaf) is not int and is_number(leaf)])
        self.of_kind = tree, flags  # structure, flags and texts
        self.of_sizes = tree, flags, sizes, whole
        self.exact = tree, flags, sizes, whole, numbers

    def common(self, draws: Sequence[Draw]) -> Any:
        """What calls share that draw the same: how much is drawn may depend on sizes."""
        several = len({str(draw.source) for draw in draws}) < len(draws)
        return self.of_sizes if several or any(draw.has_sizes for draw in draws) else self.of_kind
