"""Names that the package has at its top level besides their module, as they are, imported when they are first used."""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T")

TOP_LEVEL: dict[str, str] = {}
"""Where they are, by name: those whose modules have been imported. ``functions/index.py`` lists all."""


def top_level(thing: T) -> T:
    """Note that a function or class is a name of the package, too.

    Example:
        >>> @top_level
        ... def greet() -> str:
        ...     return "hello"
        >>> TOP_LEVEL.pop("greet") == greet.__module__
        True
    """
    named: Any = thing
    TOP_LEVEL[named.__name__] = named.__module__
    return thing
