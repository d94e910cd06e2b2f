"""Callables of the standard library that look names up in what they are given: as the code they stand for.

``operator.attrgetter("a.b")`` reads attributes, ``operator.methodcaller("scale", 2)`` calls a method, a ``partial``
what it holds, a weak reference gives its object, in C, where nothing is observed. In a capture the observer does it, as
if it were written out.
"""

from __future__ import annotations

import functools
import operator
import weakref
from collections.abc import Callable
from types import MethodDescriptorType, WrapperDescriptorType
from typing import TYPE_CHECKING, Any

from autojit.jit.places import is_a

if TYPE_CHECKING:
    from autojit.jit.observed_calls import ObservedCalls


def written_out(observer: ObservedCalls, function: Any) -> Callable[..., Any] | None:
    """What is called instead of such a callable; None: it is not one of them."""
    kind = type(function)
    if kind is operator.attrgetter:
        return functools.partial(_attributes, observer, function.__reduce__()[1])
    if kind is operator.methodcaller:
        made, args = function.__reduce__()
        if made is operator.methodcaller:
            return functools.partial(_method, observer, args[0], args[1:], {})
        return functools.partial(_method, observer, made.args[0], args, made.keywords)
    if is_a(function, weakref.ref):
        return lambda: observer.enter(function())
    if kind is functools.partial:
        observer.note_parts(function)
        return functools.partial(observer.calling, function.func, *function.args, **function.keywords)
    return None


def by_container(obj: object, special: str) -> Any:
    """The method of dictionaries that a class has for attributes (``__getattr__ = dict.__getitem__``), or None."""
    found: Any = getattr(type(obj), special, None) if issubclass(type(obj), dict) else None
    is_python = type(found) not in (MethodDescriptorType, WrapperDescriptorType)
    return None if is_python or found.__objclass__ is object else found.__get__(obj)


def _attributes(observer: ObservedCalls, paths: tuple[str, ...], obj: object) -> Any:
    found = tuple([functools.reduce(observer.attribute, path.split("."), obj) for path in paths])
    return found if len(found) > 1 else found[0]


def _method(observer: ObservedCalls, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], obj: object) -> Any:
    return observer.calling(observer.attribute(obj, name), *args, **kwargs)
