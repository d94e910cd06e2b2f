"""Context variables (``contextvars``) in a capture: what one holds is guarded, and changes are deferred.

``v.set(1)`` as a statement of its own is made after every run. A token, a copy of the context, or a look at a variable
that the step has set is known only while the function runs.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any

from autojit.core.source import here
from autojit.jit.places import is_a

if TYPE_CHECKING:
    from autojit.jit.observed_calls import ObservedCalls
    from autojit.jit.places import Method


def is_of_context(observer: ObservedCalls, function: Method) -> bool:
    """Whether a builtin asks or changes context variables from outside."""
    owner = function.__self__
    return function is copy_context or (is_a(owner, ContextVar) and id(owner) in observer.outside)


def context_call(observer: ObservedCalls, function: Method, is_dropped: bool) -> Callable[..., Any] | None:
    """What is called instead of such a builtin; None: the function itself, now."""
    owner: Any = function.__self__
    if observer.is_at_once:
        return None
    if function.__name__ == "get" and not observer.foreign.has_changed(owner):
        name = f"{observer.name_of(owner)}.get()"
        observer.note(owner, "get", name, lambda: owner.get(None), owner.get(None))
        return lambda *default: observer.enter(owner.get(*default))
    if function.__name__ == "set" and is_dropped:
        observer.foreign.note_change(owner)
        return lambda value: observer.foreign.defer(function, value)
    name = function.__name__
    observer.refuse(f"{name}() of context variables at {here()} depends on what is set")
    return None
