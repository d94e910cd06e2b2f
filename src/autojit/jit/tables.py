"""Dictionaries that exist outside a capture: their keys one by one, and what they make for keys that they have not."""

from __future__ import annotations

import operator
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from autojit.core.size_recorder import recording
from autojit.core.sizes import SymbolicSize
from autojit.jit.guards import PRIMITIVES
from autojit.jit.places import Location, is_a
from autojit.jit.pytree import flatten
from autojit.jit.traced_number import TracedNumber
from autojit.runtime.entry_spec import MISSING
from autojit.tensor.tensor import Tensor

if TYPE_CHECKING:
    from autojit.jit.observer import Observer

FACTORY = object()  # the key of "what makes values for keys that are not there"


class Tables:
    """The part of ``Contents`` that knows dictionaries."""

    observer: Observer

    if TYPE_CHECKING:

        def whole(self, value: object, deep: bool = True, depth: int = 0) -> None: ...
        def changing(self, container: object, key: object, change: Callable[[Any], None]) -> None: ...
        def asked_for(self, container: object, item: object) -> bool | None: ...

    def key_of(self, table: dict[Any, Any], key: object, where: str) -> Any:
        """What ``dict.__getitem__`` gives, whatever ``table[key]`` may run; ``where``: what messages call it."""
        observer = self.observer
        observer.used_as_key(key)
        key = digits(key)
        if not dict.__contains__(table, key):
            self._note_key(table, key, where, MISSING)
            return self._default(table, key, where)
        value = dict.__getitem__(table, key)
        if observer.is_of_step(table, key):
            return value
        self._note_key(table, key, where, value)
        return observer.enter(value, where)

    def _default(self, table: dict[Any, Any], key: object, where: str) -> Any:
        """What a dictionary without a key gives for it; it may keep that."""
        if is_a(table, defaultdict) and type(table).__missing__ is defaultdict.__missing__:
            return self.missing(table, key)
        value = dict.__getitem__(table, key)
        if dict.__contains__(table, key):
            self.observer.note_write(Location(where, table, key), MISSING)
        return value

    def missing(self, table: defaultdict[Any, Any], key: object) -> Any:
        """``defaultdict.__missing__``."""
        self._note_factory(table)
        if table.default_factory is None:
            raise KeyError(key)
        value = self.observer.calling(table.default_factory)
        self._set(table, key, value)
        return value

    def _note_factory(self, table: object) -> None:
        if is_a(table, defaultdict):
            name = f"{self.observer.name_of(table)}.default_factory"
            self.observer.note(table, FACTORY, name, lambda: table.default_factory, table.default_factory)
            self.observer.observe(table.default_factory)

    def _note_key(self, table: dict[Any, Any], key: object, where: str, value: object) -> None:
        if is_a(key, NAMING):
            self.observer.note_key(table, key, where, value)
        else:
            self.whole(table, deep=False)

    def get(self, table: dict[Any, Any], key: object, default: object = None) -> Any:
        """``table.get(key, default)``."""
        if self.asked_for(table, key) is None:  # all of it has been read
            return dict.get(table, key, default)
        return self.held(table, key) if dict.__contains__(table, key) else default

    def held(self, table: dict[Any, Any], key: object) -> Any:
        """``dict.__getitem__(table, key)``."""
        return self.key_of(table, key, f"{self.observer.name_of(table)}[{shown_key(key)}]")

    def by_items(self, table: dict[Any, Any], name: str) -> Callable[..., Any] | None:
        """A method in C of a dictionary that changes it, item by item; None: it has no other form."""
        changes: dict[str, Callable[..., Any]] = {
            "__setitem__": self._set,
            "__delitem__": self._delete,
            "update": self._update,
            "setdefault": self._setdefault,
            "pop": self._pop,
        }
        plain = (dict, OrderedDict)
        if name not in changes or type(table).__setitem__ not in [kind.__setitem__ for kind in plain]:
            return None  # a user's way to store
        return partial(changes[name], table)

    def _set(self, table: dict[Any, Any], key: object, value: object) -> None:
        self.changing(table, key, lambda k: table.__setitem__(k, value))

    def _delete(self, table: dict[Any, Any], key: object) -> None:
        kind = OrderedDict if is_a(table, OrderedDict) else dict
        self.changing(table, key, lambda k: kind.__delitem__(table, k))

    def _update(self, table: dict[Any, Any], *args: object, **kwargs: object) -> None:
        for key, value in dict(*args, **kwargs).items():
            self._set(table, key, value)

    def _setdefault(self, table: dict[Any, Any], key: object, default: object = None) -> Any:
        self.asked_for(table, key)
        if dict.__contains__(table, key):
            return self.held(table, key)
        self._set(table, key, default)
        return default

    def _pop(self, table: dict[Any, Any], key: object, *default: object) -> Any:
        self.asked_for(table, key)
        if default and not dict.__contains__(table, key):
            return default[0]
        value = self.held(table, key)
        self._delete(table, key)
        return value

    def count(self, table: dict[Any, Any], items: Iterable[object]) -> None:
        """``Counter.update``."""
        for item in items:
            self._set(table, item, self.get(table, item, 0) + 1)


def digits(key: object) -> Any:
    """A key as the dictionary holds it: of an open size, or of a number of the step, its digits."""
    if type(key) is tuple:
        return tuple(map(digits, key))
    return operator.index(key) if is_a(key, SymbolicSize) else key.concrete() if is_a(key, TracedNumber) else key


def shown_key(key: object) -> str:
    """A key in a message."""
    return repr(key) if is_a(key, PRIMITIVES) else type(key).__name__


def settle_digits(items: set[Any]) -> None:
    """A set that is asked what it has: sizes that the step has added are in it by their digits, as in eager mode."""
    for item in [item for item in items if has_size(item)]:
        by_expressions(set.discard, items, item)
        set.add(items, digits(item))


def by_expressions(method: Callable[..., Any], *args: object) -> Any:
    """A set's method of sizes as they are: nothing is asked about the call at hand."""
    if not any(map(has_size, flatten(args)[0])):
        return method(*args)
    with recording(None):
        return method(*args)


def has_size(key: object) -> bool:
    """Whether a key is an open size, or has one in it."""
    return any(map(has_size, key)) if type(key) is tuple else is_a(key, SymbolicSize)


NAMING = (*PRIMITIVES, Tensor, tuple, type)  # keys by which a place in a dictionary is known
