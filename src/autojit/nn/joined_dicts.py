"""Dicts that are joined by ``|`` and ``|=``, as Python's are."""

from __future__ import annotations

from typing import Any, Self


class JoinedDicts:
    """What a class with ``copy`` and ``update`` needs for it."""

    def __or__(self, other: Any) -> Any:
        """The entries of both, those of ``other`` where keys are in both."""
        own: Any = self
        found = own.copy()
        found.update(other)
        return found

    def __ror__(self, other: Any) -> Any:
        found = other.copy()
        found.update(self)
        return found

    def __ior__(self, other: Any) -> Self:
        changed: Any = self
        changed.update(other)
        return self
