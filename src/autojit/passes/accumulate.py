"""Accumulation: a product added to another product is accumulated into its memory.

The gradient of a weight that is used many times (every step of a recurrent cell) is a sum of products; each sum would
read two results and write a third. Small results stay apart: bands sum those slice by slice.
"""

from __future__ import annotations

from autojit.core.machine import Machine
from autojit.core.sizes import typical
from autojit.ir.graph import Graph, Node, Value, replace
from autojit.ops.matmul import Matmul, MatmulAdd


def accumulate_products(graph: Graph, machine: Machine) -> Graph:
    """``add(p, a @ b)`` becomes ``matmul_add(a, b, p)`` where p is a product and neither has another reader.

    Preserves results to rounding (the summand enters the accumulation first) and source locations. Time O(nodes).
    """
    made_by = graph.definitions()
    readers = graph.use_counts()
    products: set[Value] = set()
    nodes: list[Node] = []
    for node in graph.nodes:
        changed = _accumulated(node, made_by, readers, products, machine) if node.op.name == "add" else node
        if isinstance(changed.op, Matmul | MatmulAdd):
            products.update(changed.outputs)
        nodes.append(changed)
    return replace(graph, nodes=tuple(nodes))


def _accumulated(
    node: Node, made_by: dict[Value, Node], readers: dict[Value, int], products: set[Value], machine: Machine
) -> Node:
    (output,) = node.outputs
    is_small = typical(output.type.size_bytes) <= machine.accumulated_bytes
    if is_small or output.type.dtype not in machine.product_dtypes:
        return node
    for total, product in (node.inputs, reversed(node.inputs)):
        source = made_by.get(product)
        if source is None or not isinstance(source.op, Matmul) or total is product or total not in products:
            continue
        if total.type == product.type == output.type and readers[total] == readers[product] == 1:
            return Node(MatmulAdd(), (*source.inputs, total), node.outputs, node.source)
    return node
