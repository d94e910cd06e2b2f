"""Hidden inputs of a step: what Python fetches before each of its runs, in the order in which the function asks.

Random numbers, clocks, items of iterators, what libraries read. A ``Draw`` is one such call; which of them a call of
the step makes is a plan (``draw_plans.py``). An iterator or a generator of random numbers is found again by the place
where the function found it: the one that is there now is asked.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from types import MethodWrapperType, ModuleType
from typing import Any

import numpy as np

from autojit.core.errors import TraceError
from autojit.core.records import record
from autojit.core.sizes import SymbolicSize, hint_of
from autojit.core.source import SourceLocation
from autojit.jit.guards import Guard, same
from autojit.jit.observed_functions import is_user_class
from autojit.jit.places import defines, is_a
from autojit.jit.pytree import flatten
from autojit.jit.read_hooks import active
from autojit.tensor.state import set_trace, state

GENERATORS = (random.Random, np.random.Generator, np.random.RandomState, np.random.BitGenerator)


def is_drawn_from(value: object) -> bool:
    """Whether an object goes on from call to call: an iterator that cannot be observed, or a random generator."""
    kind = type(value)
    return is_a(value, GENERATORS) or (defines(kind, "__next__") and not is_user_class(kind))


def outside_of_capture(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call that is not part of the step, whatever it reads and computes."""
    before, active.observer = active.observer, None
    trace = state.trace
    set_trace(None)
    try:
        return function(*args, **kwargs)
    finally:
        set_trace(trace)
        active.observer = before


_SEEDED = (random.Random, np.random.RandomState, np.random.BitGenerator, np.random.SeedSequence)


def is_unseeded(function: object, arguments: Sequence[Any]) -> bool:
    """Whether it makes a generator, or what seeds one, that is another one at every call."""
    is_one = type(function) is type and issubclass(function, _SEEDED) and not is_user_class(function)
    is_seeded = any(given is not None for given in arguments)
    return function is random.SystemRandom or ((is_one or function is np.random.default_rng) and not is_seeded)


class Place:
    """Where the function found the object that a draw asks, and the object itself."""

    def __init__(self, guard: Guard, owner: object) -> None:
        self.guard = guard
        self.read = guard.read
        self.owner = owner
        self.is_asked = False  # by a draw

    def now(self, arguments: object) -> Any:
        """The object that is there now, if it is of the same kind."""
        found = self.read()
        return found if type(found) is type(self.owner) else self.owner

    def is_as(self, other: Place | ArgumentPlace | None) -> bool:
        """Whether both are the same place, with objects of one kind."""
        return type(other) is Place and type(self.owner) is type(other.owner) and self._key == other._key

    @property
    def _key(self) -> Any:
        held = self.guard.held_by
        return id(self) if held is None else (id(held[0]), held[1])

    def relax(self) -> None:
        """The step holds for every object of this kind in its place."""
        read, guard = self.read, self.guard
        guard.read, guard.expected, guard.native = lambda: type(read()), type(self.owner), None


class ArgumentPlace:
    """The same of an object that is an argument: the number of its leaf."""

    is_asked = True  # by identity: a step is for one object

    def __init__(self, number: int, owner: object) -> None:
        self.number = number
        self.owner = owner

    def now(self, arguments: tuple[object, ...] | None) -> Any:
        """The object that this call is given."""
        leaves = () if arguments is None else flatten(arguments[-2:])[0]
        found = leaves[self.number] if self.number < len(leaves) else self.owner
        return found if type(found) is type(self.owner) else self.owner

    def is_as(self, other: Place | ArgumentPlace | None) -> bool:
        """Whether both are the same argument; None: what a call line by line has, which has been given to it."""
        return other is None or self.owner is other.owner or getattr(other, "number", None) == self.number


@record(eq=False)
class Draw:
    """A hidden input: what a call that is made before every run of the step gives."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    source: SourceLocation
    place: Place | ArgumentPlace | None = None

    def make(self, arguments: tuple[Any, ...] | None = None) -> Any:
        """Fetch one; what that reads is not the step's, and what it computes is not part of it.

        ``arguments``: of the call, the user's last.
        """
        function, args = self.function, self.args
        if self.place is not None:
            owner = self.place.now(arguments)
            is_next = function is next
            function, args = (next, (owner, *args[1:])) if is_next else (getattr(owner, function.__name__), args)
        if self.is_shuffle:
            places = list(range(_plain(args)[0]))
            outside_of_capture(function, (places,), {})
            return places
        return outside_of_capture(function, _plain(args), _plain(self.kwargs))

    @property
    def is_shuffle(self) -> bool:
        """Whether a list of the step is shuffled: what is fetched is, of its length, which item goes to each place."""
        return getattr(self.function, "__name__", "") == "shuffle"

    def is_as(self, other: Draw, is_now: bool = False) -> bool:
        """Whether the same is fetched at every call, or by this one (``is_now``), of which ``other`` is a draw.

        Open sizes are as they are in the call that a plan is for.
        """
        if self.place is None or (other.place is None and type(self.place) is Place):
            is_one = same(self.function, other.function)
            mine, others = self.args, other.args
        else:
            place, there = self.place, other.place
            is_now = is_now and there is not None and type(place) is Place
            is_there = place.now(None) is there.owner if is_now and there is not None else place.is_as(there)
            is_one = is_there and self.name == other.name
            skipped = int(self.function is next)
            mine, others = self.args[skipped:], other.args[skipped:]
        return is_one and _alike((mine, *self.kwargs.items()), (others, *other.kwargs.items()))

    @property
    def name(self) -> str:
        owner = getattr(self.function, "__self__", None)
        name = getattr(self.function, "__name__", str(self.function))
        return name if owner is None or is_a(owner, ModuleType) else f"{type(owner).__name__}.{name}"

    @property
    def is_free(self) -> bool:
        """Whether fetching one too many changes nothing: of clocks and lengths."""
        module = getattr(self.function, "__module__", None) or ""
        is_clock = getattr(self.function, "__self__", None) is time or module in ("time", "datetime")
        return is_clock or self.is_length

    @property
    def is_length(self) -> bool:
        """Whether it is asked how long a container is (``changing_lengths.py``)."""
        return is_a(self.function, MethodWrapperType) and self.function.__name__ == "__len__"

    @property
    def has_sizes(self) -> bool:
        """Whether how much is drawn may depend on the sizes of arguments."""
        return any(is_a(leaf, int) for leaf in flatten((self.args, self.kwargs))[0])


@record
class Raised:
    """Instead of a hidden input: what fetching it has raised."""

    error: BaseException


def another_draw(known: Draw, draw: Draw | None) -> TraceError:
    """A step met another draw than the one it was given; None: none at all."""
    now = "none" if draw is None else f"{draw.name} at {draw.source}"
    return TraceError(
        "jit: a step draws other hidden inputs, or in another order, than it did before",
        {"before": f"{known.name} at {known.source}", "now": now},
        "draw outside the step and pass the numbers as arguments",
    )


def _plain(value: object) -> Any:
    """Arguments with the sizes of the call at hand."""
    if is_a(value, SymbolicSize):
        return hint_of(value)
    if is_a(value, tuple) and any(is_a(part, SymbolicSize | tuple) for part in value):
        return tuple([_plain(part) for part in value])
    if type(value) is list:
        return [_plain(part) for part in value]
    if type(value) is dict:
        return {key: _plain(part) for key, part in value.items()}
    return value


def _alike(a: object, b: object) -> bool:
    if is_a(a, SymbolicSize) or is_a(b, SymbolicSize):
        return True
    if is_a(a, tuple | list) and is_a(b, tuple | list):
        return len(a) == len(b) and all(map(_alike, a, b))
    return same(a, b)
