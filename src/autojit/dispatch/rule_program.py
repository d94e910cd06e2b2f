"""A derivative rule for operands of certain types as one function of NumPy calls: what eager backward passes run.

A rule is Python over operands: each op in it costs a tensor, a look at types and a call, 5 us around NumPy's 0.5. So a
rule that comes again and again is recorded once, and its calls are written out (`numpy_program`), as dispatch would
make them: with the same fast paths, and results laid out in memory in the same way.

Views at the end of a rule (a transpose of a product, a reshape) stay ops on tensors: who gets such a cotangent sees
whose memory it shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from autojit.core.dtypes import bfloat16
from autojit.dispatch.fast_paths import calls_of
from autojit.dispatch.kernels import LARGE
from autojit.ir.builder import GraphBuilder
from autojit.ir.graph import Graph, Value
from autojit.ir.inline import live
from autojit.ir.op import Ndarray, Op
from autojit.ops.fused import Fused
from autojit.ops.fused_arrays import FusedArrays
from autojit.ops.loop_orders import as_loop
from autojit.ops.numpy_program import Text, function_of, owner_of, program_of
from autojit.ops.redundant_calls import without_redundant_calls

__all__ = ["Place", "RuleProgram"]


class Place(NamedTuple):
    """Where a cotangent comes from: an operand of the rule or a result of its function, and the views of it."""

    is_operand: bool
    number: int
    views: tuple[Op, ...]


class RuleProgram:
    """What a builder has recorded, as a function of arrays.

    ``reads``: the positions among the builder's inputs of the arrays that ``run`` takes, which returns a list; None
    where there is nothing to compute. ``run_rows`` is the same for arrays in row-major order, which need not be asked
    how they are laid out. ``places``: per output given to the constructor.
    """

    run: Callable[..., list[Any]] | None
    run_rows: Callable[..., list[Any]] | None
    __slots__ = ("places", "reads", "run", "run_rows")

    def __init__(self, builder: GraphBuilder, outputs: Sequence[Value | None]) -> None:
        made_by = {v: node for node in builder.nodes for v in node.outputs}
        numbers = {v: number for number, v in enumerate(builder.inputs)}
        roots: dict[Value, int] = {}
        places: list[Place | None] = []
        for value in outputs:
            views: list[Op] = []
            while value in made_by and made_by[value].op.is_view:
                views.insert(0, made_by[value].op)
                (value,) = made_by[value].inputs
            if value is None:
                places.append(None)
            elif value in numbers:
                places.append(Place(True, numbers[value], tuple(views)))
            else:
                places.append(Place(False, roots.setdefault(value, len(roots)), tuple(views)))
        graph = live(Graph(tuple(builder.inputs), tuple(builder.nodes), tuple(roots)))
        graph = live(without_redundant_calls(graph))
        read = {v for node in graph.nodes for v in node.inputs}.union(graph.outputs)
        used = [v for v in graph.inputs if v in read]
        self.places = places
        self.reads = [numbers[v] for v in used]
        graph = Graph(tuple(used), graph.nodes, graph.outputs)
        self.run = self.run_rows = None
        if not roots:
            return
        text = _RuleText(graph, ())
        self.run = function_of(text)
        self.run_rows = function_of(_RuleText(graph, used)) if text.asks else self.run


class _RuleText(Text):
    """The text of a rule's function: every call as dispatch makes it."""

    def __init__(self, graph: Graph, rows: Sequence[Value]) -> None:
        self._rows = set(rows)  # values that are in row-major order
        self.asks = False  # whether a call depends on how others are laid out
        super().__init__(graph)

    def _is_kept(self, value: Value) -> bool:
        self._rows.add(value)
        return int(value.type.size) < LARGE  # larger ones are made at every call

    def _calls(self, graph: Graph) -> list[tuple[Op, tuple[Value, ...], tuple[Value, ...]]]:
        self._keeping = set[Value]()
        return [(node.op, node.inputs, node.outputs) for node in graph.nodes]

    def _call(self, op: Op, inputs: Sequence[Value], outputs: Sequence[Value]) -> str:
        program = self._program_of(op, inputs)
        if program is not None:
            self._rows.update(outputs)
            names = ", ".join(self._named(v, "v") for v in outputs)
            return f"{names}, = {self._constant(program)}({', '.join(self._names[v] for v in inputs)})"
        rule = _as_dispatched(op, inputs)
        if not op.is_view and op.keeps_order:
            if all([v in self._rows or v.type.ndim < 2 for v in inputs]):  # noqa: C419
                self._rows.update(outputs)
            elif op.n_outputs == 1 and outputs[0].type.ndim > 1 and len(inputs) > 1:
                rule = _in_loop_order(rule, op)
                self.asks = True
        call = f"{self._constant(rule)}({', '.join(self._names[v] for v in inputs)})"
        if op.n_outputs != 1:
            names = ", ".join(self._named(v, "v") for v in outputs)
            if op.keeps_order:
                return f"{names} = map(k0, {call})"
            self._rows.update(outputs)
            return f"{names} = map({self._constant(_row_major)}, {call})"
        (result,) = outputs
        name = self._named(result, "v")
        if not result.type.ndim:
            return f"{name} = k0({call})"  # a ufunc gives a number, not an array, for operands without axes
        if op.is_view or op.keeps_order:
            return f"{name} = {call}"
        self._rows.add(result)
        return f"{name} = {call}\n    if not {name}.flags.c_contiguous: {name} = {name}.copy()"

    def _program_of(self, op: Op, inputs: Sequence[Value]) -> Callable[..., Any] | None:
        """What computes a small composite, as its fast path would find out at every call."""
        if isinstance(op, FusedArrays):
            if op.is_awaited:
                return None
        elif isinstance(op, Fused):
            first = inputs[0].type.shape
            if any(v not in self._rows or v.type.shape != first for v in inputs):
                return None
        else:
            return None
        arrays = [np.broadcast_to(np.empty((), v.type.dtype.numpy), v.type.shape) for v in inputs]
        program = program_of(op, arrays)
        if program.size >= LARGE:
            return None
        return calls_of(program)

    def _returned(self, outputs: Sequence[Value]) -> list[str]:
        """Results in memory of their own: what sources gave is for all calls."""
        names = [self._names[v] for v in outputs]
        owners = self.constants[3]
        if owners:
            apart = self._constant(_apart)
            names = [f"{apart}({name}, k3)" for name in names]
        return [f"return [{', '.join(names)}]"]


def _as_dispatched(op: Op, inputs: Sequence[Value]) -> Callable[..., Any]:
    """What dispatch would call for the op on operands of these types."""
    first = inputs[0].type if inputs else None
    if op.of_pair is not None and first is not None and first.dtype is not bfloat16:
        return op.of_pair
    if op.fast is not None and first is not None and first.size >= op.fast_from:
        return op.fast
    return op.eager


def _in_loop_order(rule: Callable[..., Any], op: Op) -> Callable[..., Any]:
    """An elementwise rule whose result is laid out as the operands are."""
    if not (op.is_one_loop or op.of_pair is not None):
        return rule

    return lambda *arrays: as_loop(rule(*arrays), arrays)


def _apart(found: Ndarray, owners: set[int]) -> Ndarray:
    return found.copy() if id(owner_of(found)) in owners else found


def _row_major(found: Any) -> Ndarray:
    array: Ndarray = np.asarray(found)
    return array if array.flags.c_contiguous else array.copy()
