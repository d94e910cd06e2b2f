"""Importing, capturing and compiling without the cyclic garbage collector.

A compile makes many objects that stay and few cycles, as an import does. The collector would look at all of them again
and again, which takes a good tenth of the time. So they count as old at once. The collector looks at old objects when
enough others have grown old by its own doing; those handed over are counted here, or models, steps and their memory
that a program has dropped would stay for as long as it compiles others.
"""

from __future__ import annotations

import gc

from autojit.core.process_changes import WhileInside

_thresholds = [gc.get_threshold()]
_is_frozen = [False]  # whether the user was found to freeze objects
FIRST = 100_000
"""Objects handed over before all are looked at for the first time: 17 captures of a training step of three layers,
0.7 s, against 0.04 s for a look at 90,000 objects. From then on as many as were left: looks stay a small part.
"""
_handed_over = [0]
_enough = [FIRST]


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
        _handed_over[0] += gc.get_count()[0]
        gc.freeze()
        gc.unfreeze()  # hands everything over to the oldest generation
    if gc.get_threshold()[0] == 0:  # else the user has set another meanwhile
        gc.set_threshold(*_thresholds[0])


def _collect_all() -> None:
    """Look at old objects as well, once enough have been handed over."""
    if _handed_over[0] < _enough[0] or not gc.isenabled() or gc.get_threshold()[0] == 0 or _has_frozen():
        return
    _handed_over[0] = 0
    gc.collect()
    gc.freeze()
    _enough[0] = max(FIRST, gc.get_freeze_count())
    gc.unfreeze()


class _Pause(WhileInside):
    """The pause, after whose end nothing is locked when objects are finalised."""

    def leave(self) -> None:
        super().leave()
        _collect_all()


uncollected = _Pause(_rest, _collect_again)
"""Inside ``with uncollected():`` the collector rests, in all threads; what was made counts as old afterwards."""
