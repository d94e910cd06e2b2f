"""Products of the rows of one whole with one matrix are one product; products that are stacked multiply a stack.

A recurrent net that is written out multiplies its input a step at a time, though all of the input is there before
the first step, and gives the input its gradient a step at a time, though nothing waits for it. One product has rows
enough for tiles and threads, and reads the matrix once.
"""

from __future__ import annotations

from dataclasses import replace as changed
from math import prod

from autojit.core.machine import Machine
from autojit.core.records import record
from autojit.ir.concrete import is_open
from autojit.ir.graph import Graph, Node, Value, replace
from autojit.ir.op import Op
from autojit.ops.joining import Concatenate
from autojit.ops.matmul import Matmul
from autojit.ops.shape import Reshape, Slice
from autojit.passes.stacks import reshaped

# No measurement of these is recorded; an LSTM's products of 32 rows are far from all of them.
FEWEST = 4  # products
MOST_ROWS = 256  # of one: more fill tiles by themselves, and may be a user's way to need less memory at a time
LEAST_COLUMNS = 16  # of a product whose rows must be copied to be stacked


def join_rows(graph: Graph, machine: Machine) -> Graph:
    """``x[0] @ w``, ``x[1] @ w``, ... become parts of ``x @ w``, and ``stack([a @ w, b @ w])`` a stack times ``w``.

    Preserves results (every element is the same sum) and source locations. Sizes that are open stay as they are. Time
    O(nodes).
    """
    graph = _parts_of_one(graph, machine)
    return _product_of_stack(graph, machine)


def _is_joined(node: Node, machine: Machine) -> bool:
    """Whether a node is a product of a few rows that tiles would multiply."""
    if not isinstance(node.op, Matmul) or node.is_kept or node.outputs[0].type.ndim != 2:
        return False
    (product,) = node.outputs
    shapes = (*node.inputs[0].type.shape, *node.inputs[1].type.shape)
    if product.type.dtype not in machine.product_dtypes or is_open(shapes):
        return False
    return 1 <= product.type.shape[0] <= MOST_ROWS and node.inputs[1].type.ndim == 2


# -- products of parts


@record
class _Part:
    """A product whose first operand is a slice of a whole, along one axis, as rows."""

    node: Node
    slice: Slice
    axis: int

    @property
    def span(self) -> tuple[int, int]:
        return self.slice.starts[self.axis], self.slice.stops[self.axis]


def _parts_of_one(graph: Graph, machine: Machine) -> Graph:
    made_by = graph.definitions()
    found: dict[tuple[Value, Value, int, Op], list[_Part]] = {}
    for node in graph.nodes:
        if _is_joined(node, machine):
            place = _part(node, made_by)
            if place is not None:
                whole, part = place
                found.setdefault((whole, node.inputs[1], part.axis, node.op), []).append(part)
    instead: dict[Value, list[Node]] = {}
    for (whole, matrix, _, _), parts in found.items():
        if len(parts) >= FEWEST and _cover(whole, parts):
            instead.update(_joined_parts(whole, matrix, parts))
    return _with(graph, instead)


def _part(node: Node, made_by: dict[Value, Node]) -> tuple[Value, _Part] | None:
    """The whole of which a product multiplies a part; all axes but the last one are rows."""
    operand = node.inputs[0]
    made = made_by.get(operand)
    if made is not None and isinstance(made.op, Reshape):
        made = made_by.get(made.inputs[0])
    if made is None or not isinstance(made.op, Slice):
        return None
    (whole,), op = made.inputs, made.op
    shape = whole.type.shape
    if len(shape) < 2 or is_open((*shape, *op.starts, *op.stops)) or any(step != 1 for step in op.steps):
        return None
    cut = [axis for axis, n in enumerate(shape) if (op.starts[axis], op.stops[axis]) != (0, n)]
    if len(cut) != 1 or cut[0] == len(shape) - 1:
        return None
    if operand.type.shape != (prod(op.extents[:-1]), shape[-1]):
        return None
    return whole, _Part(node, op, cut[0])


def _cover(whole: Value, parts: list[_Part]) -> bool:
    """Whether the parts are apart and all of the whole together, so that nothing is multiplied in vain."""
    reached = 0
    for start, stop in sorted({part.span for part in parts}):
        if start != reached:
            return False
        reached = stop
    return reached == whole.type.shape[parts[0].axis]


def _joined_parts(whole: Value, matrix: Value, parts: list[_Part]) -> dict[Value, list[Node]]:
    """The nodes that take the place of each product."""
    first = parts[0].node
    lead, columns = whole.type.shape[:-1], matrix.type.shape[1]
    nodes: list[Node] = []
    rows = reshaped(whole, (prod(lead), whole.type.shape[-1]), first, nodes)
    product = Value(first.outputs[0].type.with_shape((prod(lead), columns)))
    nodes.append(Node(first.op, (rows, matrix), (product,), first.source))
    joined = reshaped(product, (*lead, columns), first, nodes)
    instead: dict[Value, list[Node]] = {}
    for part in parts:
        op = changed(part.slice, stops=(*part.slice.stops[:-1], columns))
        (output,) = part.node.outputs
        if op.extents == output.type.shape:
            nodes.append(Node(op, (joined,), (output,), part.node.source))
        else:
            piece = Value(output.type.with_shape(op.extents))
            nodes.append(Node(op, (joined,), (piece,), part.node.source))
            nodes.append(Node(Reshape(output.type.shape), (piece,), (output,), part.node.source))
        instead[output] = nodes
        nodes = []
    return instead


# -- products that are stacked


def _product_of_stack(graph: Graph, machine: Machine) -> Graph:
    made_by = graph.definitions()
    uses = graph.use_counts()
    instead: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        if isinstance(node.op, Concatenate) and len(node.inputs) >= FEWEST and not node.is_kept:
            products = [_stacked(value, node, made_by, uses) for value in node.inputs]
            alike = [p for p in products if p is not None and _is_joined(p, machine)]
            if len(alike) == len(products) and _multiply_alike(alike):
                instead[node.outputs[0]] = _joined_stack(node, alike)
    return _with(graph, instead)


def _stacked(value: Value, stack: Node, made_by: dict[Value, Node], uses: dict[Value, int]) -> Node | None:
    """The product that is one part of a stack and nothing else."""
    made = made_by.get(value)
    if made is not None and isinstance(made.op, Reshape) and uses[value] == 1:
        value = made.inputs[0]
        made = made_by.get(value)
    if made is None or uses[value] != 1 or not isinstance(made.op, Matmul) or value.type.ndim != 2:
        return None
    whole = stack.outputs[0].type.shape
    assert isinstance(stack.op, Concatenate)
    is_rows = value.type.shape[-1:] == whole[-1:] and stack.op.axis < len(whole) - 1
    return made if is_rows else None


def _multiply_alike(products: list[Node]) -> bool:
    """Whether products have one matrix in common, by which multiplying outweighs copying their rows."""
    first = products[0]
    matrix = first.inputs[1]
    return matrix.type.shape[1] >= LEAST_COLUMNS and all(
        p.inputs[1] is matrix and p.op == first.op and p.inputs[0].type.dtype is first.inputs[0].type.dtype
        for p in products
    )


def _joined_stack(stack: Node, products: list[Node]) -> list[Node]:
    first = products[0]
    (whole,) = stack.outputs
    matrix = first.inputs[1]
    depth = matrix.type.shape[0]
    nodes: list[Node] = []
    parts = [
        reshaped(p.inputs[0], (*part.type.shape[:-1], depth), p, nodes)
        for part, p in zip(stack.inputs, products, strict=True)
    ]
    joined = Value(first.inputs[0].type.with_shape((*whole.type.shape[:-1], depth)))
    nodes.append(Node(stack.op, tuple(parts), (joined,), stack.source))
    rows = reshaped(joined, (prod(whole.type.shape[:-1]), depth), stack, nodes)
    product = Value(whole.type.with_shape((rows.type.shape[0], whole.type.shape[-1])))
    outputs = (whole,) if product.type == whole.type else (product,)
    nodes.append(Node(first.op, (rows, matrix), outputs, first.source))
    if outputs != (whole,):
        nodes.append(Node(Reshape(whole.type.shape), outputs, (whole,), stack.source))
    return nodes


def _with(graph: Graph, instead: dict[Value, list[Node]]) -> Graph:
    """The graph with other nodes for some of its values."""
    if not instead:
        return graph
    return replace(graph, nodes=tuple([new for node in graph.nodes for new in instead.get(node.outputs[0], (node,))]))
