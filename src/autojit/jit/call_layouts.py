"""The memory layout of a compiled call's results: as eager mode would have laid them out, with no pass of their own.

What fills its memory, in any order of the axes, native code writes in that order. A result with gaps or shared elements
is a view in eager mode: native code makes what it is a view of, or it is an operand, and the view is taken from that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from autojit.core.device_array import layout_in_memory, on_layout
from autojit.core.source import UNKNOWN
from autojit.dispatch.dispatch import apply
from autojit.ir.concrete import concrete
from autojit.ir.graph import Graph, Node, Value
from autojit.ir.op import Op
from autojit.jit.trace import Trace
from autojit.ops.reinterpret import AsStrided
from autojit.ops.shape import Permute, Reshape
from autojit.tensor.memory_orders import order_of, places_of, reshaped_in_place


class Shown(NamedTuple):
    """One result: views taken of what native code makes, or of an operand."""

    place: int  # among the results of native code; of an operand: its number
    is_operand: bool
    axes: tuple[int, ...]  # that put the axes of what native code made in the function's order
    chain: tuple[Op, ...]


class Layouts(NamedTuple):
    """The graph that native code computes, and how the results are shown from it."""

    graph: Graph
    shown: tuple[Shown, ...]

    def show(self, made: Sequence[Any], operands: Sequence[Any], sizes: Mapping[str, int]) -> list[Any]:
        """The results, from what native code made and the operands; ``sizes`` are the values of open sizes."""
        found = []
        for place, is_operand, axes, chain in self.shown:
            array = operands[place] if is_operand else made[place]
            layout = layout_in_memory(array)[...]
            if axes:
                layout = layout.transpose(axes)
            for op in concrete(chain, sizes) if sizes else chain:
                layout = op.eager(layout)
            found.append(on_layout(array, layout))
        return found

    def seen(self, made: Sequence[Any], operands: Sequence[Any], sizes: Mapping[str, int]) -> list[Any]:
        """The same of tensors, by views that are recorded."""
        found = []
        for place, is_operand, axes, chain in self.shown:
            t = operands[place] if is_operand else made[place]
            for op in (*([Permute(axes)] if axes else []), *(concrete(chain, sizes) if sizes else chain)):
                t = apply(op, t)
            found.append(t)
        return found


Laid = tuple[Value, tuple[int, ...], tuple[Op, ...] | None]
"""A result: what it is a view of, the axes of that from the outermost in memory, the views; None: memory of its own."""


def layouts_of(trace: Trace, graph: Graph) -> Layouts | None:
    """How the results of a graph of the active trace are laid out; None: all in row-major order."""
    found: list[Laid] = []
    for output in graph.outputs:
        value, chain = _behind_views(trace, graph, output)
        order = _order(trace, value)  # the axes from the outermost; what no op lays out counts as in row-major order
        found.append((value, () if order is None or order[:1] == ("strides",) else order, chain))
    return _shown_from(graph, found)


def in_orders(graph: Graph, orders: Sequence[tuple[int, ...] | None]) -> Layouts | None:
    """The results with their axes in these orders in memory; None: in row-major order."""
    return _shown_from(graph, [(v, order or (), None) for v, order in zip(graph.outputs, orders, strict=True)])


def _shown_from(graph: Graph, results: Sequence[Laid]) -> Layouts | None:
    if not any(axes or chain is not None for _, axes, chain in results):
        return None
    shown: list[Shown] = []
    bases: dict[Value, int] = {}
    nodes = list(graph.nodes)
    outputs: list[Value] = []
    for value, axes, chain in results:
        if chain is not None and value in graph.inputs:
            shown.append(Shown(graph.inputs.index(value), True, (), chain))
            continue
        place = None if chain is None else bases.get(value)
        if place is None:
            place = len(outputs)
            outputs.append(_permuted(nodes, value, axes) if axes else value)
            if chain is not None:
                bases[value] = place
        shown.append(Shown(place, False, places_of(axes) if axes else (), chain or ()))
    return Layouts(Graph(graph.inputs, tuple(nodes), tuple(outputs)), tuple(shown))


def _behind_views(trace: Trace, graph: Graph, value: Value) -> tuple[Value, tuple[Op, ...] | None]:
    """What a result with gaps or shared elements is a view of, and the views; None where it has memory of its own."""
    order = _order(trace, value)
    if order is None or order[:1] != ("strides",):
        return value, None
    chain: list[Op] = []
    while value not in graph.inputs:
        node = trace.definition.get(value)
        if node is None or not node.op.is_view or type(node.op) is AsStrided:
            break
        operand = trace.order_of(node.inputs[0])
        if type(node.op) is Reshape and operand is not None and reshaped_in_place(operand, value.type.shape) is None:
            break
        chain.insert(0, node.op)
        (value,) = node.inputs
    return value, tuple(chain) if chain or value in graph.inputs else None


def _order(trace: Trace, value: Value) -> Any:
    layout = trace.order_of(value)
    return None if layout is None else order_of(layout)


def _permuted(nodes: list[Node], value: Value, order: tuple[int, ...]) -> Value:
    op = Permute(order)
    made = Value(op.result_type(value.type))
    nodes.append(Node(op, (value,), (made,), UNKNOWN))
    return made
