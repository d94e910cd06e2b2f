"""Guards: what a capture has read outside, and whether it still holds.

What user code reads during a capture is recorded as it happens (``observer.py``); each read becomes one guard: a place
that can be read again, and what it held. Most places are words in memory that the native entry point compares at every
call (a key of a dictionary, a closure cell, the version of a class, the epoch that modules and optimisers count); the
others are read by Python before each call. When a native check fails, Python compares by meaning: an equal number in
another object is not a change.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from types import BuiltinMethodType, FunctionType, MethodType, MethodWrapperType
from typing import Any, NamedTuple

import numpy as np

from autojit.core.device import Device
from autojit.core.dtypes import DType
from autojit.core.records import record
from autojit.core.source import SourceLocation
from autojit.core.wrapping import own
from autojit.history.gradients import hook_keys
from autojit.jit.histories import freed_node, history_of
from autojit.jit.places import Location, attributes_of, module_of
from autojit.runtime.entry_spec import MISSING, CellGuard, DictGuard, WordGuard
from autojit.runtime.object_layout import TYPE_OFFSET, layout_is_known, words_at
from autojit.tensor.node import FREED, Node
from autojit.tensor.tensor import Tensor, type_of

PRIMITIVES = (bool, int, float, complex, str, bytes, type(None), DType, Device)


class WordsGuard(NamedTuple):
    """Words of memory that Python keeps of an object are as they are.

    ``find``: of a class its version (nothing in it or its bases has been assigned), of a function its code and
    defaults, of an object its class or its dictionary of attributes; None where this interpreter does not tell.
    """

    obj: object
    find: Callable[[Any], Any]

    def is_told(self) -> bool:
        """Whether this interpreter tells them."""
        words = self.find(self.obj)
        return words is not None and len(words) > 0

    def words(self) -> list[WordGuard]:
        """The words to compare, as they are now."""
        words = self.find(self.obj)
        return [] if words is None else [WordGuard(words[k : k + 1], int(words[k])) for k in range(len(words))]


def type_word(obj: object) -> Any:
    """Where an object has its class."""
    return words_at(id(obj) + TYPE_OFFSET, 1) if layout_is_known() else None


def table_word(obj: object) -> Any:
    """Where an object has its dictionary of attributes; None where it cannot be found."""
    kind = type(obj)
    offset = _MANAGED_OFFSET if kind.__flags__ & _IS_MANAGED else kind.__dictoffset__
    table = attributes_of(obj)
    if table is None or not layout_is_known() or (offset <= 0 and offset != _MANAGED_OFFSET):
        return None
    word = words_at(id(obj) + offset, 1)
    return word if int(word[0]) == id(table) else None


_IS_MANAGED = 1 << 4  # of a class's flags: the pointer to the table is before the object
_MANAGED_OFFSET = -24


@record(eq=False, frozen=False)
class Guard:
    """One read: ``read()`` still gives something equal to ``expected``.

    ``native``: checked by the entry point; ``by_epoch``: its changes are counted in the guard epoch. A guard that is
    neither is read before every call. ``held_by``: the dictionary, list, object or cell, and the key in it, for places
    that a step can take as an argument instead (``assigned_places.py``). ``meant``: see ``mean_objects``.
    """

    name: str
    read: Callable[[], Any]
    expected: Any
    native: CellGuard | DictGuard | WordsGuard | None = None
    by_epoch: bool = False
    source: SourceLocation | None = None
    held_by: tuple[Any, Any] | None = None
    length_of: Any = None  # the container whose length it is
    meant: Collection[int] = ()  # the ids of objects in ``expected`` for which no equal ones will do
    _held: tuple[tuple[Any, int], ...] = ()  # words, and what they were when it held at last
    _may_have_stand_in: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.native, CellGuard):
            self.held_by = self.native.cell, None
        elif isinstance(self.native, DictGuard):
            self.held_by = self.native.mapping, self.native.key
        self._may_have_stand_in = may_be_changed(self.expected)

    def holds(self) -> bool:
        held = self._held
        if held and all(int(word[0]) == value for word, value in held):
            return True  # what the words stand for has not been written since
        if self._may_have_stand_in or not isinstance(self.native, WordsGuard):
            return self.takes(self.read())  # of what it holds may change what no word tells
        words = self.native.words()  # before the value, which may change meanwhile
        is_as_before = self.takes(self.read())
        self._held = tuple((word.counter, word.expected) for word in words) if is_as_before else ()
        return is_as_before

    @property
    def has_words(self) -> bool:
        """Whether it is words in memory that stand for what Python reads."""
        return self.native is not None and not isinstance(self.native, CellGuard | DictGuard)

    @property
    def is_native(self) -> bool:
        """Whether the entry point can tell that it holds."""
        native = self.native
        return isinstance(native, CellGuard | DictGuard) or (native is not None and native.is_told())

    def takes(self, value: object) -> bool:
        """Whether what a place holds means what was expected there."""
        return _same_objects(value, self.expected, self.meant) if self.meant else same(value, self.expected)

    def is_stand_in(self, value: object) -> bool:
        """Whether a value that it takes is another object, which means the same only as long as nobody changes it.

        The capture has looked into the object that it found. So the two are compared before every call.
        """
        return value is not self.expected and may_be_changed(value)

    def describe(self) -> str:
        return f"{self.name}: {shown(self.expected)} -> {shown(self.read())}{self.place()}"

    def place(self) -> str:
        """Where the user's code reads it, as " at file.py:41"."""
        return "" if self.source is None else f" at {self.source}"


def broken_guard(guards: Sequence[Guard]) -> str | None:
    """What has changed since a capture, or None."""
    return next((guard.describe() for guard in guards if not guard.holds()), None)


def stand_ins(guards: Iterable[Guard]) -> list[Guard]:
    """Those that are not read before every call, and whose places hold stand-ins (see ``Guard.is_stand_in``)."""
    heard = (guard for guard in guards if guard.native is not None or (guard.by_epoch and guard.held_by is not None))
    return [guard for guard in heard if guard._may_have_stand_in and guard.is_stand_in(guard.read())]


def mean_objects(guards: Iterable[Guard], outputs: Iterable[Any], places: Iterable[Location]) -> None:
    """Let guards hold for objects themselves, and for no equal ones, that a step hands on, tells something, or changes.

    ``outputs``: what leaves the step, the calls among it that are made after every run, and what it asks for the
    identity of; ``places``: what it writes to.
    """
    meant = {id(place.holder) for place in places}
    meant |= {id(leaf) for leaf in handed_on(outputs) if isinstance(leaf, list | np.ndarray)}
    for guard in guards if meant else ():
        if may_be_changed(guard.expected):  # nor does one of these do for another, which it equals
            guard.meant = meant


def handed_on(outputs: Iterable[Any]) -> Iterator[Any]:
    """The objects that leave a step, also those that methods and partials are bound to."""
    waiting = list(outputs)
    while waiting:
        leaf = waiting.pop()
        if isinstance(leaf, BuiltinMethodType | MethodType | MethodWrapperType):
            waiting.append(leaf.__self__)
        elif isinstance(leaf, functools.partial):
            waiting += [leaf.func, *leaf.args, *leaf.keywords.values()]
        else:
            yield leaf


def _same_objects(a: Any, b: Any, meant: Collection[int]) -> bool:
    if a is b or id(a) in meant or id(b) in meant:
        return a is b
    if type(a) is type(b) and type(a) in (tuple, list):
        return len(a) == len(b) and all(_same_objects(x, y, meant) for x, y in zip(a, b, strict=True))
    return same(a, b)


def hook_guards(tensors: Iterable[Tensor]) -> list[Guard]:
    """Guards of the hooks of leaves whose gradients a capture has computed or may have computed."""
    found: dict[int, Guard] = {}
    for t in tensors:
        if t._requires_grad or t._leaf_hooks is not None:
            read = functools.partial(hook_keys, t)
            found[id(t)] = Guard(f"hooks of a tensor {type_of(t)}", read, read(), None, True)
    return list(found.values())


def history_guards(passed: Iterable[tuple[Tensor, Node]]) -> list[Guard]:
    """Guards of the histories outside that backward went through: the same again with its hooks, and none it freed."""
    found: list[Guard] = []
    for t, node in passed:
        read = functools.partial(getattr, t, "_grad_fn")
        found.append(Guard(f"history of a tensor {type_of(t)}", read, node if freed_node(t) is None else FREED))
        keys = functools.partial(_keys_of_hooks, list(history_of([t])))
        found.append(Guard(f"hooks of the history of a tensor {type_of(t)}", keys, keys(), None, True))
    return found


def _keys_of_hooks(nodes: Iterable[Node]) -> tuple[Any, ...]:
    return tuple(key for node in nodes for table in node.hook_tables() for key in table or ())


# ---- values


def shown(value: object) -> str:
    """A value in one short line; tensors by type, containers by their first items."""
    if value is MISSING:
        return "<absent>"
    if isinstance(value, Tensor):
        return str(type_of(value))
    if isinstance(value, list | tuple):
        items = [shown(v) for v in value[:4]] + (["..."] if len(value) > 4 else [])
        text = f"({', '.join(items)})"
    elif isinstance(value, PRIMITIVES):
        text = repr(value)
    else:
        text = f"<{own(value, '__name__', type(value).__name__)}>"
    return text if len(text) <= 80 else text[:77] + "..."


def same(a: Any, b: Any) -> bool:
    """Equal for a trace: identical, or plain data of one type with one value (nan equals nan, 0.0 is not -0.0)."""
    if a is b:
        return True
    kind = type(a)
    if kind is not type(b):
        return False
    if isinstance(a, float):
        return repr(a) == repr(b)
    if isinstance(a, PRIMITIVES) or is_value(a):
        return bool(a == b)
    if kind is tuple or kind is list:
        return len(a) == len(b) and all(map(same, a, b))
    if kind is range:
        return bool(a == b)
    if isinstance(a, MethodType):
        return _is_one(a.__self__, b.__self__) and a.__func__ is b.__func__
    if isinstance(a, BuiltinMethodType | MethodWrapperType):
        return _is_one(a.__self__, b.__self__) and a.__name__ == b.__name__
    if kind is frozenset:
        return bool(a == b) if all(isinstance(item, PRIMITIVES) for item in a) else set(map(id, a)) == set(map(id, b))
    if kind is slice:
        return same((a.start, a.stop, a.step), (b.start, b.stop, b.step))
    if isinstance(a, np.ndarray | np.generic):
        return bool(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())
    return False


def stays(now: object, before: object) -> bool:
    """Whether a place holds what it held; an equal list or array is another one, which somebody may change."""
    return now is before or (not may_be_changed(now) and same(now, before))


def may_be_changed(value: object) -> bool:
    """Whether it is, or has in it, a list or array: such are compared by what is in them."""
    if type(value) is tuple:  # of a class, a thousand functions: few kinds of things
        kinds = set(map(type, value))
        if any(issubclass(kind, _CHANGED) for kind in kinds - _UNCHANGED):
            return True
        return tuple in kinds and any(may_be_changed(part) for part in value if type(part) is tuple)
    return issubclass(type(value), _CHANGED)  # no union, which would be made at every call


_CHANGED = (list, np.ndarray)
_UNCHANGED = frozenset((*PRIMITIVES, tuple, FunctionType, property, staticmethod, classmethod))
"""Kinds that most tuples have in them, none of which is changed; a tuple is looked into."""


def is_value(obj: object) -> bool:
    """Whether an object of the standard library never changes and is equal to others that mean the same."""
    kind = type(obj)
    is_one = module_of(kind) in _OF_VALUES and kind.__hash__ is not None
    return is_one and kind.__name__ != "Context" and not hasattr(obj, "__next__")  # decimal's is changed in place


def _is_one(a: object, b: object) -> bool:
    return a is b or (type(a) is type(b) and is_value(a) and bool(a == b))


_OF_VALUES = frozenset(
    ("datetime", "decimal", "fractions", "uuid", "pathlib", "pathlib._local", "zoneinfo", "ipaddress")
)
