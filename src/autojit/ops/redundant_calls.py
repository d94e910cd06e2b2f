"""What of a graph's ops NumPy need not be asked for when it computes the graph call by call.

A call costs NumPy 0.3 to 2 us whatever it does to a small array, so: what was computed already is not computed again,
reshapes of reshapes are one, and ufuncs broadcast their operands themselves. Preserves results bit for bit.
"""

from __future__ import annotations

import numpy as np

from autojit.ir.graph import Graph, Node, Value, renamed
from autojit.ir.op import Op
from autojit.ops.elementwise_base import Pointwise
from autojit.ops.reductions import Sum
from autojit.ops.shape import BroadcastTo, Reshape

__all__ = ["is_ufunc", "kept_sums", "without_redundant_calls"]


def is_ufunc(op: Op) -> bool:
    """Whether a ufunc of NumPy's computes the op."""
    computes = isinstance(op, Pointwise) and type(op).eager is Pointwise.eager and not op.is_view
    return computes and isinstance(getattr(type(op), "ufunc", None), np.ufunc)


def without_redundant_calls(graph: Graph) -> Graph:
    """The graph without them. Time O(nodes)."""
    names: dict[Value, Value] = {}
    known: dict[tuple[Op, tuple[Value, ...]], tuple[Value, ...]] = {}
    made_by: dict[Value, Node] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        node = node.reading(names)
        if isinstance(node.op, Reshape):
            node = _from_source(node, made_by)
            (x,), (y,) = node.inputs, node.outputs
            if x.type.shape == y.type.shape:
                names[y] = x
                continue
        if is_ufunc(node.op):
            node = _on_narrow_operands(node, made_by)
        is_alone = node.op.has_effect or node.op.calls_out
        before = None if is_alone else known.setdefault((node.op, node.inputs), node.outputs)
        if before is not None and before is not node.outputs:
            names.update(zip(node.outputs, before, strict=True))
            continue
        made_by.update((value, node) for value in node.outputs)
        nodes.append(node)
    return Graph(graph.inputs, tuple(nodes), renamed(graph.outputs, names))


def _from_source(node: Node, made_by: dict[Value, Node]) -> Node:
    """A reshape of what its operand is a reshape of."""
    maker = made_by.get(node.inputs[0])
    if maker is None or not isinstance(maker.op, Reshape):
        return node
    return Node(node.op, maker.inputs, node.outputs, node.source)


def _on_narrow_operands(node: Node, made_by: dict[Value, Node]) -> Node:
    """A ufunc's node on what its operands were broadcast from, as far as the result has its shape from others."""
    inputs = list(node.inputs)
    shape = node.outputs[0].type.shape
    for k, x in enumerate(inputs):
        maker = made_by.get(x)
        if maker is None or not isinstance(maker.op, BroadcastTo):
            continue
        narrow = [*inputs[:k], maker.inputs[0], *inputs[k + 1 :]]
        if any(v.type.shape == shape for v in narrow):  # then NumPy's result is laid out like that operand
            inputs = narrow
    return Node(node.op, tuple(inputs), node.outputs, node.source)


def kept_sums(graph: Graph) -> dict[Node, Node]:
    """Sums of floats which nothing reads but a reshape that puts the axes back, and that reshape."""
    readers: dict[Value, list[Node | None]] = {v: [None] for v in graph.outputs}
    for node in graph.nodes:
        for value in node.inputs:
            readers.setdefault(value, []).append(node)
    found: dict[Node, Node] = {}
    for node in graph.nodes:
        if type(node.op) is not Sum or node.inputs[0].type.dtype.numpy.char not in "fd":
            continue
        reader, *others = readers.get(node.outputs[0], [None])
        if others or reader is None or not isinstance(reader.op, Reshape):
            continue
        axes, x = node.op.axes, node.inputs[0].type
        if reader.op.shape == tuple([1 if axis in axes else n for axis, n in enumerate(x.shape)]):
            found[node] = reader
    return found
