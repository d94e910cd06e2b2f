"""What a step changes in containers that exist outside it, and how every call changes them likewise.

An item of a dictionary, or of a list that nothing has moved, is a place that is assigned to (``Location``). Other
operations that change what is there, whatever that is (``append``, ``del c[:2]``, ``rotate``), are made again after
every run, in the order of the function (``repeat``). Code that cannot be observed (``heapq``, ``sort``) leaves after
every run what it has left in the capture, and that holds for what was there only (``refill``).

An operation that gives something of what was there, or fails for it, is repeated too, and what was there is guarded. At
the end of the capture the operations must explain what the container holds by then, from what it held before. Where
they do not, and where changes of two kinds would be made in another order, calls run line by line.
"""

from __future__ import annotations

import operator
from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, ItemsView, Iterator, KeysView, ValuesView
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.errors import TraceError
from autojit.core.sizes import SymbolicSize
from autojit.core.source import here
from autojit.jit.array_writes import ARRAYS, ArrayWrites
from autojit.jit.guards import PRIMITIVES, same
from autojit.jit.held_contents import refill, restore, snapshot, without_keys
from autojit.jit.late_values import is_of_step
from autojit.jit.line_by_line import MixedChanges
from autojit.jit.observed_functions import is_own_class, is_user_class
from autojit.jit.places import Location, is_a
from autojit.jit.pytree import flatten
from autojit.jit.tables import FACTORY, Tables, by_expressions, digits, has_size, settle_digits, shown_key
from autojit.jit.traced_number import TracedNumber
from autojit.runtime.entry_spec import MISSING
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor

if TYPE_CHECKING:
    from autojit.jit.places import Method

ITEMS_LIMIT = 1 << 16  # of a container that Python compares before every call: about 1 ms
BYTES_LIMIT = 1 << 22  # of an array: about 0.5 ms
BASES: tuple[type, ...] = (
    dict, list, tuple, set, frozenset, deque, array, bytearray, memoryview, np.ndarray, MappingProxyType,
    type({}.keys()), type({}.values()), type({}.items()),
)  # fmt: skip
WHOLE = object()  # the key of "everything in it"
LENGTH = object()
_KEYS = object()


class ContainerChanges(Tables):
    """The part of ``Contents`` that knows changes."""

    arrays: ArrayWrites

    if TYPE_CHECKING:

        def length(self, container: object, is_truth: bool = False) -> None: ...

    def __init__(self) -> None:
        self.refilled: set[int] = set()  # ids of containers that the step changes by code that cannot be observed
        self._before: dict[int, tuple[Any, Any]] = {}  # by id: container, and what was in it
        self._longer: dict[int, int | None] = {}  # than before the step, by id; None: that depends on what was in it
        self._orders: dict[int, tuple[Any, list[Any]]] = {}  # by id: dictionary, and its keys before one was deleted
        self._is_settled = False

    def is_one(self, value: object) -> bool:
        """Whether an object is a container from outside."""
        if id(value) not in self.observer.outside or not is_a(value, BASES):
            return False
        return not is_own_class(type(value)) or (is_a(value, dict) and type(value).__getitem__ is dict.__getitem__)

    def _own_keys(self, value: object) -> frozenset[Any]:
        """Keys of a container that are the step's: its arguments, or what it has written."""
        places = (*self.observer.rebound, *self.observer.written)
        return frozenset(key for holder, key in places if holder == id(value))

    def _check_size(self, value: Collection[Any]) -> None:
        if is_a(value, np.ndarray) and value.nbytes > BYTES_LIMIT:
            raise self._refusal(value, f"has {value.nbytes} bytes")
        if not is_a(value, np.ndarray) and len(value) > ITEMS_LIMIT:
            raise self._refusal(value, f"has {len(value)} items")

    def _refusal(self, value: object, why: str) -> TraceError:
        return TraceError(
            "jit: the step reads all of a container that is too large to be compared before every call",
            {"container": f"{self.observer.name_of(value)} ({type(value).__name__}) {why}", "at": here()},
            "pass it as an argument, or keep it in a tensor: aj.tensor(...) outside the step",
        )

    # -- operations that are repeated

    def operator_in_place(self, container: Collection[Any], method: str, operand: object) -> bool:
        """Whether an operator in place is this method of a container from outside."""
        kind = type(container)
        if not hasattr(kind, method) or not self.is_one(container):
            return False
        if kind in (list, deque):
            if type(operand) in _ASKED_SECOND or not hasattr(type(operand), f"__r{method[3:]}"):
                return True
            self.keep(container)  # the operand is asked first, and may not know
            return False
        return kind in (dict, OrderedDict) or (kind is set and is_a(operand, set | frozenset))

    def repeating(self, function: Method, is_dropped: bool) -> Callable[..., Any] | None:
        """What is called instead of a method in C of a list, deque or set from outside; None: it is not one of these.

        ``is_dropped``: nobody looks at what it gives.
        """
        owner, name = function.__self__, function.__name__
        if not is_a(owner, list | deque | set) or name not in _REPEATED:
            return None
        if name in ("__setitem__", "__delitem__"):
            return partial(self.changing_item, owner, operator.setitem if name == "__setitem__" else operator.delitem)
        if name in ("pop", "popleft") and is_dropped and not is_a(owner, set):
            return partial(self._drop, function)
        if name in _READING:
            self.whole(owner)
        if name == "pop" and is_a(owner, set):
            self._give_up(owner)  # which item it gives depends on more than what is in the set
        return partial(self.repeat, function)

    def _drop(self, function: Method, *place: object) -> None:
        """Take an item away that nobody looks at."""
        self._reaches(function.__self__, place[0] if place else 0 if function.__name__ == "popleft" else -1)
        self.repeat(function, *place)

    def repeat(self, function: Method, *args: object) -> Any:
        """Call a container's method now, for the rest of the capture, and after every run of the step."""
        container, name = function.__self__, function.__name__
        if name in _OF_MANY:
            args = tuple(map(_drawn_from, args))
        if is_a(container, set) and name not in ("add", "update", "__ior__"):  # it is asked what it has
            settle_digits(container)
            args = tuple([_by_digits(arg) if name in _OF_MANY else digits(arg) for arg in args])
        if self.observer.is_at_once:
            return function(*args)
        places = self._own_keys(container) if is_a(container, list) else ()
        if places and (name not in _ADDING or max(places) >= len(container)):
            self._give_up(container)
        self._longer[id(container)] = self.longer(container)
        self.keep(container)
        length = len(container)
        result = by_expressions(function, *args) if is_a(container, set) else function(*args)
        self.observer.defer(function, *args)
        self._grow(container, len(container) - length, name, args)
        return None if result is None else self.observer.enter(result)

    def _grow(self, container: Collection[Any], by: int, name: str, args: tuple[Any, ...]) -> None:
        """Note how much longer an operation has made a container."""
        is_sure = name in _BY_A_NUMBER and not any(is_a(arg, slice) for arg in args[:1])
        is_sure = is_sure and (is_a(container, list) or (is_a(container, deque) and container.maxlen is None))
        longer = self._longer[id(container)]
        self._longer[id(container)] = longer + by if is_sure and longer is not None else None

    def longer(self, container: object) -> int | None:
        """How much longer a container is than before the step; None: that depends on what was in it."""
        return self._longer.get(id(container), None if id(container) in self._before else 0)

    def _reaches(self, container: Collection[Any], place: object) -> None:
        """An item is replaced or deleted, which fails where there is none."""
        longer = self.longer(container)
        if longer is None or not is_a(place, int):
            self.whole(container)
            return
        place = operator.index(place)
        read = lambda: -(len(container) + longer) <= place < len(container) + longer
        found = -len(container) <= place < len(container)
        name = f"{place} in range(len({self.observer.name_of(container)}))"
        self.observer.note(container, (LENGTH, place, longer), name, read, found)

    # -- items

    def changing_item(self, container: Any, function: Callable[..., Any], key: object, *value: object) -> None:
        """Assign to an item or a part of a list or deque, or delete it."""
        key = digits(key)
        is_unmoved = is_a(container, list) and id(container) not in self._before
        if is_unmoved and function is operator.setitem and is_a(key, int):
            self._assign_in_place(container, operator.index(key), *value)
            return
        if not is_a(key, slice):
            self._reaches(container, key)
        elif key.step is not None:
            self.whole(container)
        if is_a(key, slice):
            value = tuple(map(_drawn_from, value))
        self.repeat(getattr(container, f"__{function.__name__}__"), key, *value)

    def _assign_in_place(self, items: list[Any], place: int, value: object) -> None:
        if -len(items) <= place < 0:
            self.length(items)
            place += len(items)
        before = list.__getitem__(items, place) if 0 <= place < len(items) else MISSING
        operator.setitem(items, place, value)
        self.observer.note_write(Location(f"{self.observer.name_of(items)}[{place}]", items, place), before)

    def changing(self, container: Any, key: object, change: Callable[[Any], None]) -> None:
        """Assign to an item, or delete it."""
        if not self.is_one(container):
            change(key)
            return
        kind, key = type(container), digits(key)
        if not (is_a(container, dict) and (is_own_class(kind) or kind.__setitem__ in _SETTING_ITEMS)):
            self.keep(container)
            change(key)
            return
        name = f"{self.observer.name_of(container)}[{shown_key(key)}]"
        before = dict.get(container, key, MISSING)
        if not is_own_class(kind) and before is not MISSING:
            self._orders.setdefault(id(container), (container, list(container)))
        change(key)
        self.observer.note_write(Location(name, container, key), before)
        if before is MISSING and key in self._orders.get(id(container), ((), ()))[1]:
            self._give_up(container)

    def note_keys(self, table: dict[Any, Any]) -> None:
        """The keys of a dictionary have been read, those too whose items the step assigns to."""
        name = f"keys of {self.observer.name_of(table)}"
        self.observer.note(table, _KEYS, name, lambda: tuple(table), self._held(table)[0])

    def assign(self, container: Any, key: object, value: object) -> None:
        """``container[key] = value``."""
        kind = type(container)
        if not self.is_one(container):
            operator.setitem(container, key, value)  # messages name it
        elif is_a(container, list | deque) and kind.__setitem__ in (list.__setitem__, deque.__setitem__):
            self.changing_item(container, operator.setitem, key, value)
        elif is_a(container, ARRAYS) and not is_user_class(kind):
            self.observer.used_as_key(key)
            known = None if self.arrays.is_written(container) else self._before.get(id(container))
            is_mixed = known is not None and not same(snapshot(container, frozenset()), known[1])
            if is_mixed or self.arrays.shows(value, container):
                self._give_up(container)
            self.keep(container)
            self.arrays.assign(container, key, value)
        else:
            self.changing(container, key, lambda k: operator.setitem(container, k, value))

    def delete(self, container: Any, key: object) -> None:
        """``del container[key]``."""
        kind = type(container)
        is_plain = is_a(container, list | deque) and kind.__delitem__ in (list.__delitem__, deque.__delitem__)
        if is_plain and self.is_one(container):
            self.changing_item(container, operator.delitem, key)
        else:
            self.changing(container, key, lambda k: operator.delitem(container, k))

    # -- all of it

    def rearranged(self, container: Collection[Any]) -> None:
        """All of a container is about to be changed, or has been: what every call leaves in it is what is in it now."""
        if (is_a(container, list | dict) and self._own_keys(container)) or self.arrays.is_written(container):
            self._give_up(container)
        self.whole(container)
        self.keep(container)
        self.refilled.add(id(container))

    def keep(self, container: Collection[Any]) -> None:
        """Remember what is in a container before code that may change it runs."""
        if id(container) not in self._before:
            self._check_size(container)
            self._before[id(container)] = container, self._held(container)

    def _held(self, container: Collection[Any]) -> Any:
        """A snapshot of a container as it was before the step assigned to its items, one by one."""
        observer = self.observer
        places = [*observer.written.values(), *observer.rewritten.values()]
        known = {place.key: before for place, before in places if place.holder is container}
        if not known or not is_a(container, dict | list):
            return snapshot(container, frozenset())
        if is_a(container, list):
            return tuple([known.get(k, value) for k, value in enumerate(container)])
        _, keys = self._orders.get(id(container), (container, list(container)))
        held = {key: known.get(key, dict.get(container, key, MISSING)) for key in keys}
        held = {key: value for key, value in held.items() if value is not MISSING}
        return tuple(held), tuple(held.values())

    def changes(self) -> dict[int, tuple[str, Any, Any]]:
        """The containers that code may have changed, by id: name, what they held and what they hold now."""
        kept = self._before.items()
        return {key: (self.observer.name_of(c), was, snapshot(c, frozenset())) for key, (c, was) in kept}

    def _mixed(self, container: object) -> MixedChanges:
        return MixedChanges(f"{self.observer.name_of(container)} ({type(container).__name__})", str(here()))

    def _give_up(self, container: object) -> None:
        """While the function runs: calls cannot change a container in the order of the function."""
        self.observer.give_up(self._mixed(container))

    # -- the end of the capture

    def settle(self) -> None:
        """Give the containers that the step has changed back what they held; every call changes them as this one did.

        Raises:
            MixedChanges: one has been changed in a way that cannot be done again, or in another order only.
        """
        if self._is_settled:
            return
        self.arrays.settle()
        self._put_in_order()
        for container, before in list(self._before.values()):
            keys = self._own_keys(container)
            now = snapshot(container, keys)
            again = [call for call in self.observer.deferred if getattr(call.function, "__self__", None) is container]
            if id(container) not in self.refilled and self._is_explained(container, before, again, now):
                if again:
                    restore(container, before, keys)
                continue
            if (keys or self.arrays.is_written(container)) and state.trace is not None:
                raise self._mixed(container)
            self._refill(container, before, keys)
        self._is_settled = True

    def _is_explained(self, container: Collection[Any], before: object, again: list[Any], now: object) -> bool:
        """Whether operations on what a container held give what it holds, except for items that are assigned."""
        keys = self._own_keys(container)
        if not again:
            return same(now, before) or same(now, without_keys(container, before, keys))
        if is_a(container, dict):
            return False
        copy = _copy_of(container, before)
        if is_a(copy, list) and is_a(container, list):
            for place in [key for key in keys if key < min(len(copy), len(container))]:
                copy[place] = list.__getitem__(container, place)
        try:
            for call in again:
                if is_a(container, list | deque | set) or not any(map(is_of_step, flatten(call.args)[0])):
                    method = getattr(copy, call.function.__name__)
                    by_expressions(method, *call.args) if is_a(copy, set) else method(*call.args)
        except Exception:
            return False  # other code has changed it, too
        if is_a(copy, set):
            if not any(map(has_size, container)):
                settle_digits(copy)
            return bool(copy == container)
        if is_a(copy, list | deque):
            return len(copy) == len(container) and all(map(operator.is_, copy, container))
        return same(snapshot(copy, keys), now)

    def _refill(self, container: Collection[Any], before: object, keys: frozenset[Any]) -> None:
        """Every call leaves all of a container as this one did."""
        observer = self.observer
        self.refilled.add(id(container))
        left = self._left_in(container)
        self.whole(container)
        restore(container, before, keys)
        if left is None:
            raise self._mixed(container)
        for call in observer.deferred[:]:
            if getattr(call.function, "__self__", None) is container:
                observer.deferred.remove(call)
        places = sorted(keys) if is_a(container, list) else keys if is_a(container, dict) else ()
        observer.defer(partial(refill, container, places), left)

    def _left_in(self, container: Collection[Any]) -> Any:
        """What every call leaves in a container that the step has changed as a whole; None: nobody could tell.

        In a dictionary items are read and assigned one by one, and then nothing is known of the order.
        """
        if is_a(container, dict):
            of_items = [
                key
                for holder, key in self.observer.places_read
                if holder == id(container) and key not in (WHOLE, FACTORY)
            ]
            return None if of_items or self._own_keys(container) else dict(container)
        if is_a(container, np.ndarray):
            return container.copy()
        return list(container) if is_a(container, list | deque | set) else None

    def _put_in_order(self) -> None:
        """Dictionaries of which an item was deleted and put back have their keys in other places."""
        for table, keys in self._orders.values():
            known = [key for key in keys if dict.__contains__(table, key)]
            kept = known + [key for key in table if key not in keys]
            if list(table) != kept:
                restore(table, (kept, [dict.__getitem__(table, key) for key in kept]), frozenset())

    def put_back(self) -> None:
        """Give all containers that code may have changed back what they held, if the capture has been discarded."""
        self._put_in_order()
        for container, before in () if self._is_settled else self._before.values():
            if not same(snapshot(container, frozenset()), before):
                restore(container, before, self._own_keys(container))


def _drawn_from(items: object) -> Any:
    """Items of which there would be none left, or others, when they are asked for again."""
    return list(items) if is_a(items, Iterator | KeysView | ValuesView | ItemsView) else items


def _by_digits(items: Any) -> Any:
    """The same items, with sizes and numbers of the step by their digits, for a set that is asked for them."""
    return type(items)(map(digits, items)) if type(items) in (set, frozenset, list, tuple) else items


def _copy_of(container: Collection[Any], before: Any) -> Any:
    """Another container of this kind that holds what a snapshot says."""
    if is_a(container, deque):
        return deque(before, container.maxlen)
    if is_a(container, list | set):
        return (list if is_a(container, list) else set)(before)
    if is_a(container, array):
        return array(container.typecode, before)
    if is_a(container, memoryview):
        memory: Any = memoryview(bytearray(before))
        return memory.cast("B").cast(container.format, container.shape)
    return before.copy() if is_a(before, np.ndarray) else bytearray(before)


_SETTING_ITEMS = (dict.__setitem__, OrderedDict.__setitem__)
_ASKED_SECOND = (*PRIMITIVES, Tensor, TracedNumber, SymbolicSize)  # next to a list
_ADDING = frozenset(("append", "extend", "__iadd__"))  # nothing that was there moves
_REPEATED = _ADDING | frozenset((
    "appendleft", "extendleft", "insert", "clear", "reverse", "rotate", "pop", "popleft", "remove", "__setitem__",
    "__delitem__", "__imul__", "add", "discard", "update", "difference_update", "intersection_update",
    "symmetric_difference_update", "__ior__", "__iand__", "__isub__", "__ixor__",
))  # fmt: skip
_READING = frozenset(("pop", "popleft", "remove"))  # gives something of what was there, or fails for it
_BY_A_NUMBER = _ADDING | frozenset((
    "appendleft", "extendleft", "insert", "reverse", "rotate", "pop", "popleft", "remove", "__setitem__", "__delitem__",
))  # fmt: skip
_OF_MANY = frozenset((  # takes items, one by one
    "extend", "__iadd__", "extendleft", "update", "difference_update", "intersection_update",
    "symmetric_difference_update", "__ior__", "__iand__", "__isub__", "__ixor__",
))  # fmt: skip
