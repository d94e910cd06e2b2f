"""Frozen dataclasses whose methods are written when the first instance is made.

``dataclass`` compiles six methods per class, 0.4 ms; most programs use few of the ops that ``import autojit`` declares.
Records are equal when their fields are written alike (`structure`): open sizes among them are asked nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform, overload

from autojit.core.locks import new_lock
from autojit.core.structure import structure

T = TypeVar("T")

_lock = new_lock()
_unfinished: dict[type, bool] = {}  # with the wish for ``__eq__``


@overload
def record(cls: type[T]) -> type[T]: ...


@overload
def record(*, eq: bool = True) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(frozen_default=True)
def record(cls: type[Any] | None = None, *, eq: bool = True) -> Any:
    """``dataclass(frozen=True, eq=eq)``, put off until the first instance of the class is made.

    A base class must be finished (`finish`) before a plain ``dataclass`` inherits its fields; ``Op`` sees to that.

    Example:
        >>> @record
        ... class Shift:
        ...     steps: int
        >>> Shift(2) == Shift(steps=2)
        True
    """

    def declare(cls: type[Any]) -> type[Any]:
        def first_init(self: object, *values: object, **named: object) -> None:
            finish(cls)
            type(self).__init__(self, *values, **named)

        _unfinished[cls] = eq
        type.__setattr__(cls, "__init__", first_init)
        return cls

    return declare if cls is None else declare(cls)


def finish(cls: type) -> None:
    """Write the methods of a class and its bases, where they are records and this has not happened; thread-safe."""
    if not any(base in _unfinished for base in cls.__mro__):
        return
    with _lock:
        for base in reversed(cls.__mro__):  # bases first: fields are inherited
            if base in _unfinished:
                dataclass(frozen=True, eq=False)(base)  # keeps ``first_init``: other threads wait there
                if _unfinished[base]:
                    _compare_by_fields(base)
                type.__setattr__(base, "__init__", _initializer(base))
                del _unfinished[base]


def _compare_by_fields(cls: type[Any]) -> None:
    """Give a record ``__eq__`` and ``__hash__``, as ``dataclass`` does where the class has none of its own."""
    names = [f.name for f in fields(cls) if f.compare]
    values_of: Callable[[Any], Any] = attrgetter(*names) if names else lambda _: ()

    def __eq__(self: object, other: object) -> bool:
        if self.__class__ is not other.__class__:
            return NotImplemented
        return bool(structure(values_of(self)) == structure(values_of(other)))

    def __hash__(self: object) -> int:
        return hash(structure(values_of(self)))

    for method in (__eq__, __hash__):
        if method.__name__ not in vars(cls):
            type.__setattr__(cls, method.__name__, method)


def _initializer(cls: type[Any]) -> Callable[..., None]:
    """The ``__init__`` of a frozen dataclass with the fields of ``cls``."""
    members: dict[str, Any] = {"__annotations__": {f.name: f.type for f in fields(cls)}, "__module__": cls.__module__}
    for f in fields(cls):
        if f.default is not MISSING:
            members[f.name] = f.default
        elif f.default_factory is not MISSING:
            members[f.name] = field(default_factory=f.default_factory)
    twin: Any = dataclass(frozen=True, eq=False, repr=False)(type(cls.__name__, (), members))
    made: Callable[..., None] = twin.__init__
    return made
