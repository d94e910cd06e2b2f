"""Whether capturing pays: captures that serve no second call are made ever more rarely.

A program may give a function arguments of another kind in every call (a batch with None in other places), change every
time what it reads, or decide in another way. A capture takes as long as hundreds of eager calls. So after some in a row
of which none has served another call, calls run line by line in between: one, two, four, eight. One of them that serves
a call ends that; that older ones serve does not, so a kind that always comes does not pay for others that never come
again. Arguments of a kind that comes again are captured, and so is an outcome of a decision that does.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autojit.jit.captures import Branch, Captures
    from autojit.jit.native_calls import NativeCalls
    from autojit.jit.step import CompiledStep, Decision
    from autojit.jit.trace_entries import Split

FREE = 16
"""So many captures in a row may serve one call each: a loop over batch sizes, heads or modes that is warming up."""
WAITING_KEPT = 64  # outcomes of one decision that have come once and not been captured


class Payoff:
    """Of one function's captures. Under its lock."""

    def __init__(self, natives: NativeCalls) -> None:
        self.natives = natives
        self._made: list[weakref.ref[CompiledStep]] = []  # by captures, since the last one known to have served
        self._waited = 0  # calls since the last capture

    def waits(self, root: Captures, branch: Branch, path: Sequence[Decision], outcomes: Sequence[Split]) -> bool:
        """Whether a call that no step of a branch serves, which it has reached by a path, is to run line by line."""
        in_vain = self.in_vain()
        if in_vain < FREE or self._waited >= 1 << (in_vain - FREE):
            return False
        if not branch and self._comes_again(root, path, outcomes):
            return False
        self._waited += 1
        return True

    def in_vain(self) -> int:
        """Captures in a row, up to the last one, that have served the call that they were made for, alone."""
        for place in reversed(range(len(self._made))):
            step = self._made[place]()
            if step is not None and step.calls + self.natives.of(step) > 1:
                del self._made[: place + 1]
                break
        return len(self._made)

    def captured(self, step: CompiledStep) -> None:
        """A capture has been made, and its step is going to run for the first time."""
        self._made.append(weakref.ref(step))
        self._waited = 0

    def _comes_again(self, root: Captures, path: Sequence[Decision], outcomes: Sequence[Split]) -> bool:
        """Whether a call before came as far, where nothing has been captured yet; of the next ones, this one has."""
        if not path:
            has_come, root.has_come = root.has_come, True
            return has_come
        waiting, outcome = path[-1].waiting, hash(outcomes[-1].key)
        if outcome in waiting:
            waiting.remove(outcome)
            return True
        waiting.append(outcome)
        del waiting[:-WAITING_KEPT]
        return False
