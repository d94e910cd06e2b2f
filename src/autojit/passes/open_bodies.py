"""Open captured bodies: the ops of a branch or loop body instead of the one op that its capture left.

A scan of one step is its body: there is nothing to repeat.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from autojit.ir.builder import GraphBuilder
from autojit.ir.graph import Graph, Node, Value
from autojit.ir.inline import inline
from autojit.ir.op import Op
from autojit.ops.graph_op import GraphOp
from autojit.ops.scan_steps import Scan
from autojit.ops.shape import reshape
from autojit.passes.rewrite import rebuilt

NESTED = frozenset(("cond", "scan", "while_loop"))
"""Ops that hold graphs."""


def has_bodies(graph: Graph) -> bool:
    """Whether a node of the graph holds graphs, or is a captured body itself."""
    return any(node.op.name in NESTED or _is_body(node.op) for node in graph.nodes)


def _is_body(op: Op) -> TypeGuard[GraphOp]:
    return isinstance(op, GraphOp) and op.opened_by == "open_bodies"


def open_bodies(graph: Graph) -> Graph:
    """Write the ops of captured bodies in their place, at every depth.

    Preserves results; derivatives have been taken already. Time O(nodes of all bodies).
    """
    if not has_bodies(graph):
        return graph
    return rebuilt(graph, _opened)


def _opened(builder: GraphBuilder, node: Node, inputs: tuple[Value, ...]) -> Sequence[Value]:
    if _is_body(node.op):
        body = open_bodies(node.op.graph_of([v.type for v in inputs]))
        return [y.value for y in inline(body, [builder.tracer(v) for v in inputs], _Maker(builder), builder)]
    if node.op.name not in NESTED:
        return builder.apply(node.op, inputs, node.source)
    opened = node.op.with_graphs([open_bodies(g) for g in node.op.graphs()])  # type: ignore[attr-defined]
    if isinstance(opened, Scan) and opened.length == 1:
        return _single_step(builder, opened, inputs)
    return builder.apply(opened, inputs, node.source)


def _single_step(builder: GraphBuilder, scan: Scan, inputs: Sequence[Value]) -> list[Value]:
    """The body on the only slices; its results are the only ones of their stacks."""
    first, rest = scan.carries, scan.carries + scan.stacks
    given = [builder.tracer(v) for v in inputs]
    given[first:rest] = [
        reshape(x, v.type.shape) for x, v in zip(given[first:rest], scan.body.inputs[first:rest], strict=True)
    ]
    found = inline(scan.body, given, _Maker(builder), builder)
    found[first:] = [reshape(y, (1, *y.spec.shape)) for y in found[first:]]
    return [y.value for y in found]


class _Maker:
    """Who makes sources, where no operand does."""

    def __init__(self, builder: GraphBuilder) -> None:
        self.builder = builder

    def _bind(self, op: object, operands: object) -> object:
        return self.builder.tracer(self.builder.apply(op, ())[0])  # type: ignore[arg-type]
