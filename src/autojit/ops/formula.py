"""Formula: several elementwise ops as one node, where only the last of them is read.

A program that says the same about many values (an update of many parameters) then has a node where it would have a
dozen. Code generation computes it op by op, so nothing but the time to compile depends on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from autojit.core.device import Device
from autojit.core.dtypes import DType
from autojit.core.errors import DTypeError
from autojit.core.records import record
from autojit.core.types import TensorType
from autojit.ir.emitter import Emitter
from autojit.ir.graph import Graph, Node, Value
from autojit.ir.inline import inline
from autojit.ir.op import O, Op
from autojit.ir.result_types import common_device
from autojit.ops.base import Elementwise, EqualByText, broadcast_shapes
from autojit.ops.elementwise_arithmetic import ADD, MUL
from autojit.ops.graph_op import Composite, ElementwiseGraph
from autojit.ops.samples import Samples, draws
from autojit.ops.sources import Full

__all__ = ["Formula", "Step", "formulas"]

_NUMBER_BITS = 16  # of an op's own number of a failure

Step = tuple[Op, tuple[int, ...], tuple[TensorType, ...]]
"""An op, the numbers of the values it reads, the types of its results, which get the next numbers."""


@record(eq=False)
class Formula(EqualByText, ElementwiseGraph, Composite):
    """``body``, a graph of elementwise ops and literals on 0-d values, for each element of the operands."""

    body: Graph

    is_cheap: ClassVar[bool] = False
    opened_by: ClassVar[None] = None  # loops know how to compute it

    def result_type(self, *types: TensorType) -> TensorType:
        for found, wanted in zip(types, self.body.inputs, strict=True):
            if found.dtype is not wanted.type.dtype:
                raise DTypeError("formula: an operand has another dtype", {"found": found, "expected": wanted.type})
        shape = broadcast_shapes(*[t.shape for t in types], op=self.name)
        return TensorType(shape, self.body.outputs[0].type.dtype, common_device(self.name, types))

    def expand(self, *operands: O) -> Any:
        """The ops of the body, on the operands; its literals are stored where these are."""
        place = common_device(self.name, [x.spec for x in operands])
        nodes = tuple([_placed(node, place) for node in self.body.nodes])
        return inline(Graph(self.body.inputs, nodes, self.body.outputs), operands, operands[0])[0]

    @property
    def masks_cotangents(self) -> bool:  # type: ignore[override]
        return any(node.op.masks_cotangents for node in self.body.nodes)

    def lower(self, emit: Any, *scalars: Any) -> Any:
        known: dict[Value, Any] = dict(zip(self.body.inputs, scalars, strict=True))
        for place, node in enumerate(self.body.nodes):
            args = [known[v] for v in node.inputs] if node.inputs else [()]
            before = len(emit.failures)
            known[node.outputs[0]] = node.op.lower(emit, *args)
            for at in range(before, len(emit.failures)):
                number = emit.failures[at]
                told = emit.add(number, emit.constant(place << _NUMBER_BITS, number.dtype))
                emit.failures[at] = emit.select(emit.eq(number, 0), number, told)
        return known[self.body.outputs[0]]

    def may_refuse(self, *types: TensorType) -> bool:
        return any(node.is_kept for node in self.body.nodes)

    def may_fail(self, *types: TensorType) -> bool:
        return any(node.op.may_fail(*[v.type for v in node.inputs]) for node in self.body.nodes)

    def failure(self, number: int) -> Exception:
        """The error of the op of the body whose place is above its own number in ``number``."""
        op: Any = self.body.nodes[number >> _NUMBER_BITS].op
        found: Exception = op.failure(number & (1 << _NUMBER_BITS) - 1)
        return found

    @staticmethod
    def samples(dtype: DType) -> Samples:
        if dtype.kind != "float":
            return []
        of = TensorType((), dtype)
        x, y, half, product, total = (Value(of) for _ in range(5))
        nodes = (Node(Full(0.5, dtype, ()), (), (half,)), Node(MUL, (x, half), (product,)))
        body = Graph((x, y), (*nodes, Node(ADD, (product, y), (total,))), (total,))
        return [(Formula(body), (draws((2, 3), dtype, 1), draws((3,), dtype, 2)))]


def formulas(
    steps: Sequence[Step], types: Sequence[TensorType | None], kept: Sequence[int]
) -> tuple[list[Step], list[int]]:
    """The steps with every elementwise step in the formula of its reader, where it has no other.

    ``types`` are those of the values that are there already, which have the first numbers. The values numbered in
    ``kept`` stay; their new numbers come with the steps. Time O(steps).
    """
    made: dict[int, Step] = {}  # number -> its step
    first = number = len(types)
    for step in steps:
        for _ in step[2]:
            made[number] = step
            number += 1
    uses = dict.fromkeys(kept, 2)
    for _, places, _ in steps:
        for place in places:
            uses[place] = uses.get(place, 0) + 1
    inside = {  # what its only reader computes itself
        place
        for reader in steps
        if _is_elementwise(reader)
        for place in reader[1]
        if place in made and uses[place] == 1 and (_is_elementwise(made[place]) or isinstance(made[place][0], Full))
    }
    numbers = {place: place for place in range(first)}
    result: list[Step] = []
    number, new = first, first
    for step in steps:
        if number not in inside:
            cone = _cone(number, made, inside) if len(step[2]) == 1 else []
            op, places, results = _formula(cone, made, types) if len(cone) > 1 else step
            result.append((op, tuple([numbers[p] for p in places]), results))
            numbers.update((number + k, new + k) for k in range(len(results)))
            new += len(results)
        number += len(step[2])
    return result, [numbers[place] for place in kept]


def _placed(node: Node, place: Device) -> Node:
    """The node, on a device if it is a literal."""
    op = node.op
    if not isinstance(op, Full) or op.device == place:
        return node
    return Node(Full(op.value, op.dtype, op.shape, place), (), node.outputs, node.source)


def _is_elementwise(step: Step) -> bool:
    op, _, types = step
    if (
        not isinstance(op, Elementwise)
        or len(types) != 1
        or types[0].dtype.kind not in ("float", "int", "uint", "bool")
    ):
        return False
    return is_lowered(type(op)) and not isinstance(op, Formula)


def is_lowered(op: type[Elementwise]) -> bool:
    """Whether generated code can compute an op: by a ``lower`` of its own, or as emitters do what has its name."""
    return op.lower is not Elementwise.lower or hasattr(Emitter, op.name)


def _cone(root: int, made: dict[int, Step], inside: set[int]) -> list[int]:
    """A value and those that are computed for it alone, in order."""
    found = {root}
    waiting = [root]
    while waiting:
        for place in made[waiting.pop()][1]:
            if place in inside:
                found.add(place)
                waiting.append(place)
    return sorted(found)


def _formula(cone: list[int], made: dict[int, Step], types: Sequence[TensorType | None]) -> Step:
    """One step for a cone."""
    operands: dict[int, Value] = {}
    known: dict[int, Value] = {}

    def read(place: int) -> Value:
        if place in known:
            return known[place]
        if place not in operands:
            found = made[place][2][0] if place in made else types[place]
            assert found is not None
            operands[place] = Value(found.with_shape(()))
        return operands[place]

    nodes: list[Node] = []
    for number in cone:
        op, places, results = made[number]
        inputs = tuple([read(place) for place in places])
        known[number] = Value(results[0].with_shape(()))
        op = Full(op.value, op.dtype, (), op.device) if isinstance(op, Full) else op
        nodes.append(Node(op, inputs, (known[number],)))
    body = Graph(tuple(operands.values()), tuple(nodes), (known[cone[-1]],))
    return Formula(body), tuple(operands), made[cone[-1]][2]
