"""Capturing and compiling without the cyclic garbage collector.

A compile makes many objects that stay and few cycles. The collector would look at all of them again and again, which
takes a good tenth of the time.
"""

from __future__ import annotations

import gc

from autojit.core.while_inside import WhileInside

_was_enabled = [False]


def _rest() -> None:
    _was_enabled[0] = gc.isenabled()
    gc.disable()


def _collect_again() -> None:
    if not _was_enabled[0]:
        return
    if gc.get_freeze_count() == 0:  # else they are the user's
        gc.freeze()
        gc.unfreeze()  # hands everything over to the oldest generation
    gc.enable()


uncollected = WhileInside(_rest, _collect_again)
"""Inside ``with uncollected():`` the collector rests, in all threads; what was made counts as old afterwards."""
