"""The guard epoch: one number that counts changes of what compiled steps may have baked in; and global switches.

Native code compares the number by its address. What counts its changes here needs no guard of its own at every call.
"""

from __future__ import annotations

import numpy as np

guard_epoch = np.zeros(1, np.int64)
"""Counts changes of anything a trace may have baked in; native code compares it by address."""
_switches: dict[str, object] = {}


def bump_guard_epoch() -> None:
    """Say that Python state which a trace may have read has changed."""
    guard_epoch[0] += 1


def note_switch(name: str, value: object) -> None:
    """Say that a switch of the whole process (the default dtype, say) has a new value."""
    if _switches.get(name) != value:
        _switches[name] = value
        bump_guard_epoch()


def switches() -> tuple[object, ...]:
    """Names and values of the switches that have been set, as a guard compares them."""
    return tuple(part for item in sorted(_switches.items()) for part in item)
