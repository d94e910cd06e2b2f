"""The sweep that peephole passes share: rebuild a graph, asking a rule for each node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from autojit.ir.builder import GraphBuilder, Tracer
from autojit.ir.graph import Graph, Node, Value
from autojit.ir.op import Op

Rule = Callable[["Rewriter", Any, tuple[Tracer, ...]], Any]


class Rewriter:
    """Rebuilds a graph node by node. A rule gets (rewriter, op, operands) and returns the results or None."""

    def __init__(self, rules: Mapping[str, Rule]) -> None:
        self.rules = rules
        self.builder = GraphBuilder()
        self.definition: dict[Value, Node] = {}
        self.seen = 0
        self.changed = False

    def node_of(self, operand: Tracer) -> Node | None:
        """The node that defines an operand in the graph under construction."""
        while self.seen < len(self.builder.nodes):
            node = self.builder.nodes[self.seen]
            self.definition.update((v, node) for v in node.outputs)
            self.seen += 1
        return self.definition.get(operand.value)

    def op_of(self, operand: Tracer) -> Op | None:
        node = self.node_of(operand)
        return None if node is None else node.op

    def operand_of(self, operand: Tracer, position: int = 0) -> Tracer:
        node = self.node_of(operand)
        assert node is not None
        return self.builder.tracer(node.inputs[position])

    def run(self, graph: Graph) -> Graph:
        builder = self.builder
        builder.inputs = list(graph.inputs)
        mapped: dict[Value, Value] = {v: v for v in graph.inputs}
        for node in graph.nodes:
            rule = self.rules.get(node.op.name)
            results = None
            if rule is not None:
                builder.source = node.source
                operands = tuple(Tracer(builder, mapped[v]) for v in node.inputs)
                results = rule(self, node.op, operands)
            if results is None:
                self._copy(node, mapped)
                continue
            self.changed = True
            found = results if isinstance(results, tuple) else (results,)
            mapped.update((v, r.value) for v, r in zip(node.outputs, found, strict=True))
        return builder.finish([mapped[v] for v in graph.outputs])

    def _copy(self, node: Node, mapped: dict[Value, Value]) -> None:
        inputs = tuple(mapped[v] for v in node.inputs)
        self.builder.nodes.append(node if inputs == node.inputs else Node(node.op, inputs, node.outputs, node.source))
        mapped.update((v, v) for v in node.outputs)
