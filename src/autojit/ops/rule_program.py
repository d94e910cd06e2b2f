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
from autojit.ir.builder import GraphBuilder
from autojit.ir.graph import Graph, Value
from autojit.ir.inline import live
from autojit.ir.op import Ndarray, Op
from autojit.ops.loop_orders import as_loop
from autojit.ops.numpy_program import Text, function_of, owner_of
from autojit.ops.redundant_calls import without_redundant_calls

__all__ = ["Place", "RuleProgram"]

_LARGE = 4096  # elements of what a source gives: more of them are made at every call, not kept


class Place(NamedTuple):
    """Where a cotangent comes from: an operand of the rule or a result of its function, and the views of it."""

    is_operand: bool
    number: int
    views: tuple[Op, ...]


class RuleProgram:
    """What a builder has recorded, as a function of arrays.

    ``reads``: the positions among the builder's inputs of the arrays that ``run`` takes; it returns a list.
    ``places``: per output given to the constructor. ``count``: of the function's results.
    """

    __slots__ = ("count", "places", "reads", "run")

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
        self.places, self.count = places, len(roots)
        self.reads = [numbers[v] for v in used]
        self.run = function_of(_RuleText(Graph(tuple(used), graph.nodes, graph.outputs)))


class _RuleText(Text):
    """The text of a rule's function: every call as dispatch makes it."""

    def __init__(self, graph: Graph) -> None:
        self._rows: set[Value] = set()  # values that are in row-major order whatever the operands are
        super().__init__(graph)

    def _is_kept(self, value: Value) -> bool:
        self._rows.add(value)
        return int(value.type.size) <= _LARGE

    def _calls(self, graph: Graph) -> list[tuple[Op, tuple[Value, ...], tuple[Value, ...]]]:
        self._keeping = set[Value]()
        return [(node.op, node.inputs, node.outputs) for node in graph.nodes]

    def _call(self, op: Op, inputs: Sequence[Value], outputs: Sequence[Value]) -> str:
        rule = _as_dispatched(op, inputs)
        if not op.is_view and op.keeps_order:
            if all([v in self._rows or v.type.ndim < 1 for v in inputs]):  # noqa: C419
                self._rows.update(outputs)
            elif op.n_outputs == 1:
                rule = _in_loop_order(rule, op)
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

    def compute(*arrays: Ndarray) -> Any:
        found = rule(*arrays)
        if type(found) is np.ndarray and found.ndim > 1 and len(arrays) > 1:
            return as_loop(found, arrays)
        return found

    return compute


def _apart(found: Ndarray, owners: set[int]) -> Ndarray:
    return found.copy() if id(owner_of(found)) in owners else found


def _row_major(found: Any) -> Ndarray:
    array: Ndarray = np.asarray(found)
    return array if array.flags.c_contiguous else array.copy()
