"""Frozen dataclasses whose methods are written when the first instance is made.

``dataclass`` compiles six methods per class, 0.4 ms; most programs use few of the ops that ``import autojit`` declares.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, dataclass_transform, overload

T = TypeVar("T")

_lock = threading.RLock()
_unfinished: dict[type, bool] = {}


@overload
def record(cls: type[T]) -> type[T]: ...


@overload
def record(*, eq: bool = True) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(frozen_default=True)
def record(cls: type[T] | None = None, *, eq: bool = True) -> Any:
    """``dataclass(frozen=True, eq=eq)``, applied to the class and its bases when the first instance is made.

    Example:
        >>> @record
        ... class Shift:
        ...     steps: int
        >>> Shift(2)
        Shift(steps=2)
        >>> Shift(2) == Shift(2)
        True
    """

    def declare(cls: type[T]) -> type[T]:
        def first_init(self: Any, *values: Any, **named: Any) -> None:
            _finish(cls)
            type(self).__init__(self, *values, **named)

        _unfinished[cls] = eq
        cls.__init__ = first_init  # type: ignore[misc]
        return cls

    return declare if cls is None else declare(cls)


def _finish(cls: type) -> None:
    """Make dataclasses of the class and its bases, once; bases first, since fields are inherited."""
    with _lock:
        for base in reversed(cls.__mro__):
            if base in _unfinished:
                del base.__init__  # type: ignore[misc]
                dataclass(frozen=True, eq=_unfinished.pop(base))(base)
