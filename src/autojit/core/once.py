"""Made once per key: what the threads of a process share.

``functools.cache`` calls the function twice when two threads ask at the same time, keeps one result and gives each
thread its own. Where a result owns something (loaded code whose address is handed on, a lock, a thread) the one that
was not kept is freed while somebody uses it. Here the threads that come second wait, and all get the one result.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Generic, ParamSpec, TypeVar

from autojit.core.locks import new_lock
from autojit.core.undivided_work import undivided

P = ParamSpec("P")
T = TypeVar("T")
first_use = new_lock()
"""Held while an object gets a field that is made when it is first asked for: all who ask then get the same."""


class Once(Generic[P, T]):
    """A function of hashable positional arguments that runs once for each of them; what it raises is not kept.

    The function may ask for other keys, or for what else is made once, but for nothing that asks for it in turn.
    """

    def __init__(self, function: Callable[P, T]) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._found: dict[Hashable, T] = {}
        self._lock = new_lock()

    def __call__(self, *key: P.args, **named: P.kwargs) -> T:
        try:
            return self._found[key]
        except KeyError:
            pass
        assert not named, "what is made once is asked for by position"
        with undivided, self._lock:
            if key not in self._found:
                made = self._function(*key, **named)
                self._found.setdefault(key, made)  # a signal handler may have asked for the same in the middle of it
            return self._found[key]

    def forget(self) -> None:
        """Make everything again when it is next asked for; for tests. Nobody else may be asking."""
        self._found.clear()


def once(function: Callable[P, T]) -> Once[P, T]:
    """Decorator: call the function once for every key, whichever thread asks first.

    Example:
        >>> @once
        ... def opened(name):
        ...     return [name]
        >>> opened("a") is opened("a"), opened("a") is opened("b")
        (True, False)
    """
    return Once(function)
