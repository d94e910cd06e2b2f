"""Value, Node, Graph: immutable typed SSA."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from autojit.core.source import UNKNOWN, SourceLocation
from autojit.core.types import TensorType
from autojit.ir.op import Op
from autojit.ir.printing import names_of, print_graph, print_lines

__all__ = ["Graph", "Node", "Value", "replace"]


class Value:
    """A typed name, defined by exactly one Node or a Graph input. Compared by identity."""

    __slots__ = ("name", "type")

    def __init__(self, type: TensorType, name: str = "") -> None:
        self.type = type
        self.name = name

    def __repr__(self) -> str:
        return f"{self.name or '%'}: {self.type}"


@dataclass(frozen=True, slots=True, eq=False, init=False)
class Node:
    """One application of an op in SSA form: ``outputs = op(*inputs)``. Compared by identity."""

    op: Op  # static parameters are stored in the op
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]  # a Value is defined by exactly one Node, or is a Graph input
    source: SourceLocation  # the user's line; survives every pass, for errors and profiles

    def __init__(
        self, op: Op, inputs: tuple[Value, ...], outputs: tuple[Value, ...], source: SourceLocation = UNKNOWN
    ) -> None:
        _set_op(self, op)
        _set_inputs(self, inputs)
        _set_outputs(self, outputs)
        _set_source(self, source)

    @property
    def output(self) -> Value:
        return self.outputs[0]

    @property
    def is_kept(self) -> bool:
        """Whether the node is computed where nothing reads its outputs: for an effect, or for what it may refuse."""
        return self.op.has_effect or self.op.may_refuse(*[v.type for v in self.inputs])

    @property
    def is_asked(self) -> bool:
        """Whether something of the node is computed where nothing reads its outputs, if only that positions exist."""
        return self.op.looks_up or self.is_kept

    def reading(self, names: Mapping[Value, Value]) -> Node:
        """The node on its operands' new names; itself where none has one."""
        inputs = renamed(self.inputs, names)
        return self if inputs is self.inputs else Node(self.op, inputs, self.outputs, self.source)


# what a frozen dataclass does by ``object.__setattr__`` takes twice as long
_set_op: Any = Node.__dict__["op"].__set__
_set_inputs: Any = Node.__dict__["inputs"].__set__
_set_outputs: Any = Node.__dict__["outputs"].__set__
_set_source: Any = Node.__dict__["source"].__set__


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Inputs, nodes in topological order, outputs."""

    inputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Value, ...]

    def definitions(self) -> dict[Value, Node]:
        """Value -> the node that defines it (inputs are absent)."""
        return {value: node for node in self.nodes for value in node.outputs}

    def uses(self) -> dict[Value, list[Node]]:
        """Value -> the nodes that read it, in order; graph outputs do not count."""
        found: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for value in dict.fromkeys(node.inputs):
                found.setdefault(value, []).append(node)
        return found

    def use_counts(self) -> dict[Value, int]:
        """Value -> how often it is read, by nodes and as an output; values that nobody reads are absent."""
        return dict(Counter(chain(chain.from_iterable([node.inputs for node in self.nodes]), self.outputs)))

    def renamed(self, nodes: Iterable[Node], names: Mapping[Value, Value]) -> Graph:
        """A graph of other nodes, whose outputs have new names."""
        return Graph(self.inputs, tuple(nodes), renamed(self.outputs, names))

    def __str__(self) -> str:
        return print_graph(self)

    def as_parameter(self) -> str:
        """How the graph is written as a parameter of an op."""
        return " ".join(print_lines(self, names_of(self)))

    def __len__(self) -> int:
        return len(self.nodes)


def renamed(values: tuple[Value, ...], names: Mapping[Value, Value]) -> tuple[Value, ...]:
    """The values under their new names; the same tuple where none has one."""
    for value in values:
        if value in names:
            return tuple([names.get(v, v) for v in values])
    return values


def values_of(graph: Graph) -> Iterable[Value]:
    """Every value of the graph, inputs first."""
    yield from graph.inputs
    for node in graph.nodes:
        yield from node.outputs
