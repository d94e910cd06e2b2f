"""The sweep that peephole passes share: rebuild a graph, asking a rule for each node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from autojit.ir.builder import GraphBuilder, Tracer
from autojit.ir.graph import Graph, Node, Value, renamed
from autojit.ir.op import Op
from autojit.ops.sources import Full

Rule = Callable[["Rewriter", Any, tuple[Tracer, ...]], Any]


Change = Callable[[GraphBuilder, Node, tuple[Value, ...]], "Sequence[Value] | None"]


def rebuilt(graph: Graph, change: Change) -> Graph:
    """The graph with other nodes in the place of some: what ``change(builder, node, inputs)`` records and gives.

    ``inputs`` are the node's under their new names; None: the node stays.
    """
    builder = GraphBuilder(graph.inputs)
    names: dict[Value, Value] = {}
    for node in graph.nodes:
        kept = node.reading(names)
        builder.source = node.source
        found = change(builder, node, kept.inputs)
        if found is None:
            builder.nodes.append(kept)
        else:
            names.update(zip(node.outputs, found, strict=True))
    return builder.finish(renamed(graph.outputs, names))


class Rewriter:
    """Rebuilds a graph node by node. A rule gets (rewriter, op, operands) and returns the results or None.

    Rules in ``of_literals`` are asked only where an operand repeats one number (its node is a ``full``).
    """

    def __init__(self, rules: Mapping[str, Rule], of_literals: AbstractSet[str] = frozenset()) -> None:
        self.rules = rules
        self.of_literals = of_literals
        self.builder = GraphBuilder()
        self.definition: dict[Value, Node] = {}
        self.literals: set[Value] = set()
        self.seen = 0
        self.changed = False

    def _catch_up(self) -> None:
        """Take note of the nodes that were added since the last time."""
        nodes = self.builder.nodes
        definition = self.definition
        for place in range(self.seen, len(nodes)):
            node = nodes[place]
            for value in node.outputs:
                definition[value] = node
            if type(node.op) is Full:
                self.literals.add(node.outputs[0])
        self.seen = len(nodes)

    def node_of(self, operand: Tracer) -> Node | None:
        """The node that defines an operand in the graph under construction."""
        if self.seen != len(self.builder.nodes):
            self._catch_up()
        return self.definition.get(operand.value)

    def op_of(self, operand: Tracer) -> Op | None:
        node = self.node_of(operand)
        return None if node is None else node.op

    def operand_of(self, operand: Tracer, position: int = 0) -> Tracer:
        node = self.node_of(operand)
        assert node is not None
        return self.builder.tracer(node.inputs[position])

    def literal(self, operand: Tracer) -> Any:
        """The number an operand repeats, or None."""
        if self.seen != len(self.builder.nodes):
            self._catch_up()
        return self.definition[operand.value].op.value if operand.value in self.literals else None  # type: ignore[attr-defined]

    def run(self, graph: Graph) -> Graph:
        builder, rules, of_literals, literals = self.builder, self.rules, self.of_literals, self.literals
        nodes = builder.nodes
        builder.inputs = list(graph.inputs)
        names: dict[Value, Value] = {}
        for node in graph.nodes:
            kept = node.reading(names)
            name = node.op.name
            rule = rules.get(name)
            if rule is not None:
                if self.seen != len(nodes):
                    self._catch_up()
                if name not in of_literals or not literals.isdisjoint(kept.inputs):
                    builder.source = node.source
                    results = rule(self, node.op, tuple([Tracer(builder, v) for v in kept.inputs]))
                    if results is not None:
                        self.changed = True
                        found = results if isinstance(results, tuple) else (results,)
                        names.update((v, r.value) for v, r in zip(node.outputs, found, strict=True))
                        continue
            nodes.append(kept)
        return builder.finish([names.get(v, v) for v in graph.outputs])
