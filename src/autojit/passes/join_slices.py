"""Slices of a whole that were padded with zeros and added up are joined: the gradient of a tensor read piece by piece.

A loop over ``x[t]`` gives a gradient of as many terms as there are steps, each as large as ``x`` and zero but for one
step. Adding them reads and writes ``x`` as a whole again and again.
"""

from __future__ import annotations

from itertools import pairwise

from autojit.core.sizes import is_symbolic
from autojit.ir.graph import Graph, Node, Value, replace
from autojit.ops.joining import Concatenate
from autojit.ops.shape import Pad
from autojit.ops.sources import Full
from autojit.passes.sums import added, sums

Piece = tuple[int, int, Value]  # where it begins and ends along the axis, what it holds


def join_slices(graph: Graph) -> Graph:
    """A sum of paddings with zeros, along one axis and apart from each other, becomes a concatenation.

    Preserves results to rounding (other terms of the sum are added first, a negative zero keeps its sign) and source
    locations. Time O(nodes + terms log terms).
    """
    if not any(isinstance(node.op, Pad) for node in graph.nodes):
        return graph
    made_by = graph.definitions()
    joined: dict[Value, list[Node]] = {}
    for node, terms in sums(graph):
        found = _joined(node, terms, made_by)
        if found is not None:
            joined[node.outputs[0]] = found
    if not joined:
        return graph
    nodes = [new for node in graph.nodes for new in joined.get(node.outputs[0], (node,))]
    return replace(graph, nodes=tuple(nodes))


def _joined(node: Node, terms: list[Value], made_by: dict[Value, Node]) -> list[Node] | None:
    """The nodes that take the place of a sum, or None when it stays."""
    axes: dict[int, list[Piece]] = {}
    rest: list[Value] = []
    for term in terms:
        place = _place(made_by.get(term))
        if place is None:
            rest.append(term)
        else:
            axes.setdefault(place[0], []).append(place[1])
    if len(axes) != 1:
        return None
    ((axis, pieces),) = axes.items()
    pieces.sort(key=lambda piece: piece[:2])
    if len(pieces) < 2 or any(before[1] > after[0] for before, after in pairwise(pieces)):
        return None
    whole = node.outputs[0]
    nodes, parts = _with_gaps(pieces, whole, axis, node)
    outputs = (Value(whole.type),) if rest else node.outputs
    nodes.append(Node(Concatenate(axis), tuple(parts), outputs, node.source))
    return [*nodes, *added([*rest, *outputs], node.outputs, node)] if rest else nodes


def _place(node: Node | None) -> tuple[int, Piece] | None:
    """The axis that a node pads with zeros and the piece it pads; None when it does something else."""
    if node is None or not isinstance(node.op, Pad) or node.op.value != 0 or any(node.op.interior):
        return None
    (x,) = node.inputs
    widths = (*node.op.low, *node.op.high)
    padded = [axis for axis, pair in enumerate(zip(node.op.low, node.op.high, strict=True)) if pair != (0, 0)]
    if len(padded) != 1 or any(map(is_symbolic, (*widths, x.type.shape[padded[0]]))):
        return None
    (axis,) = padded
    start = node.op.low[axis]
    return axis, (start, start + x.type.shape[axis], x)


def _with_gaps(pieces: list[Piece], whole: Value, axis: int, node: Node) -> tuple[list[Node], list[Value]]:
    """The parts of the whole in order, and the nodes of the zeros between them."""
    nodes: list[Node] = []
    parts: list[Value] = []
    reached = 0
    for start, stop, value in [*pieces, (whole.type.shape[axis], whole.type.shape[axis], None)]:
        if start > reached:
            shape = tuple(start - reached if a == axis else n for a, n in enumerate(whole.type.shape))
            zeros = Value(whole.type.with_shape(shape))
            nodes.append(Node(Full(0, whole.type.dtype, shape, whole.type.device), (), (zeros,), node.source))
            parts.append(zeros)
        if value is not None:
            parts.append(value)
        reached = stop
    return nodes, parts
