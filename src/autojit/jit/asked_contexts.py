"""What a step is computed in besides what it is given: context variables, the decimal context, autojit's own settings.

What they hold is guarded where somebody asks. ``v.set(1)`` of a context variable as a statement of its own is made
after every run; a token, a copy of the context, or a look at a variable that the step has set is known only while the
function runs. Steps that set autojit's settings run line by line.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from types import ModuleType
from typing import TYPE_CHECKING, Any

from autojit.core.source import here
from autojit.jit.places import is_a
from autojit.runtime.pool import get_num_threads, set_num_threads

if TYPE_CHECKING:
    from autojit.jit.observed_calls import ObservedCalls
    from autojit.jit.observed_objects import ObservedObjects
    from autojit.jit.places import Method

_OF_CONTEXT = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")


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


def note_contexts(observer: ObservedObjects, value: object) -> None:
    """Guard the decimal context that an object from outside, or what a class or module makes, is computed in."""
    cls = value if is_a(value, type) else type(value)
    is_made = not is_a(value, ModuleType) and any(base is decimal.Decimal for base in cls.__mro__)
    if value is decimal or is_made:
        observer.note(decimal, "context", "decimal.getcontext()", _context, _context())


def _context() -> tuple[Any, ...]:
    """What results depend on; its flags only tell what has happened."""
    now = decimal.getcontext()
    traps = tuple(sorted(signal.__name__ for signal, is_set in now.traps.items() if is_set))
    return (*(getattr(now, name) for name in _OF_CONTEXT), *traps)


def note_setting(observer: ObservedCalls, function: object) -> None:
    """A function of autojit's is about to be called, perhaps for a setting that no step is made for one value of."""
    if function is get_num_threads:
        observer.note(function, "asked", f"{function.__name__}()", function, function())
    elif function is set_num_threads:
        observer.refuse(f"the step calls {function.__name__}() at {here()}")
