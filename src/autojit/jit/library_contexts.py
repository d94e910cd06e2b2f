"""What the standard library computes by besides its operands: the decimal context of the thread."""

from __future__ import annotations

import decimal
from types import ModuleType
from typing import TYPE_CHECKING, Any

from autojit.jit.places import is_a

if TYPE_CHECKING:
    from autojit.jit.observed_objects import ObservedObjects

_OF_CONTEXT = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")


def note_contexts(observer: ObservedObjects, value: object) -> None:
    """Guard the context that an object from outside, or what a class or a module makes, is computed in."""
    if value is decimal or (not is_a(value, ModuleType) and _is_decimal(value if is_a(value, type) else type(value))):
        observer.note(decimal, "context", "decimal.getcontext()", _context, _context())


def _is_decimal(cls: type) -> bool:
    return any(base is decimal.Decimal for base in cls.__mro__)


def _context() -> tuple[Any, ...]:
    """What results depend on; its flags only tell what has happened."""
    now = decimal.getcontext()
    traps = tuple(sorted(signal.__name__ for signal, is_set in now.traps.items() if is_set))
    return (*(getattr(now, name) for name in _OF_CONTEXT), *traps)
