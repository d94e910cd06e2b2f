"""Containers that count their changes in the guard epoch: what modules and optimisers keep their parts in."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from autojit.core.epoch import bump_guard_epoch


def counting(kind: type, *names: str) -> Callable[[type], type]:
    """A class decorator: methods that change a ``kind`` count as changes."""

    def decorate(cls: type) -> type:
        for name in names:
            if name not in vars(cls):
                setattr(cls, name, _counted(getattr(kind, name), name))
        return cls

    return decorate


def _counted(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        bump_guard_epoch()
        return method(self, *args, **kwargs)

    counted.__name__ = name
    counted.__doc__ = method.__doc__
    return counted


OF_DICT = ("__setitem__", "__delitem__", "clear", "pop", "popitem", "update", "setdefault", "__ior__")


@counting(dict, *OF_DICT)
class CountedDict(dict[str, Any]):
    """What a module is made of. Reading costs what it costs of a ``dict``; copies and pickles are plain ones."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


def counted(values: Iterable[Any] | dict[str, Any] = ()) -> CountedDict:
    """A counted dictionary of these values."""
    return values if isinstance(values, CountedDict) else CountedDict(values)
