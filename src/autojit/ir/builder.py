"""GraphBuilder and its Tracer: recording ops instead of computing them.

Passes and transforms that need op rules build new graphs through Tracers; the front end's traced Tensors share the
builder through ``GraphBuilder.apply``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from autojit.core.sizes import is_symbolic
from autojit.core.source import UNKNOWN, SourceLocation
from autojit.core.types import TensorType
from autojit.ir.graph import Graph, Node, Value
from autojit.ir.op import Op
from autojit.ir.result_types import result_types


class GraphBuilder:
    """Collects inputs and nodes; ``finish`` freezes them into a Graph."""

    def __init__(self, inputs: Iterable[Value] = (), nodes: Iterable[Node] = ()) -> None:
        self.inputs = list(inputs)
        self.nodes = list(nodes)
        self.source = UNKNOWN

    def input(self, type: TensorType, name: str = "") -> Value:
        value = Value(type, name)
        self.inputs.append(value)
        return value

    def apply(self, op: Op, inputs: Sequence[Value], source: SourceLocation | None = None) -> tuple[Value, ...]:
        """Append a node and return its outputs; the op's type rule checks the operands."""
        types = result_types(op, *[v.type for v in inputs])
        if op.n_outputs == 1:
            outputs: tuple[Value, ...] = (Value(types),)
        else:
            outputs = tuple(Value(t) for t in types)
        self.nodes.append(Node(op, tuple(inputs), outputs, source or self.source))
        return outputs

    def repeat(
        self,
        steps: Sequence[tuple[Op, tuple[int, ...], tuple[TensorType, ...]]],
        values: list[Value],
        source: SourceLocation,
    ) -> None:
        """Append nodes that were recorded before, on other operands of the same types.

        A step says the op, which of ``values`` it reads, and the types of its results, which are added to ``values``.
        """
        nodes = self.nodes
        for op, places, types in steps:
            outputs = tuple([Value(t) for t in types])
            nodes.append(Node(op, tuple([values[p] for p in places]), outputs, source))
            values += outputs

    def tracer(self, value: Value) -> Tracer:
        return Tracer(self, value)

    def finish(self, outputs: Sequence[Value]) -> Graph:
        return Graph(tuple(self.inputs), tuple(self.nodes), tuple(outputs))


class Tracer:
    """An operand that records: a Value of a graph under construction."""

    __slots__ = ("builder", "value")

    def __init__(self, builder: GraphBuilder, value: Value) -> None:
        self.builder = builder
        self.value = value

    @property
    def spec(self) -> TensorType:
        return self.value.type

    def _bind(self, op: Op, operands: Sequence[Any]) -> Any:
        outputs = self.builder.apply(op, [o.value for o in operands])
        if op.n_outputs == 1:
            return Tracer(self.builder, outputs[0])
        return tuple(Tracer(self.builder, v) for v in outputs)

    def _literal(self, value: object, type: TensorType) -> Tracer:
        if is_symbolic(value):  # an extent that is left open enters arithmetic as an operand
            (number,) = self.builder.apply(Op.registry["size_value"](value, type.dtype, type.device), ())
            spread = Op.registry["broadcast_to"](type.shape)
            return Tracer(self.builder, self.builder.apply(spread, (number,))[0] if type.shape else number)
        full = Op.registry["full"](value, type.dtype, type.shape, type.device)
        return Tracer(self.builder, self.builder.apply(full, ())[0])

    def describe(self) -> str:
        return str(self.value)
