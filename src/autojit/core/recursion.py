"""Room on the stack for what walks a kernel's expressions.

The schedule and the code generator follow an expression from its result to what it reads, some frames per op; a kernel
has at most some hundred (``schedule.fusion.MAX_MEMBERS``). The depth is so bounded, but not by Python's limit of a
thousand, of which the user's own frames have taken an unknown part.
"""

from __future__ import annotations

import sys

from autojit.core.process_changes import WhileInside

FRAMES = 12_000
"""Of 400 ops, up to 15 frames each (a guard whose arm reads through a look-up), twice for an arm nested in another."""

_limits = [0, 0]  # before, and while somebody is inside


def _raise_limit() -> None:
    _limits[:] = sys.getrecursionlimit(), sys.getrecursionlimit() + FRAMES
    sys.setrecursionlimit(_limits[1])


def _restore_limit() -> None:
    if sys.getrecursionlimit() == _limits[1]:  # one that was set meanwhile stays
        sys.setrecursionlimit(_limits[0])


headroom = WhileInside(_raise_limit, _restore_limit)
"""Inside ``with headroom():`` Python's limit of recursion is higher by `FRAMES`, in all threads."""
