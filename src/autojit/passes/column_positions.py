"""Where an extreme is along an axis that is not the last: the extreme first, then the first place that has it.

A kernel counts positions of pairs along the inner loops, so that a column would be walked with its stride, one element
at a time. Two folds of columns read rows, in vectors, and share nests with others.
"""

from __future__ import annotations

from math import prod

from autojit.core.dtypes import HALVES, DType, float32, int32, int64
from autojit.core.machine import Machine
from autojit.core.sizes import is_symbolic, typical
from autojit.ir.builder import GraphBuilder
from autojit.ir.graph import Graph, Node, Value, renamed
from autojit.ops.elementwise_arithmetic import Cast, Where
from autojit.ops.elementwise_logic import BitwiseOr, Eq, Ne
from autojit.ops.reductions import Amin, Position
from autojit.ops.shape import Reshape
from autojit.ops.sources import Full, Iota


def find_column_positions(graph: Graph, machine: Machine) -> Graph:
    """Argmax and argmin of columns become an extreme and the least position of what equals it, or is NaN.

    Preserves results and source locations. Time O(nodes).
    """
    if not machine.least_columns or not any(_is_of_columns(node, machine) for node in graph.nodes):
        return graph
    builder = GraphBuilder(graph.inputs)
    names: dict[Value, Value] = {}
    for node in graph.nodes:
        builder.source = node.source
        if _is_of_columns(node, machine):
            names[node.outputs[0]] = _position(builder, node, names.get(node.inputs[0], node.inputs[0]))
        else:
            builder.nodes.append(node.reading(names))
    return builder.finish(renamed(graph.outputs, names))


def _is_of_columns(node: Node, machine: Machine) -> bool:
    """Whether a node seeks along an axis behind which as many elements as pay are side by side."""
    if not isinstance(node.op, Position):
        return False
    x, (axis,) = node.inputs[0].type, node.op.axes
    if x.device.type != machine.kind or x.dtype.kind == "bool" or not x.ndim:
        return False
    return typical(prod(x.shape[axis + 1 :])) >= machine.least_columns


def _position(builder: GraphBuilder, node: Node, x: Value) -> Value:
    """The nodes that take the place of one."""
    op = node.op
    assert isinstance(op, Position)
    (axis,), shape = op.axes, x.type.shape
    counted = _counting_dtype(shape[axis])
    if x.type.dtype in HALVES:  # folds of halves run in float32 (``expand``, which came before)
        (x,) = builder.apply(Cast(float32), [x])
    (best,) = builder.apply(op.extreme((axis,)), [x])
    (best,) = builder.apply(Reshape((*shape[:axis], 1, *shape[axis + 1 :])), [best])
    (found,) = builder.apply(Eq(), [x, best])
    if x.type.dtype.kind == "float":
        (is_nan,) = builder.apply(Ne(), [x, x])  # the extreme is NaN where there is one
        (found,) = builder.apply(BitwiseOr(), [found, is_nan])
    (places,) = builder.apply(Iota(shape, axis, counted, x.type.device), [])
    (none,) = builder.apply(Full(2 ** (8 * counted.size_bytes - 1) - 1, counted, (), x.type.device), [])
    (places,) = builder.apply(Where(), [found, places, none])
    (place,) = builder.apply(Amin((axis,)), [places])
    return place if counted is int64 else builder.apply(Cast(int64), [place])[0]


def _counting_dtype(extent: int) -> DType:
    """The narrower the more in a vector."""
    return int64 if is_symbolic(extent) or extent >= 2**31 else int32
