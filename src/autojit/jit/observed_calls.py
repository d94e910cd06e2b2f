"""Calls that users' code makes during a capture, as far as the function called cannot be observed itself.

Builtins that read for their caller (``getattr``, ``len``, ``dict.get``) are answered like the instruction they stand
for. What is added to a list outside, and what is printed, is *deferred*: it happens after every call of the step, with
the values of that call. Random numbers, clocks and items of iterators are *drawn*: Python fetches them before every
call, in the order of eager mode, and the step takes them as arguments. Files are refused. Other functions of libraries
are ``foreign_calls.py``'s; all else is handed what it is given with its contents guarded.
"""

from __future__ import annotations

import builtins
import math
import operator
import random
import sys
import time
from abc import ABCMeta, get_cache_token
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence, Sized
from functools import partial
from types import (
    BuiltinFunctionType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from autojit.core.source import here, is_own
from autojit.core.wrapping import own
from autojit.jit.asked_contexts import context_call, is_of_context, note_setting
from autojit.jit.asked_digits import asks_for_type, sort_by_digits, sorted_by_digits
from autojit.jit.attribute_tables import note_table
from autojit.jit.converted_numbers import of_number
from autojit.jit.draws import GENERATORS, is_unseeded, outside_of_capture
from autojit.jit.evaluated_code import evaluators
from autojit.jit.foreign_calls import takes_digits
from autojit.jit.guards import PRIMITIVES
from autojit.jit.instrumented_code import DROPPED, UNPACKED
from autojit.jit.late_values import Late, of_digits, power
from autojit.jit.named_lookups import written_out
from autojit.jit.numpy_arrays import holds_arrays
from autojit.jit.numpy_methods import ArrayMethod
from autojit.jit.observed_arrays import TO_NUMPY, ObservedArrays
from autojit.jit.observed_functions import is_module, is_own_class, is_user_class, is_user_code
from autojit.jit.observed_texts import ObservedTexts, can_wait
from autojit.jit.places import defines, is_a, module_of
from autojit.jit.traced_math import INSTEAD
from autojit.jit.traced_number import TracedNumber
from autojit.runtime.entry_spec import MISSING
from autojit.tensor.tensor import Tensor

if TYPE_CHECKING:
    from autojit.jit.guards import Guard
    from autojit.jit.places import Method


class Deferred(NamedTuple):
    """A call that is made after every run of the step."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class ObservedCalls(ObservedTexts):
    """The part of an observer that knows calls."""

    def __init__(self, rebound: frozenset[tuple[int, Any]]) -> None:
        super().__init__(rebound)
        self.deferred: list[Deferred] = []
        self.made_names: set[int] = set()  # ids of dictionaries of the step that code is evaluated in
        self.new_numbers: set[int] = set()  # ids of objects of the step that the function has asked for
        self.arrays = ObservedArrays(self)
        self.managers: dict[tuple[int, int], Any] = {}  # of ``with`` statements, by their frame's id and their place
        self._is_dropped = False  # the result of the call that is about to be made
        self._instead: dict[Any, Callable[..., Any]] = {
            getattr: self._getattr,
            hasattr: self._hasattr,
            setattr: self.set_attribute,
            delattr: self.delete_attribute,
            vars: self._vars,
            dir: self._dir,
            len: self._len,
            iter: self._iter,
            next: self._next,
            print: self._print,
            pow: power,
            **evaluators(self),
        }

    if TYPE_CHECKING:

        def item(self, container: object, key: object) -> Any: ...
        def attribute(self, obj: object, name: str, read: Callable[[Any, str], Any] = getattr) -> Any: ...
        def all_guards(self) -> list[Guard]: ...
        def used_as_key(self, value: object) -> None: ...
        def identified(self, left: object, right: object) -> None: ...

    def called(self, operands: tuple[Any, ...], kind: int) -> tuple[Any, ...]:
        """A call is about to be made: (callable, arguments) as it is to be made instead.

        ``kind``: of ``instrumented_code``, UNPACKED (the arguments are a sequence and a dictionary) and DROPPED.
        """
        function, *arguments = operands
        if function is None:  # the end of a ``with``, which lays its call out otherwise
            return operands
        if kind & UNPACKED:
            arguments = [self.contents.iterated(argument) for argument in arguments]
            arguments = [a.values() if is_a(a, dict) else a for a in arguments if is_a(a, dict | list | tuple)]
            arguments = [part for several in arguments for part in several]
        self._is_dropped = bool(kind & DROPPED)
        if self.used_is_changed:
            self.note_use(function, *arguments)
        if can_wait(kind):
            instead = self._made_late(function, arguments)
            if instead is not None:
                return (instead, *operands[1:])
        instead = self.replacement(function, arguments)
        if any(type(argument) is Late for argument in operands[1:]) and not self._is_deferring(instead):
            self.arrays.refuse("the text", *[a.args for a in operands[1:] if type(a) is Late])
            arguments = [a.now() if type(a) is Late else a for a in operands[1:]]
            return self.called((function, *arguments), kind)
        return operands if instead is None else (instead, *operands[1:])

    def calling(self, function: Callable[..., Any], *args: object, **kwargs: object) -> Any:
        """``function(*args, **kwargs)``, as if the user's code called it."""
        instead = self.replacement(function, [*args, *kwargs.values()])
        return (instead or function)(*args, **kwargs)

    def _is_deferring(self, instead: object) -> bool:
        taking = instead.func if type(instead) is partial else instead
        foreign = self.foreign
        known = (self.defer, self.contents.repeat, self._print, foreign.defer, foreign.defer_log, foreign.warnings.warn)
        return taking in known

    def replacement(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Callable[..., Any] | None:
        """What is called instead; None: the function itself, whose arguments have been looked after."""
        if self.arrays.are_there and (type(function) is ArrayMethod or any(map(holds_arrays, arguments))):
            found: Callable[..., Any] | None = self.arrays.instead(function, arguments)
            if found is not NotImplemented:
                return found
        return self._replacement(function, arguments) or asks_for_type(function, arguments)

    def _replacement(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Callable[..., Any] | None:
        """``replacement``, where none of NumPy's arrays takes part."""
        kind = type(function)
        if (instead := self.cached.replacement(function, arguments)) is not None:
            return instead
        if is_unseeded(function, arguments):
            self.refuse(f"the step makes a random number generator without a seed at {here()}")
        if function is builtins.len:  # another one while a capture has open sizes
            return self._len
        if is_a(function, BuiltinFunctionType):
            return self._builtin(function, arguments)
        if kind is FunctionType or kind is MethodType:
            return self._function(function, arguments)
        if is_a(function, type):
            if (instead := of_number(function, arguments)) is not None or function is super or function is type:
                return instead
            if is_user_class(function):
                self.enter(function)
            else:
                self._walk(function, arguments)
                self._escape(arguments)
                if takes_digits(function, arguments):
                    return partial(of_digits, function)
            return None
        if (instead := written_out(self, function)) is not None:
            return instead
        if is_a(function, MethodWrapperType):
            return self._wrapper(function, arguments)
        if is_a(function, _Unbound) and arguments:
            return self._unbound(function, arguments)
        if is_own_class(kind):
            self._escape(arguments)
        elif not is_user_class(kind):
            return self._of_cython(function) or self._of_library(function, arguments)
        return None

    def _of_cython(self, function: Callable[..., Any]) -> Callable[..., Any] | None:
        """What is called instead of a function that draws from a generator, or sets or gives NumPy's own."""
        if function is _BIT_GENERATOR:
            return lambda: self.enter(function())
        function = _OF_NUMPYS_GENERATOR.get(id(function), function)
        return self._hidden(function) if self._is_generator(own(function, "__self__", None)) else None

    def _of_library(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Callable[..., Any] | None:
        """A function that cannot be observed, with arguments whose contents it may read."""
        self.contents.of_library(function)
        self._escape(arguments)
        for argument in arguments:
            if is_module(argument) and id(argument) in self.outside:
                self.contents.module(argument)
        instead = self.foreign.replacement(function, arguments, self._is_dropped)
        return partial(of_digits, function) if instead is None and takes_digits(function, arguments) else instead

    def _wrapper(self, function: MethodWrapperType, arguments: Sequence[Any]) -> Callable[..., Any] | None:
        """A method that stands for an operator, bound to its object: ``iterator.__next__``."""
        owner: Any = function.__self__
        if function.__name__ == "__next__" and id(owner) in self.outside:
            return self._hidden(function)
        if function.__name__ == "__call__":
            return self._replacement(owner, arguments)
        if function.__objclass__ in (object, type) and function.__name__ in ("__setattr__", "__delattr__"):
            return lambda name, *value: self.changing_attribute(owner, name, lambda: function(name, *value))
        if function.__objclass__ is object and function.__name__ == "__getattribute__":
            return lambda name: self.attribute(owner, name, lambda _, name: function(name))
        if self.contents.is_one(owner):
            return self._method(function, arguments)
        if is_a(owner, list) and function.__name__ == "sort":
            return partial(sort_by_digits, owner)
        if id(owner) not in self.outside or is_own_class(type(owner)) or is_user_class(type(owner)):
            self._escape((owner, *arguments))
            return None
        return self._of_library(function, arguments)

    def _unbound(self, function: _Unbound, arguments: Sequence[Any]) -> Callable[..., Any] | None:
        """``list.append(items, 1)``: the method of the first argument."""
        owner, *rest = arguments
        if is_a(owner, TracedNumber):
            return partial(of_digits, function)
        if any(function is known for known in _SETTING_ATTRIBUTES):
            return lambda obj, name, *value: self.changing_attribute(obj, name, lambda: function(obj, name, *value))
        if is_a(owner, Tensor) or not is_a(owner, function.__objclass__):
            self._escape(arguments)
            return None
        instead = self._replacement(function.__get__(owner, type(owner)), rest)
        return None if instead is None else lambda _, *args, **kwargs: instead(*args, **kwargs)

    def _function(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Callable[..., Any] | None:
        plain = function.__func__ if type(function) is MethodType else function
        if type(function) is MethodType and self._is_generator(function.__self__):
            return self._hidden(function, arguments)
        if type(plain) is not FunctionType:
            self._escape(arguments)
            return None
        if self.is_made_inside(plain):
            return None
        if plain.__module__ == "os" and "nviron" not in f"{plain.__qualname__} {plain.__code__.co_names}":
            return self._of_library(function, arguments)
        if is_user_code(plain.__code__, plain.__globals__):
            self.observe(function)
            return None
        if not is_own(plain.__code__):
            owner = own(function, "__self__", None)
            if owner is not None and id(owner) in self.outside:
                self.contents.escape(owner)
            return self._of_library(function, arguments)
        if (taken := own(plain, "of_step", None)) is not None:  # it is given what is called when the step runs
            found: Callable[..., Any] = taken(self.outside)
            return found
        if plain is TO_NUMPY and is_a(t := own(function, "__self__", None), Tensor):
            return partial(self.arrays.taken, t, function)
        note_setting(self, plain)
        self.observe(function)
        self._escape(arguments)
        return None

    def _builtin(self, function: BuiltinFunctionType, arguments: Sequence[Any]) -> Callable[..., Any] | None:
        owner = function.__self__
        if owner is builtins or function is open:
            return self._of_builtins(function, arguments)
        if self._is_generator(owner):
            return self._hidden(function)
        if (function is np.asarray or function is np.array) and len(arguments) == 1 and type(arguments[0]) is Tensor:
            return partial(self.arrays.taken_by, function)
        if owner is math and any(is_a(argument, TracedNumber) for argument in arguments):
            return INSTEAD.get(function)  # of code that has fetched it before there was a number
        if is_a(owner, ModuleType) and owner is time and function.__name__ != "sleep":
            return self._hidden(function)
        if is_a(owner, type) and function.__name__ in ("now", "utcnow", "today") and module_of(owner) == "datetime":
            return self._hidden(function)
        if function is operator.is_ or function is operator.is_not:
            self.identified(*arguments)
        if function.__name__ in _SEARCHING and arguments:
            self.nests.searched(owner, arguments[0])
        if self.contents.is_one(owner):
            return self._method(function, arguments)
        if function is _count_elements and self.contents.is_one(arguments[0]):
            return self.contents.count
        if id(owner) in self.outside and function.__name__ in ("__next__", "send"):
            return self._hidden(function)
        if is_of_context(self, function):
            self._escape(arguments)
            return context_call(self, function, self._is_dropped)
        if function.__name__ in _KEEPING and self.foreign.is_container_of_step(owner):
            return None
        return self._of_library(function, arguments)

    def _is_generator(self, owner: object) -> bool:
        """Whether an object is a random number generator that goes on from call to call; not one made by the step."""
        return is_a(owner, GENERATORS) and (id(owner) in self.outside or owner in _GLOBAL_GENERATORS)

    def _of_builtins(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Callable[..., Any] | None:
        instead = self._instead.get(function)
        if instead is not None and (arguments or function is print):
            return instead
        if function is globals:
            self.enter(sys._getframe(5).f_globals, "globals()")
        elif function is open or function is input:
            self.refuse(f"{function.__name__}() at {here()} reads what is outside")
        elif function is id or function is hash:
            value = arguments[0]
            self.used_as_key(value)
            if id(value) not in self.outside and not is_a(value, PRIMITIVES):  # another one in every run
                self.new_numbers.add(function(value))
        elif function is isinstance or function is issubclass:
            self._ask_for_class(arguments)
        elif function not in _HARMLESS:
            self._walk(function, arguments)
            self._escape(arguments)
        return sorted_by_digits if function is sorted else None

    def _ask_for_class(self, arguments: Sequence[Any]) -> None:
        """``isinstance``: abstract classes have members by registration too."""
        asked = arguments[-1] if is_a(arguments[-1], tuple) else arguments[-1:]
        if any(is_a(cls, ABCMeta) and is_user_class(cls) for cls in asked):
            self.note(ABCMeta, "token", "classes registered", get_cache_token, get_cache_token())

    def _walk(self, function: object, arguments: Sequence[Any]) -> None:
        """Builtins walk what they are given: an iterator from outside is refused."""
        if function.__module__ == "builtins":
            for argument in arguments:
                if defines(type(argument), "__next__"):
                    self.contents.iterated(argument)

    def _method(self, function: Method, arguments: Sequence[Any]) -> Callable[..., Any] | None:
        """A method in C of a container from outside."""
        owner, name = function.__self__, function.__name__
        self._escape(arguments)
        if is_a(owner, dict) and name == "get" and function == dict.get.__get__(owner):
            return partial(self.contents.get, owner)
        if is_a(owner, dict) and name == "__getitem__":
            return partial(self.contents.held, owner)
        if is_a(owner, defaultdict) and name == "__missing__":
            return partial(self.contents.missing, owner)
        if is_a(owner, dict) and (instead := self.contents.by_items(owner, name)) is not None:
            return instead
        if name == "__len__":
            self.contents.length(owner)
        elif (instead := self.contents.repeating(function, self._is_dropped)) is not None:
            return instead
        elif name == "resize":
            self.refuse(f"the step resizes {self.name_of(owner)} at {here()}")
        elif name in _CHANGING:
            self.contents.rearranged(owner)
        else:
            self.contents.whole(owner, deep=name not in _SHALLOW)
        return None

    def _escape(self, arguments: Sequence[Any]) -> None:
        for argument in arguments:
            self.contents.escape(argument)

    # -- builtins

    def _getattr(self, obj: object, name: str, *default: object) -> Any:
        try:
            return self.attribute(obj, name)
        except AttributeError:
            if not default:
                raise
            return default[0]

    def _hasattr(self, obj: object, name: str) -> bool:
        return self._getattr(obj, name, MISSING) is not MISSING

    def _vars(self, obj: object) -> Any:
        if is_a(obj, Tensor):
            self.attributes.read(obj, "__dict__")
        self.foreign.refuse_if_changed(obj)
        table = vars(obj)
        if id(obj) in self.outside or is_a(obj, ModuleType):
            note_table(self, obj)
            self.enter(table, f"vars({self.name_of(obj)})")
        return table

    def _dir(self, obj: object) -> list[str]:
        if is_a(obj, Tensor):
            self.attributes.read(obj, "__dict__")
        found = dir(obj)
        if id(obj) in self.outside or is_a(obj, ModuleType | type):
            self.note(obj, "dir()", f"dir({self.name_of(obj)})", lambda: tuple(dir(obj)), tuple(found))
        return found

    def _len(self, container: Sized) -> Any:
        if is_a(container, Tensor) and type(container).__len__ is Tensor.__len__:
            return container.__len__()  # its digits are not asked for, where the step counts it
        drawn = self.contents.length(container, may_draw=True)
        return len(container) if drawn is None else drawn

    def _iter(self, *arguments: Any) -> Any:
        if len(arguments) == 1:
            self.contents.iterated(arguments[0])
        return iter(*arguments)

    def _next(self, iterator: Any, *default: Any) -> Any:
        if id(iterator) in self.outside and not is_user_class(type(iterator)):
            return self.draw(next, iterator, *default)
        return next(iterator, *default)

    # -- what happens at every call

    def defer(self, function: Callable[..., Any], *args: object, **kwargs: object) -> None:
        """Make a call after every run of the step, not now."""
        if self.is_at_once:
            outside_of_capture(function, args, kwargs)
            return
        self.refuse_in_body(f"calls {own(function, '__name__', 'a function')}")
        self.deferred.append(Deferred(function, args, kwargs))

    def _hidden(self, function: Callable[..., Any], given: Sequence[Any] = ()) -> Callable[..., Any]:
        name = own(function, "__name__", "")
        if name == "shuffle" and len(given) == 1 and type(given[0]) is list and id(given[0]) not in self.outside:
            return partial(self.shuffled, function)
        if name in _SETTING:
            self.give_up_draw(self._draw_of(function, (), {}), "changes what it is given or is of")
            return function
        return partial(self.draw, function)


_count_elements = Counter.update.__globals__["_count_elements"]  # in C
_Unbound = MethodDescriptorType | WrapperDescriptorType
_GLOBAL_GENERATORS = (random.random.__self__, np.random.rand.__self__)  # type: ignore[attr-defined]
_OF_NUMPYS_GENERATOR = {  # functions that are not among its methods, by id
    id(np.random.seed): np.random.rand.__self__.seed,  # type: ignore[attr-defined]
    id(np.random.ranf): np.random.random_sample,
    id(np.random.sample): np.random.random_sample,
}
_BIT_GENERATOR: Any = vars(np.random)["get_bit_generator"]
_SETTING_ATTRIBUTES = (object.__setattr__, object.__delattr__, type.__setattr__, type.__delattr__)
_SETTING = frozenset(("seed", "setstate", "set_state", "shuffle", "spawn"))
_KEEPING = frozenset(("append", "appendleft", "insert", "add", "setdefault", "__setitem__"))  # without a look at it
_SEARCHING = frozenset(("count", "index", "remove"))
_CHANGING = frozenset(
    (
        "pop", "popitem", "popleft", "clear", "update", "setdefault", "remove", "discard", "sort", "reverse", "insert",
        "rotate", "fill", "put", "itemset", "partition", "move_to_end", "__setitem__", "__delitem__",
        "__iadd__",
    )
)  # fmt: skip
_SHALLOW = frozenset(("items", "keys", "values", "copy", "__iter__", "__contains__"))
_HARMLESS = frozenset((callable, id, locals, abs, hash))
