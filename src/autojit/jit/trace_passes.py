"""What a capture notes of its backward passes: which histories outside they come to, and whose gradients they give."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple
from weakref import WeakSet, ref

from autojit.core.errors import TraceError
from autojit.core.program_parts import Parts
from autojit.core.source import here
from autojit.history.gradients import accumulating
from autojit.jit.histories import history_of
from autojit.jit.line_by_line import GivenUp, LineByLine, OutOfHistory, Uncompiled
from autojit.jit.trace_part import TracePart
from autojit.tensor.node import AccumulateGrad, Edge, Node, next_number
from autojit.tensor.tensor import Tensor


class PassToTargets(NamedTuple):
    """A pass that gives the gradients of ``targets`` alone, of those that a history outside may lead to.

    ``ends``: where it comes to the histories of arguments, which a capture does not see; ``outside``: the nodes of
    other histories outside that it goes through. ``accumulates``: it adds the gradients to ``.grad``.
    """

    ends: list[Node]
    targets: list[Edge]
    outside: WeakSet[Node]
    accumulates: bool


class TracePasses(TracePart):
    """The part of a trace that knows of backward passes."""

    def __init__(self) -> None:
        self.onward: list[Any] = []  # where gradients go on through the histories of arguments
        self.seen_gradients: list[tuple[ref[Tensor], ref[Tensor]]] = []  # leaves with those that were seen before
        self.touched: list[Tensor] = []  # leaves whose gradients the function looked at or replaced after one had
        self.has_passes = False  # whether the step differentiates
        self.parts = Parts()  # the modules whose calls were met
        self.passed: list[tuple[Tensor, Node]] = []  # tensors reached, with histories that passes went through
        self.to_targets: list[PassToTargets] = []
        self.before_pass: Callable[[], None] | None = None  # told of each of those before it begins
        self.given_up: LineByLine | None = None  # why the capture is given up, whoever catches that
        self._first_number = next_number()

    def note_pass(self, nodes: Collection[Node], targets: Iterable[Edge] | None, accumulates: bool) -> None:
        self.has_passes = True
        for t in self.reached:
            before = self._before.get(id(t))  # None where the capture is over, and its history differentiated
            node = None if before is None else before.slots[1]
            if node is not None and node in nodes:
                self.passed.append((t, node))
                self.note_used(one for one in history_of([t]) if one in nodes)
        wanted = [edge for edge in targets or () if self._is_from_outside(edge[0])]
        if wanted:
            ends = [node for node in self.onward if node in nodes]
            outside = [node for node in nodes if node not in ends and self._is_from_outside(node)]
            if all(isinstance(node, AccumulateGrad) for node in outside):
                outside = []  # leaves that the step reaches itself: none of them is an argument, too (see ``overlaps``)
            self.to_targets.append(PassToTargets(ends, wanted, WeakSet(outside), accumulates))
            if self.before_pass is not None:
                self.before_pass()

    def _is_from_outside(self, node: Node) -> bool:
        """Whether a node is of what existed before the capture, or stands for that."""
        if isinstance(node, AccumulateGrad):
            variable = node.variable
            is_concrete = variable._array is not None and not self.has_begun(variable)
            return is_concrete or any(variable is shell for shell in (*self.arguments, *self.gradients_given))
        return node.sequence < self._first_number or any(node is end for end in self.onward)

    def note_touch(self, leaf: Tensor, grad: Tensor | None) -> None:
        """What goes on through an argument's history is added after the step, too late for whoever looks at the sum."""
        if accumulating.now:
            return
        if any(node.pending is not None for node in self.onward):
            self.touched.append(leaf)
        elif grad is not None:
            self.seen_gradients.append((ref(leaf), ref(grad)))  # what the step makes may be gone when it ends

    def note_retained(self, t: Tensor) -> None:
        if t._array is not None and not self.has_begun(t):
            self.give_up(OutOfHistory(t, "keeps its gradient, which the step tells it (retain_grad)").always())

    def give_up(self, reason: LineByLine) -> None:
        """End the capture, before it uses up or changes what the call needs line by line.

        Raises:
            TraceError: it is that of a body in a program that runs line by line already.
        """
        if self.runs_often:
            if self.outer is None:
                raise TraceError(f"a captured body: {str(reason).partition(':')[0]}", {"at": here()}, "do it outside")
            self.outer.give_up(reason)
        self.given_up = reason
        raise GivenUp(reason)

    def cannot(self, why: str) -> None:
        """The function does what no step can: its calls run line by line.

        Raises:
            TraceError: in a captured body (``give_up``).
        """
        self.give_up(Uncompiled(f"{why} at {here()}: ran line by line"))

    def leaves_used(self) -> list[Tensor]:
        """Leaves whose sums the function may see too early: those touched, and those whose gradient somebody has."""
        found = self.touched[:]
        for leaf, grad in ((leaf(), grad()) for leaf, grad in self.seen_gradients):
            entry = self.grads.get(id(leaf))
            if leaf is not None and grad is not None and grad is (leaf._grad if entry is None else entry.current):
                found.append(leaf)
        return found
