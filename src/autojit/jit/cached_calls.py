"""Functions that remember their results (``functools.lru_cache``, ``functools.cache``), called in a capture.

C looks arguments up and keeps results, so a capture must give it nothing of its own: a stand-in that is kept is a
tensor of one step in another. Arguments are plain numbers and objects from outside, and what is not remembered yet is
computed as in eager mode, once for all calls. The result is guarded: it may be forgotten. Where a call needs what only
the step knows (a tensor of the step as a key, an object that every run makes again, a function that has to be computed
when the step has changed something already), it runs line by line; a later call that finds the result is compiled.
"""

from __future__ import annotations

import functools
import gc
import itertools
import operator
from collections.abc import Callable, Iterable, Sequence
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from autojit.core.source import here
from autojit.core.wrapping import own
from autojit.jit.draws import outside_of_capture
from autojit.jit.guards import PRIMITIVES, is_value
from autojit.jit.late_values import with_digits
from autojit.jit.observed_functions import own_code
from autojit.jit.places import is_a
from autojit.jit.pytree import Args, Kwargs, flatten
from autojit.runtime.entry_spec import MISSING
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor

if TYPE_CHECKING:
    from autojit.jit.observer import Observer

Cached = type(functools.lru_cache(abs))
Remembering: TypeAlias = "functools._lru_cache_wrapper[Any]"
_BY_IDENTITY: Any = object.__hash__
_CALLING: tuple[Any, ...] = (
    map, filter, sorted, min, max, functools.reduce, itertools.starmap, itertools.accumulate, itertools.takewhile,
    itertools.dropwhile, itertools.filterfalse, itertools.groupby, operator.call,
)  # fmt: skip
"""Functions in C that call one of their arguments."""
_PLAIN = (*PRIMITIVES, type, ModuleType, BuiltinFunctionType, np.dtype, np.generic, range, slice)


class CachedCalls:
    """The calls of functions that remember, in one capture."""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self._wrapped: dict[int, CodeType] = {}  # by id: the code of functions behind those that remember
        self._direct: set[int] = set()  # the ids of those that are about to be called past what remembers

    def meet(self, value: object) -> None:
        """A function that remembers exists outside."""
        wrapped = own(value, "__wrapped__", None)
        if type(value) is Cached and type(wrapped) is FunctionType:
            code = own_code(wrapped)
            self._wrapped[id(code)] = code

    def began(self, code: CodeType) -> None:
        """A function runs as a part of the step: not for one that remembers, which was called where nobody looks."""
        if id(code) in self._wrapped and id(code) not in self._direct:
            self._give_up(f"{code.co_name} remembers its results, and code that is not observed calls it")
        self._direct.discard(id(code))

    def replacement(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Callable[..., Any] | None:
        """What is called instead of a function that remembers, its methods, and what calls one in C; None: all else."""
        if (found := self._instead(function)) is not None:
            return found
        if (
            is_a(function, BuiltinFunctionType)
            and is_a(function.__self__, Cached)
            and self._is_outside(function.__self__)
        ):
            return functools.partial(self._about, function)
        plain = function.__func__ if is_a(function, MethodType) else function
        if is_a(plain, FunctionType) and id(own_code(plain)) in self._wrapped:
            self._direct.add(id(own_code(plain)))
        if any(function is known for known in _CALLING) and any(map(self._instead, arguments)):
            return functools.partial(self._handed_on, function)
        return None

    def property(self, obj: object, member: object) -> Callable[[], Any] | None:
        """What reads a property whose function remembers; None: it is not one."""
        found = member.fget if is_a(member, property) else None
        return functools.partial(self._call, found, obj) if type(found) is Cached and self._is_outside(found) else None

    def _instead(self, function: object) -> Callable[..., Any] | None:
        if is_a(function, Cached) and self._is_outside(function):
            return functools.partial(self._call, function)
        if is_a(function, MethodType) and is_a(function.__func__, Cached) and self._is_outside(function.__func__):
            return functools.partial(self._call, function.__func__, function.__self__)
        return None

    def _is_outside(self, function: object) -> bool:
        return id(function) in self.observer.outside

    def _handed_on(self, function: Callable[..., Any], *args: object, **kwargs: object) -> Any:
        args = tuple([self._instead(value) or value for value in args])
        return function(*args, **{name: self._instead(value) or value for name, value in kwargs.items()})

    def _about(self, function: BuiltinFunctionType, *args: object, **kwargs: object) -> Any:
        """``cache_info()``, ``cache_clear()``: how often it was asked, and what is remembered, is every call's own."""
        self._give_up(f"the step calls {function.__name__}() of a function that remembers its results")
        return function(*args, **kwargs)

    def _give_up(self, why: str) -> None:
        self.observer.refuse(f"{why} ({here()})")

    def _call(self, function: Remembering, *args: object, **kwargs: object) -> Any:
        observer = self.observer
        for value in (*args, *kwargs.values()):
            if type(value).__hash__ is not _BY_IDENTITY:  # else nothing in it is looked at
                observer.contents.escape(value)
        if state.trace is None or observer.is_at_once:
            return function(*args, **kwargs)
        args, kwargs = with_digits((args, kwargs))  # of which it is the key, also when the step is long over
        name = own(function, "__name__", "a function")
        for value in (*args, *kwargs.values()):
            observer.used_as_key(value)
        if not all(map(self._is_lasting, (*args, *kwargs.values()))):
            self._give_up(f"{name} remembers its results, and is given what is another object in every run")
        table, key = table_of(function), key_of(function, args, kwargs)
        if key not in table and observer.body is not None and state.trace.outer is not None:  # type: ignore[attr-defined]
            self._give_up(f"{name} has yet to compute what it remembers, in {observer.body.name} that may not run")
        if key not in table and self._has_changed_something():
            self._give_up(f"{name} has yet to compute what it remembers, when the step has changed something")
        is_new = key not in table
        found = outside_of_capture(function, args, kwargs)  # once for all calls, so no part of the step
        if is_new and not all(map(self._is_lasting, flatten(found)[0])) and any(map(_is_of_step, flatten(found)[0])):
            table.pop(key, None)
            self._give_up(f"{name} remembers its results, and gives what the step computes")
        name = f"what {name} has cached"
        # asked only while it is there: else it would compute what no call may ask for
        read = lambda: function(*args, **kwargs) if key in table else MISSING
        observer.note(function, (key, _kinds(args, kwargs)), name, read, found)
        return observer.enter(found, name)

    def _is_lasting(self, value: object) -> bool:
        """Whether an argument is the same for every run: plain, or an object from outside."""
        if is_a(value, tuple | frozenset):
            return all(map(self._is_lasting, value))
        if is_a(value, Tensor):
            trace: Any = state.trace
            return value._array is not None and not trace.has_begun(value)
        if is_a(value, FunctionType):
            return not self.observer.is_made_inside(value)
        if is_a(value, MethodType):
            return self._is_lasting(value.__func__) and self._is_lasting(value.__self__)
        return id(value) in self.observer.outside or type(value) in _PLAIN or is_a(value, _PLAIN) or is_value(value)

    def _has_changed_something(self) -> bool:
        """Whether what the step has done would be seen by a function that runs outside of it: tensors, attributes."""
        observer, trace = self.observer, state.trace
        assert trace is not None
        entries: Iterable[Any] = trace.state.values()  # type: ignore[attr-defined]
        places = observer.written or observer.rewritten or observer.rebound
        return bool(places or observer.deferred or observer.contents.changes()) or any(e.is_modified for e in entries)


def _is_of_step(value: object) -> bool:
    return with_digits(value) is not value or (is_a(value, Tensor) and value._array is None)


def _kinds(args: Args, kwargs: Kwargs) -> tuple[type, ...]:
    return tuple(map(type, (*args, *kwargs.values())))


def table_of(function: object) -> dict[Any, Any]:
    """Where a function that remembers looks its results up; it is the same for as long as the function lives."""
    attributes = own(function, "__dict__", None)
    return next(x for x in reversed(gc.get_referents(function)) if type(x) is dict and x is not attributes)


def key_of(function: Remembering, args: Args, kwargs: Kwargs) -> Any:
    """What stands for arguments in that table (``lru_cache_make_key`` in CPython's Modules/_functoolsmodule.c)."""
    is_typed = function.cache_parameters()["typed"]
    if not is_typed and not kwargs and len(args) == 1 and type(args[0]) in (int, str):
        return args[0]
    key = [*args]
    if kwargs:
        mark = next(x for x in reversed(gc.get_referents(function)) if type(x) is object)  # parts them from the others
        key += [mark, *itertools.chain.from_iterable(kwargs.items())]
    return (*key, *_kinds(args, kwargs)) if is_typed else tuple(key)
