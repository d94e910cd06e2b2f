"""Whether capturing pays: captures that serve no second call are made ever more rarely.

A program may give a function arguments of another kind in every call (a batch with None in other places), or change
every time what it reads. A capture takes as long as hundreds of eager calls. So after some in a row of which none has
served another call, calls run line by line in between: one, two, four, eight. One that serves a call ends that; and
arguments of a kind that comes again are captured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autojit.jit.captures import Captures

FREE = 16
"""So many captures in a row may serve one call each: a loop over batch sizes, heads or modes that is warming up."""


class Payoff:
    """Of one function's captures. Under its lock."""

    def __init__(self) -> None:
        self.in_vain = 0  # captures in a row that have served the call that they were made for, alone
        self._native_calls = 0  # of the function, when it was looked at last
        self._waited = 0  # calls since the last capture

    def waits(self, root: Captures, native_calls: int) -> bool:
        """Whether a call for which no capture of its kind of arguments serves is to run line by line."""
        if native_calls != self._native_calls:
            self._native_calls = native_calls
            self.served()
        is_enough = self.in_vain < FREE or self._waited >= 1 << (self.in_vain - FREE)
        if is_enough or (root.has_come and not root.captures):
            return False
        root.has_come = True
        self._waited += 1
        return True

    def captured(self) -> None:
        """A capture has been made."""
        self.in_vain += 1
        self._waited = 0

    def served(self) -> None:
        """An earlier capture has served a call."""
        self.in_vain = 0
