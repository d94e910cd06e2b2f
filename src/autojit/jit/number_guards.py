"""What Python decides on numbers among the arguments alone (``if i % 4 == 3``): guards of a capture by their outcome.

So are decisions on numbers that places hold, or that are drawn: they are arguments of the step, too.

They are computed from a call's arguments before its step is chosen, so the step is not split there: it stays one native
call behind a look of a few microseconds.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.dtypes import bool_
from autojit.core.records import record
from autojit.core.source import SourceLocation, here
from autojit.ir.concrete import concrete, symbols_of
from autojit.ir.graph import Graph, Node, Value
from autojit.ops.base import Elementwise
from autojit.ops.numpy_program import Program
from autojit.tensor.state import quietly
from autojit.tensor.tensor import Tensor

if TYPE_CHECKING:
    from autojit.jit.arguments import ArgumentLeaf
    from autojit.jit.step import Capture

Decided = dict[tuple[Any, ...], bool]

LONGEST = 32  # ops of one decision that are computed before the step; longer ones split it


@record(eq=False)
class NumberGuard:
    """One decision: the inputs that it depends on, the ops that compute it, and how it went.

    ``has_sizes``: whether it depends on open sizes, too; ``form``: equal for decisions computed alike of their inputs.
    """

    value: Value
    inputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[Value, Any]
    outcome: bool
    source: SourceLocation
    has_sizes: bool
    form: Form

    def __str__(self) -> str:
        return f"what Python decides on numbers at {self.source}: {self.outcome} -> {not self.outcome}"

    def goes(self, answers: Decided, places: tuple[Any, ...], given: Sequence[tuple[ArgumentLeaf, Any]]) -> bool | None:
        """Whether it goes the same way for what a call gives for its inputs; None: that is of another kind.

        ``answers``: of the call, which are kept by form and by the ``places`` of the inputs.
        """
        found = answers.get((self.form, places))
        if found is None:
            numbers = [number_in(leaf, value) for leaf, value in given]
            if any(number is None for number in numbers):
                return None
            found = answers[self.form, places] = self._by_program(numbers)
        return found is self.outcome

    def _by_program(self, numbers: Sequence[Any]) -> bool:
        """How it goes without open sizes: by one function for all decisions of its form."""
        run = self.form.run
        if run is None:
            inputs = (*self.inputs, *self.constants)
            run = self.form.run = Program(Graph(inputs, self.nodes, (self.value,))).run
        return bool(quietly(run, *numbers, *self.constants.values())[0])

    def decided(self, numbers: Mapping[Value, Any], sizes: Mapping[str, int]) -> bool:
        """How it goes for these numbers, arrays of no dimension, and open sizes of arguments."""
        known = {**self.constants, **numbers}
        for node in self.nodes:
            op: Any = concrete(node.op, sizes) if self.has_sizes and symbols_of(node.op) else node.op
            known[node.outputs[0]] = op.eager(*[known[v] for v in node.inputs])
        return bool(known[self.value])


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
        self.number_places: list[tuple[int, ...]] | None = None  # of each: which arguments its inputs are

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
        has_sizes = any(symbols_of(node.op) for node in rest)
        form = _form_of(value, inputs, rest, constants)
        self.number_guards.append(NumberGuard(value, inputs, rest, constants, bool(outcome), here(), has_sizes, form))
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


class Form:
    """How decisions are computed of their inputs; there is one object for all that are computed alike."""

    run: Callable[..., list[Any]] | None = None


_FORMS: weakref.WeakValueDictionary[tuple[Any, ...], Form] = weakref.WeakValueDictionary()


def _form_of(value: Value, inputs: Sequence[Value], nodes: Sequence[Node], constants: Mapping[Value, Any]) -> Form:
    names: dict[Value, Any] = {v: (a.dtype.str, a.tobytes()) for v, a in constants.items()}
    names.update((v, k) for k, v in enumerate((*inputs, *(node.outputs[0] for node in nodes))))
    key = (names[value], *((node.op, *(names[v] for v in node.inputs)) for node in nodes))
    made = Form()
    return _FORMS.setdefault(key, made)


def number_in(leaf: ArgumentLeaf, given: Any) -> Any:
    """What is given for a number that a step takes, as an array of no dimension; None: no number of its kind."""
    if leaf.number_class is None:  # of a place, or drawn
        is_one = isinstance(given, Tensor) and given._array is not None and not given._array.ndim
        return given._array if is_one else None
    assert leaf.cell is not None
    return np.array(given, leaf.cell.dtype) if leaf.number_class.takes(given) else None


def broken_number(capture: Capture, leaves: Sequence[Any], answers: Decided | None = None) -> NumberGuard | bool:
    """Which decision on numbers goes another way for a call's arguments; True: they are others, False: none.

    ``answers``: of the call, of captures of one signature.
    """
    trace, arguments = capture.trace, capture.arguments
    if not trace.number_guards:
        return False
    if len(leaves) != len(arguments):
        return True
    if trace.number_places is None:
        at = {leaf.value: k for k, leaf in enumerate(arguments) if leaf.value is not None}
        trace.number_places = [tuple([at[v] for v in guard.inputs]) for guard in trace.number_guards]
    answers = {} if answers is None else answers
    for guard, places in zip(trace.number_guards, trace.number_places, strict=True):
        if guard.has_sizes:
            numbers = [number_in(arguments[k], leaves[k]) for k in places]
            sizes = _sizes_of(capture, leaves)
            if sizes is None or any(number is None for number in numbers):
                return True
            known = dict(zip(guard.inputs, numbers, strict=True))
            goes: bool | None = quietly(guard.decided, known, sizes) is guard.outcome
        else:
            goes = guard.goes(answers, places, [(arguments[k], leaves[k]) for k in places])
        if not goes:
            return True if goes is None else guard
    return False


def _sizes_of(capture: Capture, leaves: Sequence[Any]) -> dict[str, int] | None:
    """The open sizes of a call; None where it has arguments of another rank."""
    pairs = zip(capture.arguments, leaves, strict=True)
    shapes = [(leaf.value.type.shape, getattr(given, "shape", ())) for leaf, given in pairs if leaf.value is not None]
    return capture.sizes_of(leaves) if all(len(a) == len(b) for a, b in shapes) else None
