"""Containers that count their changes in the guard epoch: what modules and optimisers keep their parts in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self, TypeVar

from autojit.core.epoch import bump_guard_epoch, is_met, meet

K = TypeVar("K")
T = TypeVar("T")


def _note(table: object) -> None:
    if is_met(table):
        bump_guard_epoch()


def counting(*names: str, note: Callable[[Any], None] = _note) -> Callable[[type[T]], type[T]]:
    """A class decorator: these methods count as changes, of which ``note`` is told before."""

    def decorate(cls: type[T]) -> type[T]:
        for name in names:
            setattr(cls, name, _counted(getattr(cls, name), name, note))
        return cls

    return decorate


def _counted(method: Callable[..., Any], name: str, note: Callable[[Any], None]) -> Callable[..., Any]:
    def counted_before(self: object, *args: object, **kwargs: object) -> Any:
        note(self)
        return method(self, *args, **kwargs)

    def counted_when_met(self: object, *args: object, **kwargs: object) -> Any:
        found = method(self, *args, **kwargs)
        _note(self)  # afterwards: a thread that meets the table meanwhile may have read what it was
        return found

    counted = counted_when_met if note is _note else counted_before

    counted.__name__ = name
    counted.__doc__ = method.__doc__
    return counted


class ItemByItem(dict[K, Any]):
    """A dictionary whose values all come in by ``__setitem__``."""

    __slots__ = ()

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Set several values."""
        for key, value in dict(*args, **kwargs).items():
            self[key] = value

    def __ior__(self, other: Mapping[K, Any]) -> Self:  # type: ignore[override,misc]
        self.update(other)
        return self

    def setdefault(self, key: K, default: object = None) -> Any:
        """The value of ``key``, which becomes ``default`` when absent."""
        if key not in self:
            self[key] = default
        return self[key]


@counting("__setitem__", "__delitem__", "clear", "pop", "popitem", "update", "setdefault", "__ior__")
class CountedDict(dict[str, Any]):
    """What a module is made of. Reading costs what it costs of a ``dict``; copies and pickles are plain ones."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


def in_place_of(before: object, made: CountedDict) -> CountedDict:
    """A table that takes the place of another one: its changes count if those of the other did."""
    if is_met(before):
        meet(made)
        bump_guard_epoch()
    return made


def counted(values: Iterable[Any] | dict[str, Any] = ()) -> CountedDict:
    """A counted dictionary of these values."""
    return values if isinstance(values, CountedDict) else CountedDict(values)
