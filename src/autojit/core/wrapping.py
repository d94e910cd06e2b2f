"""``functools.wraps`` for whatever users call: an object may answer every name, or raise anything at all."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_MISSING = object()


def wraps(function: Callable[..., Any]) -> Callable[[F], F]:
    """A decorator: what it is given looks like ``function``, as far as that has a name and a text of its own.

    Example:
        >>> class Answers:
        ...     def __getattr__(self, name):
        ...         raise KeyError(name)
        ...
        ...     def __call__(self):
        ...         return 1
        >>> @wraps(Answers())
        ... def called():
        ...     return 2
        >>> called.__name__
        'called'
    """
    decorator: Callable[[Any], Any] = functools.wraps(function, assigned=names_of(function))
    return decorator


def code_holder(function: Callable[..., Any]) -> Any:
    """What runs when something is called: itself, or the method of its class; ``inspect`` may ask that anything."""
    return type(function).__call__ if hasattr(type(function), "__getattr__") else function


def own(value: object, name: str, default: object) -> Any:
    """``getattr(value, name, default)``, except for what a class answers by ``__getattr__``."""
    if hasattr(type(value), "__getattr__"):
        return inspect.getattr_static(value, name, default)
    return getattr(value, name, default)


def names_of(function: Callable[..., Any]) -> list[str]:
    """Of the attributes that a wrapper takes over, those that are there without asking ``__getattr__``."""
    known: list[str] = [
        k for k in functools.WRAPPER_ASSIGNMENTS if inspect.getattr_static(function, k, _MISSING) is not _MISSING
    ]
    if hasattr(type(function), "__getattr__"):
        known = [k for k in known if k in ("__module__", "__doc__")]
    return known


def named(function: F, name: str, doc: str | None = None) -> F:
    """A function that another one makes, under a name of its own: also in messages, tracebacks and profiles."""
    function.__name__ = function.__qualname__ = name
    function.__code__ = function.__code__.replace(co_name=name, co_qualname=name)
    function.__doc__ = doc
    return function
