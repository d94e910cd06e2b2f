"""Arguments that gather gradients: leaves that a script passes at every call and whose ``.grad`` nobody clears.

A step finds the gradient of an argument afresh at every call, which only Python can do. When the same tensor comes a
second time it is *bound* instead: treated like a parameter, whose gradient native code adds to in place. Only a few
tensors are, because each costs a capture.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from autojit.jit.step import CompiledStep
from autojit.tensor.tensor import Tensor

MOST_BOUND = 8  # tensors, of one jitted function


class Gathering:
    """Which arguments of a jitted function gathered gradients at the last call through Python."""

    def __init__(self) -> None:
        self._last: list[weakref.ref[Tensor]] = []
        self.bound: set[int] = set()  # by id: a bound capture keeps its tensors alive

    def note(self, step: CompiledStep, leaves: Sequence[Any]) -> None:
        """Remember what the step has just given gradients to."""
        given = [leaves[w.index] for w in step.effects.writes if w.what not in ("array", "version", "spent")]
        self._last = [weakref.ref(t) for t in given if isinstance(t, Tensor) and t._grad_fn is None]

    def again(self, leaves: Sequence[Any]) -> set[int]:
        """Positions of leaves to bind: tensors that gathered a gradient at the last call, or were bound before."""
        known = self.bound | {id(t) for t in (ref() for ref in self._last) if t is not None}
        if not known:
            return set()
        found = {k for k, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and id(leaf) in known}
        fresh = {id(leaves[k]) for k in found} - self.bound
        if len(self.bound) + len(fresh) > MOST_BOUND:
            return {k for k in found if id(leaves[k]) in self.bound}
        self.bound |= fresh
        return found
