"""A dictionary that counts its changes in the guard epoch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from autojit.core.epoch import bump_guard_epoch


class CountedDict(dict[str, Any]):
    """What a module is made of. Reading costs what it costs of a ``dict``; copies and pickles are plain ones."""

    __slots__ = ()

    def __setitem__(self, key: str, value: Any) -> None:
        bump_guard_epoch()
        super().__setitem__(key, value)

    def __delitem__(self, key: str) -> None:
        bump_guard_epoch()
        super().__delitem__(key)

    def __ior__(self, other: Any) -> CountedDict:  # type: ignore[override,misc]
        self.update(other)
        return self

    def clear(self) -> None:
        """See ``dict``."""
        bump_guard_epoch()
        super().clear()

    def pop(self, *args: Any) -> Any:
        """See ``dict``."""
        bump_guard_epoch()
        return super().pop(*args)

    def popitem(self) -> tuple[str, Any]:
        """See ``dict``."""
        bump_guard_epoch()
        return super().popitem()

    def setdefault(self, key: str, default: Any = None) -> Any:
        """See ``dict``."""
        bump_guard_epoch()
        return super().setdefault(key, default)

    def update(self, *args: Any, **kwargs: Any) -> None:
        """See ``dict``."""
        bump_guard_epoch()
        super().update(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


def counted(values: Iterable[Any] | dict[str, Any] = ()) -> CountedDict:
    """A counted dictionary of these values."""
    return values if isinstance(values, CountedDict) else CountedDict(values)
