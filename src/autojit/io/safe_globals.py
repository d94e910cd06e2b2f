"""The allow-list of ``load``: which classes and functions of a user a file may name. Nothing else is ever called.

Names of torch's that stand for tensors, dtypes and containers are known to ``torch_names`` and need no permission.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autojit.core.errors import ArgumentError
from autojit.core.locks import new_lock

Allowed = Callable[..., Any] | tuple[Callable[..., Any], str]
_NEVER = frozenset(
    {"sys", "os", "posix", "nt", "subprocess", "shutil", "ctypes", "importlib", "runpy", "pickle", "code"}
)
_lock = new_lock()
_allowed: dict[str, Callable[..., Any]] = {}


def full_name(entry: Allowed) -> tuple[str, Callable[..., Any]]:
    """The name under which a file may name an entry, and what it stands for."""
    if isinstance(entry, tuple):
        found, name = entry
        return name, found
    return f"{entry.__module__}.{entry.__qualname__}", entry


def is_forbidden(name: str) -> bool:
    """Whether a name belongs to a module that nobody may allow."""
    return name.partition(".")[0] in _NEVER


def add_safe_globals(safe_globals: Sequence[Allowed]) -> None:
    """Let files name these classes and functions: ``load`` will call them with what the file gives them.

    Args:
        safe_globals: classes or functions; ``(class, "full.name")`` where a file has another name for it.

    Raises:
        ValueError: an entry belongs to a module that runs programs or reaches the system.

    Example:
        >>> import argparse
        >>> import autojit as aj
        >>> aj.serialization.add_safe_globals([argparse.Namespace])
        >>> aj.serialization.get_safe_globals()
        [<class 'argparse.Namespace'>]
        >>> aj.serialization.clear_safe_globals()
    """
    named = dict(full_name(entry) for entry in safe_globals)
    for name, found in named.items():
        for module in (name, getattr(found, "__module__", "") or ""):
            if is_forbidden(module):
                raise ArgumentError(f"add_safe_globals: {name} can do anything to this computer; it stays forbidden")
    with _lock:
        _allowed.update(named)


def get_safe_globals() -> list[Callable[..., Any]]:
    """What ``add_safe_globals`` was given."""
    with _lock:
        return list(_allowed.values())


def clear_safe_globals() -> None:
    """Take all permissions back."""
    with _lock:
        _allowed.clear()


def allowed(name: str) -> Callable[..., Any] | None:
    """What a name of a file may stand for, if a user has allowed it."""
    return _allowed.get(name)


class safe_globals:
    """``add_safe_globals`` for the length of a ``with`` block.

    Example:
        >>> import argparse
        >>> import autojit as aj
        >>> with aj.serialization.safe_globals([argparse.Namespace]):
        ...     len(aj.serialization.get_safe_globals())
        1
        >>> aj.serialization.get_safe_globals()
        []
    """

    def __init__(self, safe_globals: Sequence[Allowed]) -> None:
        self.entries = safe_globals
        self.before: dict[str, Callable[..., Any]] = {}

    def __enter__(self) -> None:
        with _lock:
            self.before = dict(_allowed)
        add_safe_globals(self.entries)

    def __exit__(self, *error: object) -> None:
        with _lock:
            _allowed.clear()
            _allowed.update(self.before)
