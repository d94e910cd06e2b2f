"""Folds of few long rows in two steps: of parts of each row, then of what the parts gave.

A kernel gives a row to one block of threads, which alone can hold it; where a machine has more processors than there
are rows, the others would have nothing to do. What is folded along the last axis is meant: of columns, and of all
elements, kernels fold parts by themselves.

What is folded is computed in the form of parts, too, as far as it is elementwise, so that it can share a kernel with
the fold; others read it through a view.
"""

from __future__ import annotations

from math import prod

from autojit.core.machine import FewRows, Machine
from autojit.core.sizes import is_symbolic
from autojit.ir.builder import GraphBuilder
from autojit.ir.graph import Graph, Node, Value, renamed
from autojit.ir.op import Op
from autojit.ops.base import Elementwise
from autojit.ops.elementwise_arithmetic import Cast
from autojit.ops.reductions import Fold
from autojit.ops.shape import BroadcastTo, Reshape

_Cut = tuple[int, int]
"""An axis, and into how many parts it is split."""


def split_folds(graph: Graph, machine: Machine) -> Graph:
    """Fold an axis part by part where rows are fewer than processors and longer than a block holds.

    Preserves results to rounding (sums are added up in another order, in the same dtype) and source locations. Sizes
    that are open, axes that no number of parts divides, and positions of extremes stay as they are. Time O(nodes).
    """
    few = machine.few_rows
    if few is None:
        return graph
    cuts = {node: cut for node in graph.nodes if (cut := _cut_of(node, machine.kind, few)) is not None}
    return _Splitter(graph, cuts).run() if cuts else graph


def _cut_of(node: Node, kind: str, few: FewRows) -> _Cut | None:
    """The axis to be split and into how many parts; None: the node stays."""
    op = node.op
    if not isinstance(op, Fold) or op.is_pair or not op.axes:
        return None
    x = node.inputs[0].type
    if x.device.type != kind or any(map(is_symbolic, x.shape)) or x.ndim - 1 not in op.axes:
        return None
    rows, length = node.outputs[0].type.size, prod(x.shape[axis] for axis in op.axes)
    if not 1 < rows < few.rows or length <= few.elements:
        return None
    ways = [(axis, parts) for axis in op.axes for parts in _divisors(x.shape[axis]) if length // parts >= few.least]
    busy = [way for way in ways if rows * way[1] >= 2 * few.rows]
    if busy:
        return min(busy, key=lambda way: way[1])
    return max(ways, key=lambda way: way[1], default=None)


def _divisors(extent: int) -> list[int]:
    """Those above 1."""
    small = [d for d in range(1, int(extent**0.5) + 1) if extent % d == 0]
    return sorted({d for one in small for d in (one, extent // one)} - {1})


class _Splitter:
    """Rebuilds a graph some of whose nodes are split."""

    def __init__(self, graph: Graph, cuts: dict[Node, _Cut]) -> None:
        self.graph, self.cuts = graph, cuts
        self.made_by = graph.definitions()
        self.builder = GraphBuilder(graph.inputs)
        self.names: dict[Value, Value] = {}
        self.form: dict[Value, _Cut] = {}  # of what is computed in parts
        self.in_parts: dict[tuple[Value, int, _Cut], Value] = {}  # by the axes there were, too
        for node, cut in cuts.items():
            self._choose_forms(node.inputs[0], cut)

    def _choose_forms(self, x: Value, cut: _Cut) -> None:
        """What a fold's operand is computed from element by element is computed in its form, if in none yet."""
        waiting = [x]
        while waiting:
            value = waiting.pop()
            node = self.made_by.get(value)
            if value in self.form or node is None or node.is_kept or len(node.outputs) > 1:
                continue
            if value.type.shape == x.type.shape and isinstance(node.op, Elementwise | BroadcastTo):
                self.form[value] = cut
                waiting += node.inputs

    def run(self) -> Graph:
        for node in self.graph.nodes:
            self.builder.source = node.source
            value = node.outputs[0] if node.outputs else None
            if node in self.cuts:
                self.names[node.outputs[0]] = self._in_two_steps(node, self.cuts[node])
            elif value in self.form:
                self._compute_in_parts(node, value, self.form[value])
            else:
                self.builder.nodes.append(node.reading(self.names))
        return self.builder.finish(renamed(self.graph.outputs, self.names))

    def _apply(self, op: Op, *operands: Value) -> Value:
        return self.builder.apply(op, operands)[0]

    def _in_two_steps(self, node: Node, cut: _Cut) -> Value:
        """The fold of each part, then of the parts; in the dtype that the op folds in, rounded once."""
        op, (x,), (result,), (axis, _) = node.op, node.inputs, node.outputs, cut
        assert isinstance(op, Fold)
        inside = op.accumulator(x.type.dtype)
        found = self._parts_of(x, x.type.shape, cut)
        found = found if inside is x.type.dtype else self._apply(Cast(inside), found)
        found = self._apply(type(op)(tuple([a + (a >= axis) for a in op.axes])), found)  # the axis of parts is kept
        found = self._apply(type(op)((sum(a not in op.axes for a in range(axis)),)), found)
        return found if inside is result.type.dtype else self._apply(Cast(result.type.dtype), found)

    def _compute_in_parts(self, node: Node, value: Value, cut: _Cut) -> None:
        """An elementwise node on operands in the form of parts; others read its result as a view."""
        shape = value.type.shape
        op = BroadcastTo(_cut_shape(shape, cut)) if isinstance(node.op, BroadcastTo) else node.op
        found = self._apply(op, *(self._parts_of(x, shape, cut) for x in node.inputs))
        self.in_parts[value, len(shape), cut] = found
        self.names[value] = self._apply(Reshape(shape), found)

    def _parts_of(self, x: Value, shape: tuple[int, ...], cut: _Cut) -> Value:
        """An operand of what has this shape in the form of parts: it is as large, or repeated along some axes."""
        found = self.in_parts.get((x, len(shape), cut))
        if found is None:
            found = self.names.get(x, x)
            if x.type.ndim:
                aligned = (*[1] * (len(shape) - x.type.ndim), *x.type.shape)
                found = self._apply(Reshape(_cut_shape(aligned, cut)), found)
            self.in_parts[x, len(shape), cut] = found
        return found


def _cut_shape(shape: tuple[int, ...], cut: _Cut) -> tuple[int, ...]:
    """With the axis in two, of extents 1 where the shape repeats along it."""
    axis, parts = cut
    extents = (1, 1) if shape[axis] == 1 else (parts, shape[axis] // parts)
    return (*shape[:axis], *extents, *shape[axis + 1 :])
