"""The guard epoch: one number that counts changes of what compiled steps may have baked in; switches, hooks of all.

Native code compares the number by its address. What counts its changes here needs no guard of its own at every call.
Modules count theirs once a capture has met them (`meet`): before that, nothing that is compiled has read them.
Whether modules are training moves the number to and fro, so it is the same one again when they are as they were.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import get_ident
from typing import Any

import numpy as np

guard_epoch = np.zeros(1, np.int64)
"""Counts changes of anything a trace may have baked in; native code compares it by address."""
switch_epoch = np.zeros(1, np.int64)
"""Counts those of ``switches`` alone, which every step reads; most programs change none of them after their start."""
no_epoch = np.zeros(1, np.int64)
"""Stands where the guard epoch would, of steps that do not ask for it."""
_ONE = np.ones(1, np.int64)
_MASK = (1 << 64) - 1
_PLAIN = (bool, int, float, str, type(None))
_ABSENT = object()
_switches: dict[str, object] = {}
_first: dict[str, object] = {}  # what they were before anybody set them
_setters: dict[str, Callable[[Any], None]] = {}
_set_by: dict[str, int] = {}  # the thread that has set a switch last
_hooks_of_all: dict[str, dict[int, Any]] = {}


_met: set[int] = (
    set()
)  # ids of tables that captures have read; one that is gone may give its id to another, which counts
_MOST_MET = 1 << 20


def meet(*tables: object) -> None:
    """A capture is going to read these tables of an object: from now on their changes count."""
    if len(_met) < _MOST_MET:
        _met.update(map(id, tables))


def is_met(table: object) -> bool:
    """Whether changes of a table count."""
    return id(table) in _met or len(_met) >= _MOST_MET


def bump_guard_epoch() -> None:
    """Say that Python state which a trace may have read has changed."""
    np.add(guard_epoch, _ONE, guard_epoch)  # one call of C: another thread or a signal handler comes before or after it


def bump_switch_epoch() -> None:
    """Say that a switch of the process, or a table of hooks, has changed: one change of the guard epoch's, too."""
    np.add(switch_epoch, _ONE, switch_epoch)
    bump_guard_epoch()


def write_attribute(obj: object, name: str, value: Any) -> None:
    """Assign to an attribute that a trace may have baked in, of an object that has a table of them."""
    table = obj.__dict__
    old = table.get(name, _ABSENT)
    if is_met(table) and is_flag(name, old, value):
        write_flag(table, value, partial(object.__setattr__, obj, name, value))
        return
    object.__setattr__(obj, name, value)
    if not is_met(table):  # asked when it is written: a thread that meets the object now reads what is there
        return
    if old is not value and not (type(old) is type(value) and type(value) in _PLAIN and old == value):
        bump_guard_epoch()


def is_flag(name: object, old: object, new: object) -> bool:
    """Whether an attribute that changes so is written by ``write_flag``: whether a module is training."""
    return name == "training" and type(old) is type(new) is bool and old is not new


def write_flag(table: dict[str, Any], value: bool, write: Callable[[], None]) -> None:
    """Give a flag in an object's table another value; when it gets back the one before, so does the epoch.

    So steps for both values, each of which was verified once, are told from each other by the one number: the numbers
    by which flags move it are as good as random. It moves before and after ``write``: a thread that verifies a step
    meanwhile takes a number that is not there when no flag is being written. Who writes a flag by another way must
    count one up instead.
    """
    before, after = _moves(id(table))
    move = np.subtract if value else np.add  # modulo 2**64
    move(guard_epoch, before, guard_epoch)
    try:
        write()
    finally:
        move(guard_epoch, after, guard_epoch)


def _moves(seed: int) -> tuple[int, int]:
    """The first two numbers of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), without their last bits."""
    found = []
    for k in (1, 2):
        x = (seed + k * 0x9E3779B97F4A7C15) & _MASK
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
        found.append((x ^ (x >> 31)) >> 1)
    return found[0], found[1]


def note_switch(name: str, value: object, before: object, put: Callable[[Any], None]) -> None:
    """Say that a switch of the whole process (the default dtype, say) has a new value; ``put`` sets it to one."""
    _setters[name] = put
    _first.setdefault(name, before)
    if _switches.get(name) != value:
        _switches[name] = value
        _set_by[name] = get_ident()
        bump_switch_epoch()


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
