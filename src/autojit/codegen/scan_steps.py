"""Steps of scans along an axis: running folds, running extrema with their positions, the linear recurrence.

Operands are seen as (outer, length, inner) around the axis. A line is the elements of one outer and one inner position;
lines are independent. A target chooses who takes which lines and where the state of the step before is.
"""

from __future__ import annotations

from math import prod

from autojit.codegen.kernel_function import KernelFunction
from autojit.codegen.scalar import Scalar
from autojit.core.dtypes import float32, float64, int64
from autojit.ir.graph import Node
from autojit.ir.op import Op
from autojit.ops.scans import Cumulative, CumulativeExtreme, LinearRecurrence

Scan = Cumulative | CumulativeExtreme | LinearRecurrence
State = tuple[Scalar, ...]


def around_axis(node: Node) -> tuple[int, int, int]:
    """(outer, length, inner) of a scan."""
    assert isinstance(node.op, Scan)
    shape, axis = node.outputs[0].type.shape, node.op.axis
    return prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])


class ScanSteps:
    """What a kernel computes at each step of a scan; its buffers are the operands and the results."""

    def __init__(self, function: KernelFunction, node: Node) -> None:
        assert isinstance(node.op, Scan)
        self.function, self.node = function, node
        self.op: Scan = node.op
        self.outer, self.length, self.inner = around_axis(node)
        self.first_result = len(node.inputs)
        self.is_reversed = getattr(node.op, "reverse", False)
        self.kept = [v.type.dtype for v in node.outputs]  # what the state is kept in
        if isinstance(node.op, Cumulative) and self.kept[0] is float32 and node.op.kind != "logsumexp":
            self.kept = [float64]

    def place(self, start: str, step: str, column: str) -> str:
        """The position of a step's element; step 0 comes first in scan order."""
        f = self.function
        if self.is_reversed:
            step = f.sub(self.length - 1, step)
        row = f.mul(step, self.inner)
        return f.add(f.add(start, row), column)

    def write(self, place: str, state: State) -> None:
        """Store a state as the results of its step."""
        for k, value in enumerate(state):
            result = self.function.emit.cast(value, self.node.outputs[k].type.dtype)
            self.function.write(self.first_result + k, result, place)

    def _operand(self, number: int, place: str) -> Scalar:
        dtype = self.node.inputs[number].type.dtype
        found = self.function.read(number, dtype, place)
        return self.function.emit.cast(found, self.kept[0]) if isinstance(self.op, Cumulative) else found

    def initial(self, place: str) -> State:
        """The state after the first element."""
        if isinstance(self.op, LinearRecurrence):
            return (self._operand(1, place),)
        return self.alone(place, "0")

    def next(self, place: str, step: str, state: State) -> State:
        """The state after one more element."""
        if isinstance(self.op, LinearRecurrence):
            emit = self.function.emit
            return (emit.add(emit.mul(self._operand(0, place), state[0]), self._operand(1, place)),)
        return self.joined(state, self.alone(place, step))

    def alone(self, place: str, step: str) -> State:
        """The state of one step without those before it."""
        x = self._operand(0, place)
        return (x, Scalar(step, int64)) if isinstance(self.op, CumulativeExtreme) else (x,)

    def joined(self, before: State, after: State) -> State:
        """The state of some steps and those that follow them; of a linear recurrence there is none."""
        emit, op = self.function.emit, self.op
        x = after[0]
        if isinstance(op, CumulativeExtreme):
            best = emit.maximum(before[0], x) if op.kind == "max" else emit.minimum(before[0], x)
            reaches = emit.logical_or(emit.eq(x, best), emit.isnan(x))
            return best, emit.select(reaches, after[1], before[1])
        assert isinstance(op, Cumulative), "a recurrence is not a fold"
        if op.kind == "logsumexp":
            return (Op.registry["logaddexp"]().lower(emit, before[0], x),)
        return (emit.add(before[0], x) if op.kind == "sum" else emit.mul(before[0], x),)
