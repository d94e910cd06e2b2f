"""The guard epoch: one number that counts changes of what compiled steps may have baked in; switches, hooks of all.

Native code compares the number by its address. What counts its changes here needs no guard of its own at every call.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any

import numpy as np

guard_epoch = np.zeros(1, np.int64)
"""Counts changes of anything a trace may have baked in; native code compares it by address."""
_switches: dict[str, object] = {}
_first: dict[str, object] = {}  # what they were before anybody set them
_setters: dict[str, Callable[[Any], None]] = {}
_set_by: dict[str, int] = {}  # the thread that has set a switch last
_hooks_of_all: dict[str, dict[int, Any]] = {}


def bump_guard_epoch() -> None:
    """Say that Python state which a trace may have read has changed."""
    guard_epoch[0] += 1


def note_switch(name: str, value: object, before: object, put: Callable[[Any], None]) -> None:
    """Say that a switch of the whole process (the default dtype, say) has a new value; ``put`` sets it to one."""
    _setters[name] = put
    _first.setdefault(name, before)
    if _switches.get(name) != value:
        _switches[name] = value
        _set_by[name] = get_ident()
        bump_guard_epoch()


def switch_values() -> dict[str, object]:
    """The switches that have ever been set, by name."""
    return {**_first, **_switches}


def switches_since(then: dict[str, object]) -> list[tuple[str, object, object]]:
    """The switches that this thread has set otherwise than ``switch_values`` said: name, value, and what it was."""
    was, me = {**_first, **then}, get_ident()
    return [(k, value, was[k]) for k, value in switch_values().items() if was[k] != value and _set_by.get(k) == me]


def put_switch(name: str, value: object) -> None:
    """Set a switch again that has been set before."""
    _setters[name](value)


def hooks_of_all(kind: str) -> dict[int, Any]:
    """The table of the hooks of everything of a kind ("modules", say), by numbers that are never used again."""
    return _hooks_of_all.setdefault(kind, {})


def tables_of_all() -> dict[str, dict[int, Any]]:
    """The tables of such hooks, by kind."""
    return _hooks_of_all


def switches() -> tuple[object, ...]:
    """Names and values of switches that are not as they were first, and the hooks of all, as a guard compares them."""
    hooks = [(kind, tuple(table)) for kind, table in sorted(_hooks_of_all.items()) if table]
    changed = [(name, value) for name, value in sorted(_switches.items()) if value != _first[name]]
    return (*(part for item in changed for part in item), *hooks)
