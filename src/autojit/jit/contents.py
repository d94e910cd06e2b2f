"""What is inside containers that exist outside a capture: single items, lengths, or all of it.

Reads that name an item guard that item. Whatever walks a container, compares it, or hands it to code that cannot be
observed has read all of it: its items by identity (numbers and strings by value), and those of the containers in it.
"""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Callable, Collection
from contextlib import suppress
from types import BuiltinFunctionType, MemberDescriptorType
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.source import here
from autojit.jit.array_writes import ARRAYS, ArrayWrites
from autojit.jit.attribute_tables import note_table
from autojit.jit.container_changes import BASES, LENGTH, WHOLE, ContainerChanges
from autojit.jit.guards import PRIMITIVES
from autojit.jit.held_contents import items_of, parts_of, snapshot, without_keys
from autojit.jit.observed_functions import BAGS, is_module, is_own_class, is_user_class, is_without_secrets
from autojit.jit.places import attributes_of, defines, is_a, module_of
from autojit.jit.tables import NAMING, digits, settle_digits, shown_key
from autojit.jit.traced_math import REPLACED_TABLES
from autojit.runtime.entry_spec import MISSING
from autojit.tensor.node import Node
from autojit.tensor.tensor import Tensor

if TYPE_CHECKING:
    from autojit.jit.observer import Observer

DEPTH_LIMIT = 16
_TRUTH = object()
CONTAINERS: frozenset[type] = frozenset((*BASES, OrderedDict))


class Contents(ContainerChanges):
    """The containers of one capture."""

    def __init__(self, observer: Observer) -> None:
        super().__init__()
        self.observer = observer
        self._whole: set[int] = set()
        self.arrays = ArrayWrites(observer)

    def is_changed(self, container: object) -> bool:
        """Whether the step has changed a container from outside."""
        places = (*self.observer.written, *self.observer.rewritten)
        return id(container) in self._before or any(holder == id(container) for holder, _ in places)

    def is_whole(self, value: object) -> bool:
        """Whether all of a container has been read."""
        return id(value) in self._whole

    # -- reads

    def item(self, container: Any, key: object) -> Any:
        """``container[key]``."""
        observer = self.observer
        kind = type(container)
        if is_own_class(kind) and (not is_a(container, dict) or kind.__getitem__ is not dict.__getitem__):
            return observer.enter(container[key])
        where = f"{observer.name_of(container)}[{shown_key(key)}]"
        if is_a(container, dict) and kind.__getitem__ is dict.__getitem__:
            return self.key_of(container, key, where)
        if id(container) in self._before:  # the step has changed it
            self.whole(container)
            return container[key]
        if is_a(container, list) and kind.__getitem__ is list.__getitem__ and is_a(key, int):
            value, place = container[key], operator.index(key)
            if observer.is_of_step(container, place % len(container)):
                return value
            observer.note(container, place, where, lambda: _at(container, place), value, held=True)
            return observer.enter(value, where)
        if is_a(container, BASES) and not is_user_class(kind):
            self.whole(container, deep=False)
        value = container[key]
        self.of_library(container)
        if observer.foreign.is_opaque(container):
            observer.foreign.refuse_if_changed(container)
            observer.note_again(container, (LENGTH, shown_key(key)), where, lambda: container[key], value)
        if is_a(value, list | tuple) and is_a(key, slice):
            for part in value:
                observer.enter(part)
            return value
        return observer.enter(value, where)

    def asked_for(self, container: object, item: object) -> bool | None:
        """``item in container``, for a dictionary from outside; None for others, which are read as a whole."""
        if not self.is_one(container):
            return None
        self.observer.used_as_key(item)
        item = digits(item)
        if is_a(container, dict) and is_a(item, NAMING):
            found = dict.__contains__(container, item)
            if any((id(container), item) in places for places in (self.observer.written, self.observer.rewritten)):
                return found  # the step has put it there, or has taken it away
            if id(container) in self._before:
                self.whole(container)
                return found
            name = f"{shown_key(item)} in {self.observer.name_of(container)}"
            read = lambda: dict.__contains__(container, item)
            self.observer.note(container, (LENGTH, item), name, read, found)
            return found
        self.whole(container)
        return None

    def length(self, container: Any, is_truth: bool = False, may_draw: bool = False) -> Any:
        """``len(container)`` is asked for, or whether there is anything in it; ``may_draw``: it is given where the step
        takes it as an input.
        """
        if not self.is_one(container):
            return None
        longer = self.longer(container)
        if is_a(container, np.ndarray) or longer is None or (is_truth and is_user_class(type(container))):
            self.whole(container)
        elif not is_a(container, tuple):
            key, question = (_TRUTH, bool) if is_truth and not longer else (LENGTH, len)
            measure = _length_of(type(container))
            more = self._added(container) + longer
            length = measure(container) - more
            if may_draw and key is LENGTH and container in self.observer.lengths:
                drawn = self.observer.length_drawn(container, length)
                return None if self.observer.is_at_once else drawn + more  # there the container is as it is by now
            name = f"{question.__name__}({self.observer.name_of(container)})"
            read: Callable[[], Any] = lambda: question(range(measure(container)))
            self.observer.note(container, key, name, read, question(range(length)))
            if key is LENGTH and (guard := self.observer.places_read.get((id(container), key))) is not None:
                guard.length_of = container
        return None

    def _added(self, container: object) -> int:
        """How many keys the step has put into a dictionary, one by one, that were not there."""
        if not is_a(container, dict):
            return 0
        written = (*self.observer.written.values(), *self.observer.rewritten.values())
        places = [(place.key, was) for place, was in written if place.holder is container]
        return sum(dict.__contains__(container, key) - (was is not MISSING) for key, was in places)

    def iterated(self, value: object) -> Any:
        """Something that is about to be walked."""
        if id(value) not in self.observer.outside:
            return value
        if self.is_one(value):
            self.whole(value, deep=False)
        elif defines(type(value), "__next__") and not is_own_class(type(value)):
            name = f"{self.observer.name_of(value)} ({type(value).__name__})"
            self.observer.refuse(f"{name}, walked at {here()}, goes on from call to call")
        return value

    def looked_at(self, value: object) -> None:
        """Something whose truth, text or order is about to be taken."""
        if self.is_one(value):
            self.whole(value)
        elif id(value) in self.observer.outside and (type(value).__name__ in BAGS or is_without_secrets(type(value))):
            self.instance(value)  # is compared, or shown, by code in C

    def escape(self, value: Any, within: tuple[Any, ...] = ()) -> None:
        """Something that goes into code that cannot be observed; ``within`` what the step has made around it."""
        kind = type(value)
        if kind in _PLAIN or is_a(value, Tensor) or any(value is around for around in within):
            return
        if is_a(value, BASES):
            if is_own_class(kind):
                return
            if id(value) in self.observer.outside:
                self.whole(value)
            elif is_a(value, list | tuple | dict):
                for part in list(value.values()) if is_a(value, dict) else value:
                    self.escape(part, (*within, value))
        elif callable(value) and not is_a(value, Node):
            self.observer.observe(value)
            self.of_library(value)
            if is_a(value, BuiltinFunctionType) and self.is_one(value.__self__):
                self.whole(value.__self__)
        elif id(value) in self.observer.outside:
            if defines(kind, "__next__") and module_of(kind) != "_io" and not is_user_class(kind):
                self.iterated(value)  # refuses
            self.instance(value)

    def escape_masks(self, key: object) -> None:
        """Arrays of bools by which a tensor is indexed: NumPy counts what they choose."""
        for part in key if is_a(key, tuple) else (key,):
            if is_a(part, list) or (is_a(part, np.ndarray) and part.dtype == np.bool_):
                self.escape(part)

    def instance(self, value: object, depth: int = 0) -> None:
        """Everything an instance of a user's class has, or of one that is a bag of attributes, or of NumPy's."""
        kind = type(value)
        is_known = is_user_class(kind) or kind.__name__ in BAGS or is_without_secrets(kind)
        if is_known and not is_module(value):
            table = attributes_of(value)
            slots = {}
            for name in _slots_of(kind):
                with suppress(AttributeError):  # it holds nothing, which is noted, too
                    slots[name] = self.observer.attribute(value, name)
            self._parts_of(slots, True, depth)
            if table is not None:
                observer, own = self.observer, self._own_keys(table)
                note_table(observer, value)
                keys = tuple(key for key in table if key not in own)
                observer.names.setdefault(id(table), observer.name_of(value))
                read: Callable[[], Any] = lambda: tuple(
                    [table.get(key, MISSING) for key in keys]
                )  # code of others may keep more there
                observer.note(table, WHOLE, f"attributes of {observer.name_of(value)}", read, read())
                observer.late(table, LENGTH, f"names in {observer.name_of(value)}", lambda: tuple(table))
                self._parts_of(table, True, depth)

    def of_library(self, value: object) -> None:
        """An instance of a library's class that is about to be called, or asked for an item."""
        if id(value) in self.observer.outside and is_without_secrets(type(value)):
            self.instance(value)

    def module(self, value: Any) -> None:
        """What a module and its parts keep besides parameters, buffers and hooks, which count their changes."""
        observer = self.observer
        for part in value.modules():
            table, name = vars(part), observer.name_of(part)
            for key in [key for key in table if not key.startswith("_") and not is_own_class(type(part))]:
                observer.note_key(table, key, f"{name}.{key}", table[key])
                self.escape(observer.enter(table[key], f"{name}.{key}"))

    def whole(self, value: Any, deep: bool = True, depth: int = 0) -> None:
        """All of a container from outside has been read; ``deep``: also what is in the containers in it."""
        observer = self.observer
        if id(value) in REPLACED_TABLES:
            return  # ``globals()`` has the table of builtins: what is looked up there is noted by name
        if is_a(value, ARRAYS):
            self.arrays.check(value)
        elif is_a(value, set) and id(value) in self._before:
            settle_digits(value)
        if depth > DEPTH_LIMIT:
            raise self._refusal(value, "is nested too deeply")
        is_known = id(value) in self._whole
        if is_known and not deep:
            return
        if not is_known:
            self._whole.add(id(value))
            self._note_factory(value)
            if not is_a(value, tuple | frozenset):
                keys = self._own_keys(value)
                self._check_size(value)
                known = self._before.get(id(value))
                expected = snapshot(value, keys) if known is None else without_keys(value, known[1], keys)
                self.keep(value)
                name = f"contents of {observer.name_of(value)}"
                observer.note(value, WHOLE, name, lambda: snapshot(value, keys), expected)
                if keys and is_a(value, dict):  # which are there, and in what order
                    self.note_keys(value)
            if is_a(value, np.ndarray) and type(value) is not np.ndarray:
                self.instance(value, depth)  # masks and the like
        if id(value) not in self.refilled:
            self._parts_of(value, deep, depth)

    def _parts_of(self, value: Collection[Any], deep: bool, depth: int) -> None:
        observer = self.observer
        for place, part in self._from_outside(value):
            observer.enter(part, f"{observer.name_of(value)}[{shown_key(place)}]")
            if deep and is_a(part, BASES) and id(part) not in self._whole and not is_own_class(type(part)):
                self.whole(part, deep, depth + 1)
            elif deep and not is_a(part, (*PRIMITIVES, Tensor)) and id(part) not in self._whole:
                self._whole.add(id(part))
                self.instance(part, depth + 1)

    def _from_outside(self, value: Collection[Any]) -> list[tuple[Any, Any]]:
        """The items of a container with their keys, without those that the step has put there."""
        keys, known = self._own_keys(value), self._before.get(id(value))
        parts = parts_of(value) if known is None else items_of(value, known[1])
        return [(place, part) for place, part in parts if not keys or place not in keys]


def _slots_of(kind: type) -> list[str]:
    """The slots that a class and its bases declare."""
    members = [item for base in kind.__mro__ for item in vars(base).items()]
    return [name for name, member in members if is_a(member, MemberDescriptorType) and not name.startswith("__")]


_PLAIN = frozenset((*PRIMITIVES, range, slice, type(Ellipsis), type))


def _length_of(kind: type) -> Callable[[Any], int]:
    """How many items a container has, whatever ``__len__`` a user's class gives it."""
    found: Any = next((base for base in kind.__mro__ if base in CONTAINERS), None)
    return len if found is None else found.__len__


def _at(items: list[Any], place: int) -> Any:
    return items[place] if -len(items) <= place < len(items) else MISSING
