"""Python state that a captured function reassigns: ``self.steps += 1``, ``self.mean = 0.9 * self.mean + 0.1 * x``.

A capture runs the function once; what it stores in attributes, closure cells, globals and dictionaries would be stored
once. So the places it assigns to are found and put back (``snapshots``), and from then on passed to the step
as arguments and taken from it as results: ``Rebinding`` is the function with these places made explicit. Numbers enter
as tensors of one element and stay part of the step, so a counter costs one capture, not one per value.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from autojit.core.errors import TraceError
from autojit.core.late_interrupts import late_interrupts
from autojit.core.wrapping import own
from autojit.jit.argument_nests import has_containers, reaches
from autojit.jit.arguments import leaf_names
from autojit.jit.changing_lengths import Lengths
from autojit.jit.draw_plans import Drawn, Plans
from autojit.jit.draws import Draw
from autojit.jit.eager_mode import line_by_line
from autojit.jit.guards import stays
from autojit.jit.held_contents import put, refill
from autojit.jit.line_by_line import GivenAndChanged
from autojit.jit.observed_calls import Deferred
from autojit.jit.observer import Observer
from autojit.jit.other_steps import Finished, Handed
from autojit.jit.outcomes import DrawnOtherwise, Rebinds, Releases
from autojit.jit.places import Location, in_use
from autojit.jit.pytree import TreeSpec, flatten
from autojit.jit.read_hooks import active
from autojit.jit.rebound_values import UNTOUCHED, Refilled, Remade, alone_in, entered_value, entering, left_in, mapped
from autojit.runtime.entry_spec import MISSING
from autojit.tensor.state import bump_guard_epoch, guard_epoch, state
from autojit.tensor.tensor import Tensor

if TYPE_CHECKING:
    from autojit.jit.captures import Captures
    from autojit.jit.decided_calls import DecidedCalls
    from autojit.jit.native import NativeStep

TAKE_TURNS = 4  # steps of a function that are told of changes that another one of it has made
VALUES_BEFORE = 4  # of a number, until it counts as changing
TENSORS_BEFORE = 2  # of a place that holds tensors: a batch, a target network


def changing_values(captures: Captures) -> Rebinds | None:
    """Places that held another number or tensor for each of several captures: they become arguments of the steps."""
    if captures.captures <= min(VALUES_BEFORE, TENSORS_BEFORE):
        return None
    values: dict[tuple[int, Any], set[Any]] = {}
    found: list[Location] = []
    for guard in (guard for capture in captures.each() for guard in capture.guards):
        kind = type(guard.expected)
        if guard.held_by is None or kind not in (int, float, Tensor) or guard.holds():
            continue
        place = Location(guard.name, guard.held_by[0], guard.held_by[1], guard.by_epoch)
        known = values.setdefault(place.identity, set())
        known.add(id(guard.expected) if kind is Tensor else guard.expected)
        if len(known) == (TENSORS_BEFORE if kind is Tensor else VALUES_BEFORE) and type(place.read()) is kind:
            found.append(place)
    return Rebinds(found, "changing between calls", is_lasting=True) if found else None


class Assigned:
    """A call that assigns an object to a place."""

    def __init__(self, location: Location) -> None:
        self.location = location

    def __call__(self, value: object) -> None:
        self.location.write(value)

    def is_as(self, other: Assigned) -> bool:
        """Whether it is the same place."""
        return self.location.identity == other.location.identity


class Ordered:
    """A call that gives dictionaries the keys that a step puts into them, in eager mode's order.

    ``tables``: dictionaries, and what is new in each.
    """

    def __init__(self, tables: Sequence[tuple[Any, Sequence[Any]]]) -> None:
        self.tables = tables

    def __call__(self) -> None:
        for table, keys in self.tables:
            for key in keys:
                if not dict.__contains__(table, key):
                    put(table, key, None)  # until the values are there, at once

    def is_as(self, other: Ordered) -> bool:
        """Whether they are the same dictionaries and keys."""
        mine, others = ([(id(table), *keys) for table, keys in call.tables] for call in (self, other))
        return mine == others


class Rebinding:
    """``function`` with ``locations`` and what is drawn as arguments, and with what it leaves as results.

    ``(values, drawn, args, kwargs)`` -> ``(result, values, calls to make now)``.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        locations: Sequence[Location],
        released: frozenset[tuple[int, Any]] = frozenset(),
    ) -> None:
        self.function = function
        self.locations = tuple(locations)
        self.plans = Plans()
        self.identities = frozenset(location.identity for location in locations)
        self.released = released  # places that were state for a while; they stay from now on
        self.untouched: frozenset[tuple[int, Any]] = frozenset()  # places left alone when it was captured last
        self.idle: list[Location] = []  # places to which the function did not assign when it was captured last
        self.changed: dict[int, Any] = {}  # what its steps change outside, by id
        self.refilled: list[Location] = []  # places whose lists and dictionaries they change before they assign others
        self.installed: NativeStep | DecidedCalls | None = None  # whose guards have just been verified
        self._ran: deque[weakref.ref[NativeStep | DecidedCalls]] = deque(maxlen=TAKE_TURNS)  # those that ran last

    def leaf_names(self, tree: TreeSpec) -> list[str]:
        """What messages call the leaves of ``(values, drawn, args, kwargs)``."""
        values, drawn, args, kwargs = tree.children[0].children
        places = zip(self.locations, values.children, strict=True)
        names = [location.name for location, value in places for _ in range(value.count)]
        pairs = zip(self.plans.current.draws, drawn.children, strict=True)
        names += [f"what is drawn at {draw.source}" for draw, value in pairs for _ in range(value.count)]
        return [*names, *leaf_names(self.function, TreeSpec(tuple, (args, kwargs)))]

    @staticmethod
    def first_argument(tree: TreeSpec) -> int:
        """How many of those leaves come before the user's arguments."""
        values, drawn, _, _ = tree.children[0].children
        return values.count + drawn.count

    def values(self, drawn: Drawn, args: object, kwargs: object) -> tuple[Any, Any] | DrawnOtherwise:
        """What the places hold now and what is drawn for a call, if it can be drawn, as arguments of the step.

        Raises:
            GivenAndChanged: its steps change what is an argument of the call, too.
        """
        if self._is_given(args, kwargs):
            raise GivenAndChanged
        return self._values(drawn, args, kwargs)

    def _values(self, drawn: Drawn, args: object, kwargs: object) -> tuple[Any, Any] | DrawnOtherwise:
        values = self.held()
        found = self.plans.draw(drawn, (values, args, kwargs))
        if isinstance(found, DrawnOtherwise):
            return found
        return values, tuple([mapped(value, entering) for value in found])

    def _is_given(self, args: object, kwargs: object) -> bool:
        """Whether steps change a list, dictionary or record outside that is an argument, of which they see a copy."""
        if self.refilled and reaches((args, kwargs), {id(location.read()) for location in self.refilled}):
            return True
        held = [location.read() for location in self.locations]
        return bool(self.changed) and any(reaches(given, self.changed) for given in (held, args, kwargs))

    def learn(self, observer: Observer, args: object, kwargs: object) -> None:
        """What a step that has just been captured for such arguments changes.

        Raises:
            GivenAndChanged: it changes what is an argument of the call, too.
        """
        holders = [place.holder for place in self.locations]
        for call in observer.deferred:
            function = call.function
            holders += function.args if isinstance(function, partial) else ()
            holders.append(function.location.holder if type(function) is Assigned else own(function, "__self__", None))
        self.changed.update((id(holder), holder) for holder in holders if holder is not None)
        if self._is_given(args, kwargs):
            raise GivenAndChanged

    def held(self) -> tuple[Any, ...]:
        """What the places hold now."""
        return tuple([mapped(location.read(), entering) for location in self.locations])

    def __call__(self, values: Sequence[Any], drawn: Sequence[Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The function called with these values in their places; the places are left as they were."""
        observer = active.observer
        if observer is None:  # an eager run: it is given the same draws, and its calls are made by ``store``
            observer = Observer(self.identities)
            observer.lengths = Lengths(self.plans.current.draws)
            with observer.observing():
                observer.enter(self.function)
                return self(values, drawn, args, kwargs)
        before = [location.read() for location in self.locations]
        given = [mapped(value, entered_value) for value in values]
        found = [mapped(value, entered_value) for value in drawn]
        observer.nests.add_copies((given, found))
        entered = [flatten(value) for value in given]
        observer.given = list(zip(self.plans.current.draws, found, strict=True))
        try:
            for location, value in zip(self.locations, given, strict=True):
                location.write(value)
            result = self.function(*args, **kwargs)
            held = [location.read() for location in self.locations]
            ordered = _new_keys(observer)
            left = zip(self.locations, given, held, strict=True)
            self.untouched = frozenset(location.identity for location, old, new in left if new is old)
            self.idle = [
                location
                for location, old, new in zip(self.locations, given, held, strict=True)
                if location.identity not in self.released and _are_the_same_tensors(old, new)
            ]
        finally:
            for location, value in zip(self.locations, before, strict=True):
                location.write(value)
                _note_flag(location)
        observer.settle()
        observer.contents.settle()
        observer.attributes.carry((result, held, observer.deferred), observer.outside)
        triples = zip(held, given, entered, strict=True)
        results = tuple([left_in(observer, value, old, entry) for value, old, entry in triples])
        changed = [place for place, left in zip(self.locations, results, strict=True) if type(left) is Refilled]
        observer.guards += [alone_in(place, self.locations, observer) for place in changed]
        self.refilled = [*{place.identity: place for place in (*self.refilled, *changed)}.values()]
        return result, results, (*ordered, *observer.deferred)

    def store(self, found: tuple[Any, Sequence[Any], Sequence[Deferred]]) -> Any:
        """Put the values a step gave into their places and make its calls; its result."""
        result, values, deferred = found
        if deferred and type(deferred[0].function) is Ordered:
            deferred[0].function()
            deferred = deferred[1:]
        epoch = int(guard_epoch[0])
        is_counted = False
        for location, value in zip(self.locations, values, strict=True):
            if type(value) is Refilled:
                refill(location.read(), (), value.contents)
        for location, value in zip(self.locations, values, strict=True):
            if type(value) is Refilled:
                value = value.value
            if type(value) is Remade:
                value = value.kind(value.value, value.requires_grad)
            if value is not UNTOUCHED and not stays(location.read(), value):
                is_counted |= location.is_counted and not location.is_flag(value)
                location.write(value)
        others: list[Deferred] = []
        for call in deferred:
            if type(call.function) is Assigned:
                is_counted |= call.function.location.is_counted and not call.function.location.is_flag(*call.args)
                call.function(*call.args)
            else:
                others.append(call)
        if is_counted:
            bump_guard_epoch()  # other steps may have baked the old ones in; this one has them as arguments
            if self.installed is not None and int(guard_epoch[0]) == epoch + 1:
                self.installed.expect_change(epoch + 1)
                for native in [ref() for ref in self._ran]:
                    if native is not None:
                        native.expect_change(epoch + 1)
        for call in others:
            call.function(*call.args, **call.kwargs)
        return result

    def line_by_line(self, given: Sequence[tuple[Draw, Any]], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """A call without a step, given what has been drawn for it."""
        if not given:
            with late_interrupts.at_once(), line_by_line():
                return self.function(*args, **kwargs)
        observer = Observer(is_at_once=True)
        with late_interrupts.at_once(), observer.observing(), line_by_line():
            observer.enter(self.function)
            observer.enter_drawn(args, kwargs)
            observer.given, observer.lengths = given, Lengths([draw for draw, _ in given])
            return self.function(*args, **kwargs)

    def around(
        self, native: NativeStep | DecidedCalls, as_given: Callable[[Any, Any], Any], slow: Callable[..., Any]
    ) -> Callable[..., Any]:
        """The native step as a function of the user's arguments; ``as_given``: of which a call line by line is made."""
        values, _, *given_by_user = native.step.capture.argument_tree.children[0].children
        has_nests = any(map(has_containers, (values, *given_by_user)))

        def run(*args: object, **kwargs: object) -> Any:
            if has_nests and self._is_given(args, kwargs):
                return slow(*args, **kwargs)
            epoch = int(guard_epoch[0])
            made = carried(self.function)
            with carrying(made, self.function) as drawn:
                entered = self._values(drawn, args, kwargs)
                found = entered if isinstance(entered, DrawnOtherwise) else native.call(*entered, args, kwargs)
            if isinstance(found, DrawnOtherwise):
                return self.line_by_line(found.given(made), *as_given(args, kwargs))
            if type(found) is Finished:
                return found.result
            ran: NativeStep | DecidedCalls = native
            if type(found) is Handed:
                ran, found = found
            self.installed = ran if int(guard_epoch[0]) == epoch else None
            return self.store(found)

        self.installed = native
        if not any(ref() is native for ref in self._ran):
            self._ran.append(weakref.ref(native))
        return run


def rebound(
    function: Callable[..., Any], known: Rebinding | None, found: Rebinds, released: frozenset[tuple[int, Any]]
) -> Rebinding | None:
    """The form of a function after a capture has found this; the same one where only draws are new."""
    places = () if known is None else known.locations
    identities = {place.identity for place in found.locations}
    if isinstance(found, Releases):
        kept = tuple(place for place in places if place.identity not in identities)
        return Rebinding(function, kept, released) if kept or (known is not None and known.plans.plans) else None
    if identities and identities <= {place.identity for place in places}:
        raise TraceError(
            f"jit: {getattr(function, '__name__', type(function).__name__)} assigns to a place in a way that its steps "
            "cannot",
            {"places": ", ".join(place.name for place in found.locations)},
            "return the value, and assign it outside the step",
        )
    if known is not None and found.drawn and not identities:
        return known
    return Rebinding(
        function, (*(() if known is None else in_use(places, known.untouched)), *found.locations), released
    )


class _Carried(threading.local):
    """What this thread has drawn for a call of ``function`` that a native step may refuse."""

    drawn: Drawn | None = None
    function: Callable[..., Any] | None = None


_carried = _Carried()


@contextmanager
def carrying(drawn: Drawn, function: Callable[..., Any]) -> Iterator[Drawn]:
    """``drawn`` belongs to the call of ``function`` inside, whoever runs it in the end."""
    before = _carried.drawn, _carried.function
    _carried.drawn, _carried.function = drawn, function
    try:
        yield drawn
    finally:
        _carried.drawn, _carried.function = before


def carried(function: Callable[..., Any]) -> Drawn:
    """What has been drawn for the call of ``function`` that begins, which takes it over."""
    if _carried.drawn is None or _carried.function is not function:
        return Drawn()
    drawn, _carried.drawn = _carried.drawn, None
    return drawn


def _new_keys(observer: Observer) -> list[Deferred]:
    """How dictionaries get the keys that the function has just put into them, if the order could be another one."""
    new: dict[int, tuple[Any, set[Any]]] = {}
    for location, before in (*observer.written.values(), *observer.rewritten.values()):
        if before is MISSING and isinstance(location.holder, dict):
            new.setdefault(id(location.holder), (location.holder, set()))[1].add(location.key)
    tables = [(table, [key for key in table if key in keys]) for table, keys in new.values() if len(keys) > 1]
    return [Deferred(Ordered(tables), (), {})] if tables else []


def _are_the_same_tensors(old: object, new: object) -> bool:
    """Whether a place holds the very tensors that it held before the function ran, in the same nest.

    Numbers beside them may differ: where they are assigned to in the nest, the next capture finds their own places.
    """
    before, tree = flatten(old)
    after, tree_after = flatten(new)
    if tree != tree_after or not any(isinstance(leaf, Tensor) for leaf in before):
        return False
    return all(a is b or not isinstance(a, Tensor) for a, b in zip(before, after, strict=True))


def _note_flag(location: Location) -> None:
    """A step finds its state as the capture found it, whatever flags the function sets then."""
    trace: Any = state.trace
    if trace is not None and isinstance(location.holder, Tensor):
        entry = trace.state.get(id(location.holder._array))
        if entry is not None and entry.owner is location.holder:
            entry.requires_grad = location.holder._requires_grad
