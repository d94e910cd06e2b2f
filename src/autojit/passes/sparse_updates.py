"""Updates of a table by a gradient that is zero but for some rows: only these rows are read and written.

The gradient of an embedding is a scatter of a few rows into zeros. It is written as a whole, because it is the
``.grad`` that users see; but a plain step of gradient descent, ``p + s * g``, changes no row of the table where ``g``
is zero.
"""

from __future__ import annotations

from typing import Any

from autojit.core.machine import Machine
from autojit.core.sizes import surely_less, typical
from autojit.ir.graph import Graph, Node, Value, replace
from autojit.ir.op import Op
from autojit.ir.result_types import result_types
from autojit.ops.elementwise_arithmetic import Add, Mul, Sub
from autojit.ops.scattering import Scattering
from autojit.ops.sources import Full

SHARE = 4
"""Rows that are a larger part of the table than one in this many are updated with the others, in one pass over it.

A pass reads table and gradient and writes the table; rows are read and written five times, at random places. With
100,000 rows of 64 and 10,240 of them looked up, the update moves a tenth of the bytes; near one in four there is little
to gain.
"""


def update_rows(graph: Graph, machine: Machine) -> Graph:
    """``p + s * g``, where ``g`` is zero but for the places that a scatter added to, writes only these places of ``p``.

    Preserves results bit for bit where ``s`` is finite, but that a -0 of ``p`` stays what it is; source locations. A
    factor that is not finite makes NaN of these places alone. Time O(nodes).
    """
    if not machine.least_sparse_bytes:
        return graph
    made_by = graph.definitions()
    inputs = set(graph.inputs)
    nodes: list[Node] = []
    for node in graph.nodes:
        found = _table_and_step(node, made_by, inputs, machine) if isinstance(node.op, Add | Sub) else None
        nodes += [node] if found is None else _rows_updated(node, *found, made_by)
    return replace(graph, nodes=tuple(nodes)) if len(nodes) != len(graph.nodes) else graph


def _table_and_step(
    node: Node, made_by: dict[Value, Node], inputs: set[Value], machine: Machine
) -> tuple[Value, Value, Node] | None:
    """The table, what is added to it, and the scatter that says where that is not zero; None: it stays a sum."""
    (result,) = node.outputs
    if result.type.device.type != machine.kind or surely_less(result.type.size_bytes, machine.least_sparse_bytes):
        return None
    pairs = (node.inputs, node.inputs[::-1]) if isinstance(node.op, Add) else (node.inputs,)
    for table, step in pairs:
        scatter = _scatter_behind(step, made_by)
        if table in inputs and table.type == result.type and scatter is not None:
            few = typical(scatter.inputs[1].type.size) * SHARE <= typical(result.type.size)
            return (table, step, scatter) if few else None
    return None


def _scatter_behind(value: Value, made_by: dict[Value, Node]) -> Node | None:
    """The scatter into zeros of which a value is a multiple, if it is one."""
    node = made_by.get(value)
    if node is None:
        return None
    if isinstance(node.op, Scattering):
        base = made_by.get(node.inputs[0])
        return node if node.op.combine == "add" and base is not None and _is_zero(base) else None
    factor = _factor(node)
    return None if factor is None else _scatter_behind(node.inputs[1 - factor], made_by)


def _factor(node: Node) -> int | None:
    """Which operand of a product is the one number that all elements of the other are multiplied by."""
    if not isinstance(node.op, Mul):
        return None
    return next((k for k in (0, 1) if node.inputs[k].type.ndim == 0 and node.inputs[1 - k].type.ndim), None)


def _is_zero(node: Node) -> bool:
    return isinstance(node.op, Full) and node.op.value == 0


def _rows_updated(node: Node, table: Value, step: Value, scatter: Node, made_by: dict[Value, Node]) -> list[Node]:
    """The update of the places of a scatter. Places that are written twice are written the same."""
    assert isinstance(scatter.op, Scattering)
    gathering, places = scatter.op.gathering(), scatter.inputs[2:]
    nodes: list[Node] = []

    def made(op: Op, *operands: Value) -> Value:
        result = Value(result_types(op, *[x.type for x in operands]))
        nodes.append(Node(op, operands, (result,), node.source))
        return result

    def rows(value: Value) -> Value:
        product = made_by.get(value)
        if value is table or product is None or product is scatter:
            return made(gathering, value, *places)
        factor = _factor(product)
        return made(product.op, *[x if k == factor else rows(x) for k, x in enumerate(product.inputs)])

    changed = made(node.op, *[rows(x) for x in node.inputs])
    op: Any = scatter.op
    written: Op = replace(op, combine="set")
    nodes.append(Node(written, (table, changed, *places), node.outputs, node.source))
    return nodes
