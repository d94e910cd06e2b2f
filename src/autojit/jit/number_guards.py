"""What Python decides on numbers among the arguments alone (``if i % 4 == 3``): guards of a capture by their outcome.

They are computed from a call's arguments before its step is chosen, so the step is not split there: it stays one native
call behind a look of a few microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.dtypes import bool_
from autojit.core.records import record
from autojit.core.source import SourceLocation, here
from autojit.ir.concrete import concrete, symbols_of
from autojit.ir.graph import Node, Value
from autojit.ops.base import Elementwise
from autojit.tensor.state import quietly

if TYPE_CHECKING:
    from autojit.jit.step import Capture
    from autojit.tensor.tensor import Tensor

LONGEST = 32  # ops of one decision that are computed before the step; longer ones split it


@record(eq=False)
class NumberGuard:
    """One decision: the inputs that it depends on, the ops that compute it, and how it went."""

    value: Value
    inputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[Value, Any]
    outcome: bool
    source: SourceLocation

    @property
    def has_sizes(self) -> bool:
        """Whether it depends on open sizes, too."""
        return any(symbols_of(node.op) for node in self.nodes)

    def __str__(self) -> str:
        return f"what Python decides on numbers at {self.source}: {self.outcome} -> {not self.outcome}"

    def holds(self, numbers: Mapping[Value, Any], sizes: Mapping[str, int]) -> bool:
        """Whether it goes the same way for these numbers, arrays of no dimension, and open sizes of arguments."""
        known = {**self.constants, **numbers}
        for node in self.nodes:
            op: Any = concrete(node.op, sizes) if symbols_of(node.op) else node.op
            known[node.outputs[0]] = op.eager(*[known[v] for v in node.inputs])
        return bool(known[self.value]) is self.outcome


class TraceNumbers:
    """The part of a trace that knows what Python decides on numbers among the arguments."""

    definition: dict[Value, Node]
    asked: dict[Value, Any]
    counted: dict[str, tuple[Value, Tensor]]

    if TYPE_CHECKING:

        def evaluate(self, value: Value) -> Any: ...
        def _index(self) -> None: ...
        def _first_alike(self, value: Value) -> Value: ...

    def __init__(self) -> None:
        self.number_inputs: set[Value] = set()
        self._outcomes: dict[Value, Any] = {}  # of decisions computed alike: one guard for all
        self.number_guards: list[NumberGuard] = []

    def decided_by_numbers(self, value: Value) -> Any:
        """The outcome of a decision on nothing but such numbers, which is noted as a guard; None: it is another one."""
        if value.type.dtype is not bool_ or not self.number_inputs:
            return None
        alike = self._first_alike(value)
        if alike in self._outcomes:
            self.asked[value] = self._outcomes[alike]
            return self.asked[value]
        behind = self._behind(value)
        if behind is None:
            return None
        outcome = self.asked[value] = self._outcomes[alike] = np.array(self.evaluate(value))
        inputs, nodes = behind
        fixed = [node for node in nodes if not node.inputs and not symbols_of(node.op)]
        constants = {node.outputs[0]: self.evaluate(node.outputs[0]) for node in fixed}
        rest = tuple([node for node in nodes if node.outputs[0] not in constants])
        self.number_guards.append(NumberGuard(value, inputs, rest, constants, bool(outcome), here()))
        return outcome

    def is_of_numbers(self, value: Value) -> bool:
        """Whether a value is such a number, or a few ops make it of such."""
        return bool(self.number_inputs) and self._behind(value) is not None

    def _behind(self, value: Value) -> tuple[tuple[Value, ...], tuple[Node, ...]] | None:
        """(inputs, ops in order) that a value is computed from, if these are numbers, sizes and a few ops on them."""
        self._index()
        inputs: dict[Value, None] = {}
        nodes: dict[Node, None] = {}

        def visit(current: Value) -> bool:
            node = self.definition.get(current)
            if node is None:
                inputs[current] = None
                return current in self.number_inputs
            if node in nodes:
                return True
            is_simple = _is_simple(node) and symbols_of(node.op).isdisjoint(self.counted)
            if not is_simple or len(nodes) >= LONGEST or not all(map(visit, node.inputs)):
                return False
            nodes[node] = None
            return True

        found = visit(value) and bool(inputs)
        return (tuple(inputs), tuple(nodes)) if found else None


def _is_simple(node: Node) -> bool:
    is_scalar = all(v.type.ndim == 0 for v in (*node.inputs, *node.outputs))
    is_constant = not node.inputs and not node.op.is_random
    is_known = isinstance(node.op, Elementwise) or node.op.is_view or is_constant
    return is_scalar and is_known and not (node.op.has_effect or node.op.is_random)


def broken_number(capture: Capture, leaves: Sequence[Any]) -> NumberGuard | bool:
    """Which decision on numbers goes another way for a call's arguments; True: they are others, False: none."""
    guards, arguments = capture.trace.number_guards, capture.arguments
    if not guards:
        return False
    if len(leaves) != len(arguments):
        return True
    numbers: dict[Value, Any] = {}
    for leaf, given in zip(arguments, leaves, strict=True):
        if leaf.kind == "number":
            assert leaf.value is not None and leaf.number_class is not None and leaf.cell is not None
            if not leaf.number_class.takes(given):
                return True
            numbers[leaf.value] = np.array(given, leaf.cell.dtype)
    sizes = _sizes_of(capture, leaves) if any(guard.has_sizes for guard in guards) else {}
    return True if sizes is None else quietly(_first_broken, guards, numbers, sizes)


def _sizes_of(capture: Capture, leaves: Sequence[Any]) -> dict[str, int] | None:
    """The open sizes of a call; None where it has arguments of another rank."""
    pairs = zip(capture.arguments, leaves, strict=True)
    shapes = [(leaf.value.type.shape, getattr(given, "shape", ())) for leaf, given in pairs if leaf.value is not None]
    return capture.sizes_of(leaves) if all(len(a) == len(b) for a, b in shapes) else None


def _first_broken(
    guards: Sequence[NumberGuard], numbers: Mapping[Value, Any], sizes: Mapping[str, int]
) -> NumberGuard | bool:
    return next((guard for guard in guards if not guard.holds(numbers, sizes)), False)
