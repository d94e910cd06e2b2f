"""One call of a jitted function on its way through Python, and what sends it back to the start."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.locks import without_waiting
from autojit.core.sizes import with_hints
from autojit.core.types import Shape
from autojit.jit.guards import Guard, broken_guard
from autojit.jit.pytree import flatten
from autojit.jit.trace import BeginAgain, Trace
from autojit.jit.trace_entries import Split
from autojit.runtime.gate import Reentered
from autojit.tensor.exchange import array_of_foreign
from autojit.tensor.tensor import Tensor, type_of

if TYPE_CHECKING:
    from autojit.jit.native_calls import NativeCalls
    from autojit.jit.step import CompiledStep, Decision


def _is_foreign(leaf: Any) -> bool:
    """Whether an argument is another library's array, which a step takes as it takes NumPy's."""
    return not isinstance(leaf, Tensor | np.ndarray) and hasattr(type(leaf), "__dlpack__")


TORN_LIMIT = 8  # captures of one call; a function that reads what its own library calls change looks torn, too


class Call:
    """A call's leaves, the values of its open sizes, and the decisions passed so far."""

    def __init__(self, args: Any, kwargs: Any) -> None:
        leaves, self.tree = flatten((args, kwargs))
        self.leaves = [array_of_foreign(leaf) if _is_foreign(leaf) else leaf for leaf in leaves]
        self.bound: set[int] = set()  # leaves whose memory the step also changes by another way
        self.is_fixed = False  # whether this call's sizes have a step of their own
        self.has_opened = False  # whether it made sizes open that were not
        self.shapes: dict[int, Shape] = {}  # of leaves with open sizes
        self.sizes: dict[str, int] = {}  # the values of the open sizes
        self.trace: Trace | None = None  # the capture that was begun last
        self.epoch = 0  # the guard epoch before guards were looked at
        self.torn = 0  # captures of this call that were given up, as another thread changed what they read
        self.restart()

    def restart(self) -> None:
        """Back to the root."""
        self.path: list[Decision] = []
        self.outcomes: list[Split] = []

    def give_up_torn(self) -> None:
        """What the capture has read has changed meanwhile: another one reads it as it is at one time.

        Raises:
            BeginAgain: another thread may have done it.
        """
        if self.torn < TORN_LIMIT and threading.active_count() > 1:
            self.torn += 1
            raise BeginAgain

    def check_untorn(self, guards: Sequence[Guard]) -> None:
        """All that a capture has read is as it was read; else another thread has written it, perhaps between two reads.

        Raises:
            BeginAgain: as ``give_up_torn``.
        """
        if threading.active_count() > 1 and broken_guard(guards):
            self.give_up_torn()

    def check_compiled(self) -> None:
        """After the function has run: Uncompiled where it has done what no step can do."""
        assert self.trace is not None
        if self.trace.uncompiled:
            raise Uncompiled(self.trace.uncompiled)

    def run(self, step: CompiledStep, arrays: Sequence[Any]) -> Any:
        """Run a step; if it fails right after its capture, what that has detached gets its history again."""
        try:
            return step.run(self.leaves, arrays)
        except BaseException:
            if self.trace is not None:
                self.trace.attach_again()
            raise

    def with_sizes(self, sizes: dict[str, int], outcomes: Sequence[Split]) -> Call:
        """The same call as if its open sizes had other values, and its decisions these outcomes: for the capture."""
        found = copy.copy(self)
        found.sizes, found.outcomes = sizes, list(outcomes)
        found.shapes = {k: with_hints(shape, sizes) for k, shape in self.shapes.items()}
        return found


class Conflict(Exception):
    """Argument leaves share memory with what the step changes: they must be bound, from the root on."""

    def __init__(self, leaves: set[int]) -> None:
        super().__init__()
        self.leaves = leaves


class LineByLine(Exception):
    """A call is of a kind that steps cannot do: it runs line by line, which is noted. Nothing has been written yet."""


class Overlap(LineByLine):
    """Arguments share memory that the step writes in a way that only NumPy knows."""

    def __init__(self) -> None:
        super().__init__("arguments share memory, with each other or with state, that is written: ran line by line")


class Onward(LineByLine):
    """Backward goes on through an argument's own history to a leaf whose ``.grad`` the function uses afterwards, or
    through nodes that keep what the step changes.
    """

    def __init__(self, argument: Tensor, where: str) -> None:
        super().__init__(
            f"backward goes on through the history of an argument {type_of(argument)} {where}: ran line by line "
            "(compute the argument inside the step, or detach() it)"
        )


class UnrecordedForm(LineByLine):
    """A tensor that requires gradients gets another form that its history does not show: ``role`` "an argument", or
    "a result that shares its memory".
    """

    def __init__(self, role: str, t: Tensor) -> None:
        super().__init__(
            f"{role} {type_of(t)} that requires gradients gets another shape in place, and no history "
            "shows it: ran line by line (change the shape in grad mode, or use the out-of-place form)"
        )


class ViewsOfView(LineByLine):
    """An argument is a view, and views of it take part in a change of its history: they are views of its base, too."""

    def __init__(self, argument: Tensor) -> None:
        super().__init__(
            f"an argument {type_of(argument)} is a view of another tensor, and its history changes in place together "
            "with that of views of it: ran line by line (pass the base, or change a clone())"
        )


class DrawsByValues(LineByLine):
    """What is drawn is known only while the function runs."""

    def __init__(self) -> None:
        super().__init__(
            "what is drawn (random, next(), ...) depends on what the step computes: every call runs line by line"
        )


class Uncompiled(LineByLine):
    """A function has done what no step of it can do, and does it again in all likelihood."""


class ChangedArgument(Uncompiled):
    """A step is given copies of lists, dictionaries and records, and changes one."""

    def __init__(self) -> None:
        super().__init__(
            "the function changes a list, dictionary or record that it is given as an argument: ran line by line "
            "(return what is to be stored, or let the function find the object outside)"
        )


class Fixed(Exception):
    """The capture must not leave the sizes of this call open; why has been noted."""


@contextmanager
def alone(lock: Any, natives: NativeCalls) -> Iterator[None]:
    """With a function's lock; ``Reentered`` inside a native call: whoever has the lock may be waiting for it."""
    with without_waiting(lock) as is_taken:
        if is_taken:
            yield
            return
    if natives.is_inside():
        raise Reentered
    with lock:
        yield
