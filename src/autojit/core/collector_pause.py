"""Importing, capturing and compiling without the cyclic garbage collector.

A compile makes many objects that stay and few cycles, as an import does. The collector would look at all of them again
and again, which takes a good tenth of the time.
"""

from __future__ import annotations

import gc

from autojit.core.process_changes import WhileInside

_thresholds = [gc.get_threshold()]
_is_frozen = [False]  # whether the user was found to freeze objects


def _rest() -> None:
    _thresholds[0] = gc.get_threshold()
    gc.set_threshold(0)  # and not ``gc.disable``: what a user's function asks is whether it is enabled


def _has_frozen() -> bool:
    """Whether the user has frozen objects; asked once only, because they are counted one by one (3 ms for 40,000)."""
    if not _is_frozen[0]:
        _is_frozen[0] = gc.get_freeze_count() != 0
    return _is_frozen[0]


def _collect_again() -> None:
    if gc.isenabled() and not _has_frozen():  # else they are the user's
        gc.freeze()
        gc.unfreeze()  # hands everything over to the oldest generation
    if gc.get_threshold()[0] == 0:  # else the user has set another meanwhile
        gc.set_threshold(*_thresholds[0])


uncollected = WhileInside(_rest, _collect_again)
"""Inside ``with uncollected():`` the collector rests, in all threads; what was made counts as old afterwards."""
