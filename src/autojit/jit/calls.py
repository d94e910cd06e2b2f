"""One call of a jitted function on its way through Python."""

from __future__ import annotations

import copy
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.late_interrupts import late_interrupts
from autojit.core.locks import without_waiting
from autojit.core.sizes import with_hints
from autojit.core.types import Shape
from autojit.functions.exchange import array_of_foreign
from autojit.jit.guards import Guard, broken_guard
from autojit.jit.outcomes import BeginsAgain, Turned
from autojit.jit.pytree import Args, Kwargs, flatten
from autojit.jit.trace import Trace
from autojit.jit.trace_entries import Split
from autojit.runtime.gate import Reentered
from autojit.tensor.tensor import Tensor

if TYPE_CHECKING:
    from autojit.jit.decision import Decision
    from autojit.jit.draws import Draw
    from autojit.jit.native_calls import NativeCalls
    from autojit.jit.step import CompiledStep


def _is_foreign(leaf: object) -> bool:
    """Whether an argument is another library's array, which a step takes as it takes NumPy's."""
    return not isinstance(leaf, Tensor | np.ndarray) and any(
        hasattr(type(leaf), name) for name in ("__dlpack__", "__cuda_array_interface__")
    )


RESTARTS_LIMIT = 32  # of one call, besides one for each of its leaves
TORN_LIMIT = 8  # captures of one call; a function that reads what its own library calls change looks torn, too


class Call:
    """A call's leaves, the values of its open sizes, and the decisions passed so far."""

    def __init__(self, args: Args, kwargs: Kwargs) -> None:
        self.given = args, kwargs
        leaves, self.tree = flatten(self.given)
        self.leaves = [array_of_foreign(leaf) if _is_foreign(leaf) else leaf for leaf in leaves]
        self.bound: set[int] = set()  # leaves whose memory the step also changes by another way
        self.is_fixed = False  # whether this call's sizes have a step of their own
        self.has_opened = False  # whether it made sizes open that were not
        self.shapes: dict[int, Shape] = {}  # of leaves with open sizes
        self.sizes: dict[str, int] = {}  # the values of the open sizes
        self.trace: Trace | None = None  # the capture that was begun last
        self.drawn: Sequence[tuple[Draw, Any]] = ()  # by the capture that was begun last, beyond what it was given
        self.epoch = 0  # the guard epoch before guards were looked at
        self.restarts = 0
        self.torn = 0  # captures of this call that were given up, as another thread changed what they read
        self.restart()

    def restart(self, bound: Collection[int] = (), is_fixed: bool = False) -> None:
        """Back to the root, with more leaves bound; ``is_fixed``: the sizes are not to be left open."""
        self.bound |= set(bound)
        self.is_fixed |= is_fixed
        self.restarts += 1
        self.path: list[Decision] = []
        self.outcomes: list[Split] = []

    def give_up_torn(self) -> None:
        """What the capture has read has changed meanwhile: another one reads it as it is at one time.

        Raises:
            Turned: another thread may have done it.
        """
        if self.torn < TORN_LIMIT and threading.active_count() > 1:
            self.torn += 1
            raise Turned(BeginsAgain())

    def check_untorn(self, guards: Sequence[Guard]) -> None:
        """All that a capture has read is as it was read; else another thread has written it, perhaps between two reads.

        Raises:
            Turned: as ``give_up_torn``.
        """
        if threading.active_count() > 1 and broken_guard(guards):
            self.give_up_torn()

    def begin(self, trace: Trace) -> Trace:
        """Another capture begins; histories are as they were before the one that was begun last."""
        if self.trace is not None:
            self.trace.attach_again()
        self.trace = trace
        return trace

    def leave_unused(self, branch: Sequence[object], compiling: Collection[int]) -> None:
        """Where nothing was captured for the last outcome, its decision keeps nothing: there may be ever new ones."""
        if self.path and not branch and id(branch) not in compiling:
            self.path[-1].children.pop(self.outcomes[-1].key, None)

    def run(self, step: CompiledStep, arrays: Sequence[Any]) -> Any:
        """Run a step; if it fails right after its capture, what that has detached gets its history again."""
        try:
            return step.run(self.leaves, arrays, self.given)
        except BaseException:
            if self.trace is not None:
                self.trace.attach_again()
            raise
        finally:
            if self.trace is not None:
                self.trace.forget_histories()

    def with_sizes(self, sizes: dict[str, int], outcomes: Sequence[Split]) -> Call:
        """The same call as if its open sizes had other values, and its decisions these outcomes: for the capture."""
        found = copy.copy(self)
        found.sizes, found.outcomes = sizes, list(outcomes)
        found.shapes = {k: with_hints(shape, sizes) for k, shape in self.shapes.items()}
        return found


@contextmanager
def alone(lock: threading.RLock, natives: NativeCalls) -> Iterator[None]:
    """With a function's lock; ``Reentered`` inside a native call: whoever has the lock may be waiting for it.

    All that a call through Python keeps is kept under this lock: interrupts come late.
    """
    with late_interrupts:
        with without_waiting(lock) as is_taken:
            if is_taken:
                yield
                return
        if natives.is_inside():
            raise Reentered
        with lock:
            yield
