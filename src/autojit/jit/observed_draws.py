"""The part of an observer that knows hidden inputs: fetched in the first capture, given to the step in the next."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import BuiltinFunctionType, MethodType, MethodWrapperType
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.errors import TraceError
from autojit.core.source import here
from autojit.core.wrapping import own
from autojit.jit.changing_lengths import Lengths
from autojit.jit.draws import ArgumentPlace, Draw, Place, Raised, another_draw, is_drawn_from
from autojit.jit.guards import PRIMITIVES
from autojit.jit.line_by_line import DrawsByValues
from autojit.jit.observed_writes import ObservedWrites
from autojit.jit.outcomes import DrawnOtherwise, Turned
from autojit.jit.places import is_a
from autojit.jit.pytree import flatten
from autojit.jit.stepped_bodies import refuse_effect
from autojit.jit.traced_number import TracedNumber
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor

if TYPE_CHECKING:
    from autojit.jit.argument_nests import ArgumentNests
    from autojit.jit.guards import Guard
    from autojit.jit.observed_arrays import ObservedArrays

ITEMS_SHUFFLED = 3  # of which there are six orders


class ObservedDraws(ObservedWrites):
    """What one capture has drawn, and what it was given."""

    arrays: ObservedArrays
    nests: ArgumentNests

    def __init__(self, rebound: frozenset[tuple[int, Any]]) -> None:
        super().__init__(rebound)
        self.given: Sequence[tuple[Draw, Any]] = ()  # draws that are arguments of the step already, and their values
        self.drawn: list[tuple[Draw, Any]] = []  # and those that were met in this capture
        self.places: dict[int, Place] = {}  # by id: iterators and generators, and where the function found them
        self.meant: dict[int, Any] = {}  # by id: objects of which it counts which one they are; see ``mean``
        self.draws_by_values = False  # whether something was drawn after Python had decided on a value of the step
        self._objects_drawn: dict[int, Any] = {}  # by id
        self.lengths = Lengths()  # of containers outside, that change from call to call
        self._lengths_drawn: dict[int, Any] = {}  # by id of the container
        self._position = 0
        self.decided: list[int] = []  # before each draw: how many decisions on numbers alone
        self.body: Any = None  # the trace of the body that runs: of a loop, or a branch
        self.used_is_changed: dict[int, Any] = {}  # by id: what the step has made, and that body changes if it uses it

    def mean(self, value: object) -> None:
        """An object is asked which one it is, or is to stay where it was found: no equal one does instead of it."""
        for part in value if type(value) is tuple else ():
            self.mean(part)
        if is_a(value, list | np.ndarray) or is_drawn_from(value):
            self.meant[id(value)] = value

    def note_place(self, guard: Guard, value: object) -> None:
        """A place may hold what is drawn from; where the function finds that in two, both are to keep it."""
        if is_a(value, BuiltinFunctionType | MethodType | MethodWrapperType):
            self.mean(value.__self__)
        elif is_drawn_from(value) and self.places.setdefault(id(value), Place(guard, value)).guard is not guard:
            self.mean(value)

    def refuse_in_body(self, what: str) -> None:
        """In a body, which eager mode runs as often as it is taken and a capture once: it is to run turn by turn."""
        if self.body is not None:
            refuse_effect(self.body, what)

    def note_use(self, *values: object) -> None:
        """Something is used: called, given to a call, walked. A body may not use what nobody can look into."""
        for value in values:
            for part in (value, own(value, "__self__", None)):
                if id(part) in self.used_is_changed:
                    self.refuse_in_body(f"uses a {type(part).__name__} that was made before")

    def draw(self, function: Callable[..., Any], *args: object, **kwargs: object) -> Any:
        """Fetch a hidden input: the step's argument for it, or a value that makes it one."""
        self.arrays.refuse("what is drawn", args, kwargs)
        draw = self._draw_of(function, args, kwargs)
        if not draw.is_free:
            self.refuse_in_body(f"asks for what {draw.name} gives")
        if any(is_a(value, Tensor) and value._array is None for value in (*args, *kwargs.values())):
            raise TraceError(
                "jit: random numbers that depend on what the step computes",
                {"drawn by": draw.name, "at": draw.source},
                "draw them with autojit's own functions (aj.rand, aj.normal, aj.randint, ...)",
            )
        if any(map(self._is_of_step, (*args, *kwargs.values()))):
            self.give_up_draw(draw, "draws from what the step computes or has changed")
        self._refuse_drawn(draw)
        leaves, tree = flatten((args, kwargs))
        is_by_values = any(is_a(leaf, TracedNumber) for leaf in leaves)
        if is_by_values:
            self.draws_by_values = True
            args, kwargs = tree.unflatten([leaf.concrete() if is_a(leaf, TracedNumber) else leaf for leaf in leaves])
            draw = replace(draw, args=args, kwargs=kwargs)
        known = self._given_for(draw)
        if known is None:
            return self._drawn(draw, self._fetched(draw))
        if not known[0].is_as(draw, is_now=True):
            raise another_draw(known[0], draw)
        return self._taken(known)

    def shuffled(self, function: Callable[..., Any], items: list[Any]) -> None:
        """Shuffle a list of the step; of one that counts its places the items stay numbers of the step.

        The items of others are found by digits: a path for every order that comes, so longer ones run line by line.
        """
        counts = all(type(item) is int and item == k for k, item in enumerate(items))
        if not counts and len(items) > ITEMS_SHUFFLED:
            self.give_up_draw(self._draw_of(function, (len(items),), {}), "changes the order of more than numbers")
        places = self.draw(function, len(items))
        items[:] = places if counts else [items[k] for k in places]

    def give_up_draw(self, draw: Draw, what: str) -> None:
        """A hidden input that is known only while the function runs: the call runs line by line."""
        self.refuse(f"{draw.name} {what}, at {draw.source}")

    def _refuse_drawn(self, draw: Draw) -> None:
        """What is drawn from an object that was drawn, a cursor or a reader, is known when that one is."""
        asked = (own(draw.function, "__self__", None), *draw.args, *draw.kwargs.values())
        if any(id(part) in self._objects_drawn for part in asked):
            self.give_up_draw(draw, "asks an object that is another one in every call")

    def _is_of_step(self, value: object) -> bool:
        """Whether a container that something is drawn from is another one when the step begins."""
        if not is_a(value, list | tuple | deque | dict | set):
            return is_a(value, Tensor) and value._array is None
        return self.contents.is_changed(value) or any(map(self._is_of_step, value))

    def length_drawn(self, container: Any, length: int) -> Any:
        """How long a container was before the step, which is drawn once: it changes from call to call."""
        known = self._lengths_drawn.get(id(container))
        if known is not None:
            return known
        self.mean_itself(container)
        draw = Draw(container.__len__, (), {}, here())
        given = [value for other, value in self.given if other.is_length and other.is_as(draw, is_now=True)]
        if not given:
            self.drawn.append((draw, length))  # the next attempt is given it, after what this one is given
        self._lengths_drawn[id(container)] = found = given[0] if given else length
        return found

    def mean_itself(self, container: object) -> None:
        """No equal container does instead of this one."""
        self.meant[id(container)] = container

    def draw_unless_of_tensors(self, function: Callable[..., Any], *args: object, **kwargs: object) -> Any:
        """``draw``, of a library's function; what gives tensors is part of the step."""
        self.arrays.refuse("what is read", args, kwargs)
        draw = self._draw_of(function, args, kwargs)
        self._refuse_drawn(draw)
        known = self._next_given()
        if known is not None and known[0].is_as(draw, is_now=True):
            self.refuse_in_body(f"asks for what {draw.name} gives")
            return self._taken(known)
        value = self._fetched(draw)
        leaves, _ = flatten(value)
        if any(is_a(leaf, Tensor | TracedNumber) for leaf in leaves):
            return value
        if known is not None:
            raise another_draw(known[0], draw)
        found = self._drawn(draw, value)
        self.refuse_in_body(f"asks for what {draw.name} gives")
        return found

    def _draw_of(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Draw:
        owner = args[0] if function is next else own(function, "__self__", None)
        place: Place | ArgumentPlace | None = self.places.get(id(owner))
        if place is not None:
            place.is_asked = True
        elif owner is not None and (number := self.nests.number_of(owner)) is not None:
            place = ArgumentPlace(number, owner)
        return Draw(function, args, kwargs, here(), place)

    def enter_drawn(self, args: object, kwargs: object) -> None:
        """Arguments from which something is drawn, for a call line by line."""
        for leaf in flatten((args, kwargs))[0]:
            if is_drawn_from(leaf):
                self.enter(leaf)

    def _next_given(self) -> tuple[Draw, Any] | None:
        """The next one that is given; lengths among them are found by their containers, whenever they are asked for."""
        while self._position < len(self.given) and self.given[self._position][0].is_length:
            self._position += 1
            self.decided.append(self.decided[-1] if self.decided else 0)
        return self.given[self._position] if self._position < len(self.given) else None

    def _given_for(self, draw: Draw) -> tuple[Draw, Any] | None:
        """What is given next, past clocks and the like that this call, which decides otherwise, does not ask for."""
        known = self._next_given()
        while known is not None and known[0].is_free and not known[0].is_as(draw, is_now=True):
            self._position += 1
            self._note_decisions(known[0])
            known = self._next_given()
        return known

    def _fetched(self, draw: Draw) -> Any:
        try:
            return draw.make()
        except BaseException as error:
            self._drawn(draw, Raised(error))
            raise

    def _taken(self, known: tuple[Draw, Any]) -> Any:
        self._position += 1
        self._note_decisions(known[0])
        if type(known[1]) is Raised:
            raise known[1].error
        return self._to_draw_from(known[1])

    def _drawn(self, draw: Draw, value: object) -> Any:
        self._position += 1
        self._note_decisions(draw)
        self.drawn.append((draw, value))
        return self._to_draw_from(value)

    def _to_draw_from(self, value: object) -> Any:
        """What has been drawn; if something can be drawn from it, or a part of it, that was there before the step."""
        for part in (value, *flatten(value)[0]):
            if not is_a(part, PRIMITIVES):
                self._objects_drawn[id(part)] = part
            if is_drawn_from(part):
                self.enter(part)
        return value

    def _note_decisions(self, draw: Draw) -> None:
        trace: Any = state.trace
        self.decided.append(0 if trace is None else len(trace.number_guards))
        self.draws_by_values |= not draw.is_free and trace is not None and bool(trace.splits)

    def check_draws(self) -> None:
        """After the function has run: whether a step can be given what it draws.

        Raises:
            Turned: it cannot.
            TraceError: it was given what it does not draw.
        """
        self._next_given()  # which passes over lengths at the end
        if self.draws_by_values or any(type(value) is Raised for _, value in self.drawn):
            raise Turned(DrawnOtherwise(self.drawn, DrawsByValues if self.draws_by_values else None))
        left = [draw for draw, _ in self.given[self._position :] if not draw.is_free]
        if left:
            raise another_draw(left[0], None)
