"""Texts of a step's tensors that Python looks at while the step is captured: no step is compiled for them.

A text is known when the step has run, and what Python makes of it then nobody knows. So it is that of the call at hand,
which goes on to its end for the errors that it may raise; then such calls run line by line. What is only printed,
logged, appended or returned is made after every run (``late_values.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from autojit.core.errors import TraceError
from autojit.core.source import here
from autojit.dispatch.dispatch import value_of
from autojit.tensor.tensor import Tensor, type_of

if TYPE_CHECKING:
    from autojit.ir.graph import Value


class TraceTexts:
    """The part of a trace that shows what its tensors hold."""

    runs_often: bool
    outer: Any  # of a body: the capture that it is in
    arguments: list[Tensor]
    name: str  # and what messages call it
    known: dict[Value, Any]

    def __init__(self) -> None:
        self.is_over = False  # whether the capture has ended, and nothing is known of its inputs any more
        self.told: Sequence[Any] = ()  # calls that are made after every run
        self.tell: Sequence[Callable[[], Any]] = ()  # those of them that write or tell, for a call that raises
        self.uncompiled = ""  # why the call is to run line by line

    if TYPE_CHECKING:

        def evaluate(self, value: Value) -> Any: ...

    def shown(self, t: Tensor) -> Any:
        """The array of a tensor in the call at hand, whose text is asked for.

        None where eager mode has none either (inside ``vmap``), and while a derivative is recorded later.

        Raises:
            TraceError: in a body of a loop or branch.
        """
        if self.is_over or (t._array is None and t._value is None and t._storage is None):
            return None
        if self.runs_often and self.outer is not None:
            raise TraceError(
                f"{self.name}: the text of a tensor in the body, which is known only when the compiled body runs",
                {"tensor": type_of(t), "at": here()},
                "let the body return the tensor, and make the text after the call",
            )
        if self.runs_often:
            return None
        self.note_uncompiled("Python looks at the text of a tensor, which is not printed, logged, appended or returned")
        return self.evaluate(value_of(t))

    def note_uncompiled(self, why: str) -> None:
        """The function does what no step can do, and is known to be right only line by line."""
        self.uncompiled = self.uncompiled or f"{why} ({here()}): ran line by line"

    def note_steps(self, t: Tensor) -> None:
        """The function asks for the strides of a tensor: of axes of one element, no call knows those of another."""
        if 1 in type_of(t).shape and any(t is x or t._storage is x._storage is not None for x in self.arguments):
            self.note_uncompiled("Python asks for the strides of an argument, which has an axis of one element")
