"""Calls that users' code makes during a capture, as far as the function called cannot be observed itself.

Builtins that read for their caller (``getattr``, ``len``, ``dict.get``) are answered like the instruction they stand
for. What is added to a list outside, and what is printed, is *deferred*: it happens after every call of the step, with
the values of that call. Random numbers, clocks and items of iterators are *drawn*: Python fetches them before every
call, in the order of eager mode, and the step takes them as arguments. Files are refused. All else is handed what it
is given with its contents guarded.
"""

from __future__ import annotations

import builtins
import random
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import lru_cache, partial
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from autojit.core.errors import TraceError
from autojit.core.source import SourceLocation, here, is_own
from autojit.jit.guards import same
from autojit.jit.observed_functions import is_own_class, is_user_class, is_user_code
from autojit.jit.places import is_a
from autojit.tensor.tensor import Tensor

if TYPE_CHECKING:
    from autojit.jit.contents import Contents


class Deferred(NamedTuple):
    """A call that is made after every run of the step."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Draw(NamedTuple):
    """A hidden input: what a call that is made before every run of the step gives."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    source: SourceLocation

    def make(self) -> Any:
        """Fetch one."""
        return self.function(*self.args, **self.kwargs)

    def is_as(self, other: Draw) -> bool:
        """Whether the same is fetched."""
        return same(self.function, other.function) and same(
            (self.args, *self.kwargs.items()), (other.args, *other.kwargs.items())
        )


class ObservedCalls:
    """The part of an observer that knows calls."""

    contents: Contents
    outside: dict[int, Any]
    unguarded: list[str]

    def __init__(self) -> None:
        self.deferred: list[Deferred] = []
        self.given: Sequence[tuple[Draw, Any]] = ()  # draws that are arguments of the step already, and their values
        self.drawn: list[tuple[Draw, Any]] = []  # and those that were met in this capture
        self._position = 0
        self._instead: dict[Any, Callable[..., Any]] = {
            getattr: self._getattr,
            hasattr: self._hasattr,
            setattr: self.set_attribute,
            delattr: self.delete_attribute,
            vars: self._vars,
            len: self._len,
            iter: self._iter,
            next: self._next,
            print: partial(self.defer, print),
        }

    if TYPE_CHECKING:

        def attribute(self, obj: Any, name: str) -> Any: ...
        def set_attribute(self, obj: Any, name: str, value: Any) -> None: ...
        def delete_attribute(self, obj: Any, name: str) -> None: ...
        def enter(self, value: Any, name: str = "") -> Any: ...
        def late(self, holder: Any, key: Any, name: str, read: Callable[[], Any]) -> None: ...
        def is_made_inside(self, function: FunctionType) -> bool: ...
        def observe(self, value: Any) -> None: ...
        def note(self, holder: Any, key: Any, name: str, read: Callable[[], Any], value: Any) -> None: ...
        def name_of(self, value: Any) -> str: ...

    def called(self, operands: tuple[Any, ...], kind: int) -> tuple[Any, ...]:
        """A call is about to be made: (callable, arguments) as it is to be made instead.

        ``kind`` 1: the arguments are (sequence, dictionary) to be unpacked.
        """
        function, *arguments = operands
        if kind == 1:
            arguments = [self.contents.iterated(argument) for argument in arguments]
            arguments = [part for a in arguments for part in (a.values() if is_a(a, dict) else _items(a))]
        instead = self._replacement(function, arguments)
        return operands if instead is None else (instead, *operands[1:])

    def _replacement(self, function: Any, arguments: Sequence[Any]) -> Callable[..., Any] | None:
        """What is called instead; None: the function itself, whose arguments have been looked after."""
        kind = type(function)
        if function is np.random.default_rng and not arguments:
            raise TraceError(
                "jit: a random number generator without a seed in a captured step",
                {"at": here()},
                "make it outside the step: what the step draws from it is drawn anew at every call",
            )
        if function is builtins.len:  # another one while a capture has open sizes
            return self._len
        if kind is BuiltinFunctionType:
            return self._builtin(function, arguments)
        if kind is FunctionType or kind is MethodType:
            return self._function(function, arguments)
        if kind is type or is_a(function, type):
            if function is super or function is type:
                return None
            if is_user_class(function):
                self.enter(function)
            else:
                self._escape(arguments)
            return None
        if kind is _Cached and id(function) in self.outside:
            self.late(
                function, "cached", f"what {function.__name__} has cached", lambda: function.cache_info().currsize
            )
        if is_a(function, weakref.ref):
            return lambda: self.enter(function())
        if is_own_class(kind) or not is_user_class(kind):
            if self._is_generator(getattr(function, "__self__", None)):  # compiled by Cython
                return self._hidden(function)
            self._escape(arguments)
        return None

    def _function(self, function: Any, arguments: Sequence[Any]) -> Callable[..., Any] | None:
        plain = function.__func__ if type(function) is MethodType else function
        if type(function) is MethodType and self._is_generator(function.__self__):
            return self._hidden(function)
        if type(plain) is not FunctionType:
            self._escape(arguments)
            return None
        if self.is_made_inside(plain):
            return None
        if is_user_code(plain.__code__, plain.__globals__):
            self.observe(function)
            return None
        if not is_own(plain.__code__):
            owner = getattr(function, "__self__", None)
            if owner is not None and id(owner) in self.outside:
                self.contents.escape(owner)
            if plain.__module__ == "logging":
                return partial(self.defer, function)
        self.observe(function)
        self._escape(arguments)
        return None

    def _builtin(self, function: Any, arguments: Sequence[Any]) -> Callable[..., Any] | None:
        owner = function.__self__
        if owner is builtins or function is open:
            return self._of_builtins(function, arguments)
        if self._is_generator(owner):
            return self._hidden(function)
        if is_a(owner, ModuleType):
            if owner is time and function.__name__ != "sleep":
                return self._hidden(function)
        elif is_a(owner, type):
            if function.__name__ in ("now", "utcnow", "today") and owner.__module__ == "datetime":
                return self._hidden(function)
        elif self.contents.is_one(owner):
            return self._method(function, owner, arguments)
        elif id(owner) in self.outside:
            if function.__name__ == "__next__":
                return self._hidden(function)
            return self._method_of_object(function, owner)
        self._escape(arguments)
        return None

    def _is_generator(self, owner: Any) -> bool:
        """Whether an object is a random number generator that goes on from call to call; not one made by the step."""
        return is_a(owner, _GENERATORS) and (id(owner) in self.outside or owner in _GLOBAL_GENERATORS)

    def _of_builtins(self, function: Any, arguments: Sequence[Any]) -> Callable[..., Any] | None:
        instead = self._instead.get(function)
        if instead is not None and (arguments or function is print):
            return instead
        if function is globals:
            self.enter(sys._getframe(5).f_globals, "globals()")
        elif function is open or function is input:
            raise TraceError(
                f"jit: {function.__name__}() in a captured step, which would be read once and never again",
                {"at": here()},
                "read it outside the step and pass what was read as an argument",
            )
        elif function not in _HARMLESS:
            self._escape(arguments)
        return None

    def _method(self, function: Any, owner: Any, arguments: Sequence[Any]) -> Callable[..., Any] | None:
        """A method in C of a container from outside."""
        name = function.__name__
        self._escape(arguments)
        if is_a(owner, dict) and name == "get" and type(owner).get is dict.get:
            return partial(self.contents.get, owner)
        if is_a(owner, dict) and name == "__getitem__":
            return partial(self.contents.item, owner)
        if name == "__len__":
            self.contents.length(owner)
        elif name in _ADDING and is_a(owner, list | deque | set):
            self.contents.keep(owner)
            return partial(self._add, function)
        elif name in _CHANGING:
            if name != "clear":
                self.contents.whole(owner)
            self.contents.keep(owner)
            self.contents.refilled.add(id(owner))
        else:
            self.contents.whole(owner, deep=name not in _SHALLOW)
        return None

    def _escape(self, arguments: Sequence[Any]) -> None:
        for argument in arguments:
            self.contents.escape(argument)

    def _method_of_object(self, function: Any, owner: Any) -> Callable[..., Any] | None:
        """A method in C of something outside that is no container: what it reads cannot be seen."""
        if is_a(owner, ContextVar) and function.__name__ == "get":
            name = f"{self.name_of(owner)}.get()"
            self.note(owner, "get", name, lambda: owner.get(None), owner.get(None))
            return lambda *default: self.enter(owner.get(*default))
        if not is_a(owner, Tensor | partial):
            self.unguarded.append(f"what {type(owner).__name__}.{function.__name__}() gives, at {here()}")
        return None

    # -- builtins

    def _getattr(self, obj: Any, name: str, *default: Any) -> Any:
        if not default:
            return self.attribute(obj, name)
        try:
            return self.attribute(obj, name)
        except AttributeError:
            return default[0]

    def _hasattr(self, obj: Any, name: str) -> bool:
        try:
            self.attribute(obj, name)
        except AttributeError:
            return False
        return True

    def _vars(self, obj: Any) -> Any:
        table = vars(obj)
        if id(obj) in self.outside or is_a(obj, ModuleType):
            self.enter(table, f"vars({self.name_of(obj)})")
        return table

    def _len(self, container: Any) -> int:
        self.contents.length(container)
        return len(container)

    def _iter(self, *arguments: Any) -> Any:
        if len(arguments) == 1:
            self.contents.iterated(arguments[0])
        return iter(*arguments)

    def _next(self, iterator: Any, *default: Any) -> Any:
        if id(iterator) in self.outside and not is_own_class(type(iterator)):
            return self.draw(next, iterator, *default)
        return next(iterator, *default)

    # -- what happens at every call

    def defer(self, function: Any, *args: Any, **kwargs: Any) -> None:
        """Make a call after every run of the step, not now."""
        self.deferred.append(Deferred(function, args, kwargs))

    def _add(self, function: Any, *args: Any) -> Any:
        """Add to a container now, for the rest of the capture, and after every run of the step."""
        self.defer(function, *args)
        return function(*args)

    def _hidden(self, function: Any) -> Callable[..., Any]:
        if getattr(function, "__name__", "") in _SETTING:
            raise TraceError(
                f"jit: {function.__name__} of a random number generator in a captured step",
                {"generator": type(function.__self__).__name__, "at": here()},
                "do it outside the step; single numbers and arrays that a step draws are drawn anew at every call",
            )
        return partial(self.draw, function)

    def draw(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Fetch a hidden input: the step's argument for it, or a value that makes it one."""
        draw = Draw(function, args, kwargs, here())
        place, self._position = self._position, self._position + 1
        if any(is_a(value, Tensor) and value._array is None for value in (*args, *kwargs.values())):
            raise TraceError(
                "jit: random numbers that depend on what the step computes",
                {"drawn by": _name(function), "at": draw.source},
                "draw them with autojit's own functions (aj.rand, aj.normal, aj.randint, ...)",
            )
        if place < len(self.given):
            known, value = self.given[place]
            if not known.is_as(draw):
                raise TraceError(
                    "jit: a step draws other random numbers, or in another order, than it did before",
                    {
                        "before": f"{_name(known.function)} at {known.source}",
                        "now": f"{_name(function)} at {draw.source}",
                    },
                    "draw outside the step and pass the numbers as arguments",
                )
            return value
        value = draw.make()
        self.drawn.append((draw, value))
        return value


def _name(function: Any) -> str:
    owner = getattr(function, "__self__", None)
    name = getattr(function, "__name__", str(function))
    return name if owner is None or is_a(owner, ModuleType) else f"{type(owner).__name__}.{name}"


def _items(value: Any) -> Sequence[Any]:
    return value if is_a(value, list | tuple) else ()


_Cached = type(lru_cache(abs))
_GENERATORS = (random.Random, np.random.Generator, np.random.RandomState, np.random.BitGenerator)
_GLOBAL_GENERATORS = (random.random.__self__, np.random.rand.__self__)  # type: ignore[attr-defined]
_SETTING = frozenset(("seed", "setstate", "set_state", "shuffle", "spawn"))
_ADDING = frozenset(("append", "extend", "appendleft", "extendleft", "add"))
_CHANGING = frozenset(
    (
        "pop", "popitem", "popleft", "clear", "update", "setdefault", "remove", "discard", "sort", "reverse", "insert",
        "rotate", "fill", "resize", "put", "itemset", "partition", "move_to_end", "__setitem__", "__delitem__",
        "__iadd__",
    )
)  # fmt: skip
_SHALLOW = frozenset(("items", "keys", "values", "copy", "__iter__", "__contains__"))
_HARMLESS = frozenset((isinstance, issubclass, callable, id, locals, abs, hash))
