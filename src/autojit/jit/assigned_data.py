"""What stands for the arguments of a step; ``x.data = y`` in it, for tensors that others may look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autojit.jit.line_by_line import GivenOtherMemory, LineByLine
from autojit.tensor.tensor import Tensor


class TraceData:
    """The part of a trace that knows what it is given, and gives tensors from outside no other memory."""

    flags: list[tuple[Tensor, bool]]

    if TYPE_CHECKING:

        def give_up(self, reason: LineByLine) -> None: ...

    def __init__(self) -> None:
        self.arguments: list[Tensor] = []  # what stands for the tensors that the step is given
        self.gradients_given: list[Tensor] = []  # and for their gradients
        self.switched_on: list[Tensor] = []  # leaves outside that require gradients from somewhere in the step on

    def is_given(self, t: Tensor) -> bool:
        return any(t is x for x in (*self.arguments, *self.gradients_given))

    def note_flag(self, t: Tensor, flag: bool, wanted: bool) -> None:
        """The step tells a leaf outside whether it requires gradients: that it did, or did not, is a guard."""
        if wanted and not flag:
            self.switched_on.append(t)
        if not any(known is t for known, _ in self.flags):
            self.flags.append((t, flag))

    def leave_memory(self, t: Tensor) -> None:
        self.give_up(GivenOtherMemory(t).always())
