"""Whether capturing pays: captures that serve no second call are made ever more rarely.

A program may give a function arguments of another kind in every call (a batch with None in other places, another
tree), change every time what it reads, or decide in another way. A capture takes as long as hundreds of eager calls. So
after some in a row of which none has served another call, calls run line by line in between: one, two, four, eight.
Large captures count as several: what they cost is their nodes', on every machine, and so is what a call line by line
costs. One that serves another call (from the ninth of a function on, a large one as many as it costs) pays for itself
and for one more, once: a kind that always comes does not pay for all that never come again. Arguments of a kind that
comes again are captured, and so is an outcome of a decision that does; a large one is to come again ever more often.

To find that no step serves takes time as well. Where that comes of most calls, the next ones run line by line unlooked
at: sixteen, then ever more. Where something is drawn before the step is looked for, a call in vain counts as several.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autojit.jit.captures import Branch, Captures
    from autojit.jit.decision import Decision
    from autojit.jit.native_calls import NativeCalls
    from autojit.jit.step import CompiledStep
    from autojit.jit.trace_entries import Split

FREE = 16
"""So many captures in a row may serve one call each: a loop over batch sizes, heads or modes that is warming up."""
FREE_AT_LEAST = 4
"""So many may, however large they are: the first steps of a training loop make gradients and what optimisers keep."""
NODES = 128
"""A capture counts one more for so many nodes and arguments: 16 of a tree LSTM's steps took 9.9 s, as long as
1,000 calls of it.
"""
PAYS = 32
"""Calls that a step of ``NODES`` nodes or more is to serve until its capture has paid: 600 nodes took 60 ms, and a call
by their step 1.5 ms less than line by line. A smaller one costs little, however rarely it serves, and pays with one.
"""
FIRST = 8
"""Captures of a function that pay with one further call, however large: training and evaluation on a few sizes."""
NODES_A_DECISION = 16  # a part takes as long to compile besides its nodes: 10 ms
KINDS = 64
"""Of so many kinds of arguments each is captured when it comes again. Of more it is to come as often as would pay for
its capture, by what has come so far: lists of four sequences of five lengths took 29 ms a call, which are 0.9 eagerly.
"""
FORMS = 8  # of a function: a program that finds ever more places is one whose captures serve no second call
MOST_DOUBLED = 20  # times: what is waited for
SHARE_SERVED = 4  # of so many calls steps are to serve one, else they are not worth looking for
DRAWN = 7
"""For so many calls more counts one for which something has been drawn: given what was drawn and observed, a step of
600 nodes took 5 ms line by line instead of 1.3 ms, and 0.4 ms natively.
"""
SEEN_AT_ONCE = 64
"""Arguments: of 500 it takes 5 ms to find that there is no step for them, three times a small step, so a call in vain
counts once more for each so many.
"""
WAITING_KEPT = 64  # outcomes of one decision that have come once and not been captured


def _no_step() -> None:
    """What a capture that was given up refers to."""


def _size(step: CompiledStep) -> int:
    """What a capture has cost, in nodes."""
    capture = step.capture
    return step.n_nodes + len(capture.arguments) + NODES_A_DECISION * len(capture.trace.splits)


class Payoff:
    """Of one function's captures. Under its lock."""

    def __init__(self, natives: NativeCalls) -> None:
        self.natives = natives
        self.begun = 0  # captures
        self.kinds = 0  # of arguments that are known
        self._forms = 0
        self.by_python = 0  # calls that steps have served
        self._made: list[Callable[[], CompiledStep | None]] = []  # by captures that nothing has paid for
        self._waited = 0  # calls since the last capture
        self._missed = 0  # calls that no step served
        self._served = 0  # calls that steps had served before these
        self._rest = FREE
        self._resting = 0

    def rests(self) -> bool:
        """Whether the call that begins is to run line by line without a look for its step; it is counted."""
        self._resting -= self._resting > 0
        return self._resting > 0

    def waits(
        self,
        root: Captures,
        branch: Branch,
        path: Sequence[Decision],
        outcomes: Sequence[Split],
        leaves: Sequence[object] = (),
    ) -> bool:
        """Whether a call that no step of a branch serves, which it has reached by a path, is to run line by line."""
        if self._waited >= self._to_wait():
            return False
        if not branch and self._comes_again(root, path, outcomes):
            return False
        self._waited += 1
        if branch or path or root.leads_on or len(leaves) > SEEN_AT_ONCE:
            self._miss(1 + len(leaves) // SEEN_AT_ONCE)  # else it is seen at once that a kind of arguments is not known
        return True

    def drew_in_vain(self) -> None:
        """A call that waits is given what has been drawn for it: it is followed line by line, at more than the price
        of what steps save.
        """
        self._miss(DRAWN)

    def _miss(self, count: int = 1) -> None:
        served = self.natives.total() + self.by_python
        if (served - self._served) * SHARE_SERVED > self._missed:
            self._missed, self._served, self._rest = 0, served, FREE
        self._missed += count
        if self._missed >= FREE:
            self._missed, self._served, self._resting, self._rest = 0, served, self._rest, 2 * self._rest

    def in_vain(self) -> int:
        """Captures that have not served as many calls as they cost, and that no other has paid for."""
        kept = [ref for ref in self._made if not self._has_served(ref())]
        self._made = kept[len(self._made) - len(kept) :]
        return len(self._made)

    def _to_wait(self) -> int:
        """How many calls are to run line by line before the next capture."""
        in_vain = self.in_vain()
        if in_vain < min(FREE_AT_LEAST, FREE):
            return 0
        each = self._each()
        free = min(FREE, max(FREE_AT_LEAST, FREE // each))
        return 0 if in_vain < free else each << min(in_vain - free, MOST_DOUBLED)

    def _has_served(self, step: CompiledStep | None) -> bool:
        if step is None:
            return False
        pays = PAYS if self.begun > FIRST and _size(step) >= NODES else 1
        return step.calls + self.natives.of(step) > pays

    @property
    def is_resting(self) -> bool:
        """Whether the calls that follow are to come here first."""
        return self._resting > 0

    def captured(self, step: CompiledStep) -> None:
        """A capture has been made, and its step is going to run for the first time."""
        self._made.append(weakref.ref(step))
        self._waited = 0

    def begin_form(self) -> None:
        """The function gets another form (more places as arguments): its captures go, and have not been in vain."""
        self._forms += 1
        if self._forms <= FORMS:
            self._made.clear()
            self._missed, self._rest, self._resting = 0, FREE, 0

    def gave_up(self) -> None:
        """A call has been captured, as often as that took, and no step could serve it."""
        self._made.append(_no_step)
        self._waited = 0

    def _comes_again(self, root: Captures, path: Sequence[Decision], outcomes: Sequence[Split]) -> bool:
        """Whether calls before came as far, where nothing has been captured yet; of the next ones, this one has.

        One of them is enough as long as what it would cost is small; else twice as many for each capture in vain.
        """
        if not path:
            come, root.come = root.come, root.come + 1
            return come >= (1 if self.kinds <= KINDS else min(self._to_come(), PAYS)) and not root.leads_on
        waiting, outcome = path[-1].waiting, hash(outcomes[-1].key)
        come = waiting.pop(outcome, 0)
        if come >= self._to_come():
            return True
        waiting[outcome] = come + 1
        if len(waiting) > WAITING_KEPT:
            del waiting[next(iter(waiting))]
        return False

    def _to_come(self) -> int:
        """How often an outcome is to have come before it is captured."""
        in_vain, each = self.in_vain(), self._each()
        return 1 if each == 1 else 1 << min(max(in_vain - FREE_AT_LEAST, 0), MOST_DOUBLED)

    def _each(self) -> int:
        """For how many small captures one in vain counts."""
        sizes = [_size(step) for ref in self._made if (step := ref()) is not None]
        return 1 + sum(sizes) // (NODES * max(self.in_vain(), 1))
