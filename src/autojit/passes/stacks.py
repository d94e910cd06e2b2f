"""Matrices one below the other, and the stacks that hold them: what the passes that join products and sums share."""

from __future__ import annotations

from collections.abc import Mapping

from autojit.core.types import Shape
from autojit.ir.graph import Node, Value
from autojit.ops.shape import Reshape


def unstacked(part: Value, made_by: Mapping[Value, Node]) -> Value:
    """The matrix behind a part of a stack, which a reshape may have given a leading axis."""
    made = made_by.get(part)
    if made is not None and isinstance(made.op, Reshape) and made.op.shape == (1, *made.inputs[0].type.shape):
        return made.inputs[0]
    return part


def reshaped(value: Value, shape: Shape, node: Node, nodes: list[Node]) -> Value:
    """A value in another shape, for a node that takes the place of ``node``; ``nodes`` gets what makes it."""
    if value.type.shape == shape:
        return value
    made = Value(value.type.with_shape(shape))
    nodes.append(Node(Reshape(shape), (value,), (made,), node.source))
    return made


def rows_of_stack(stack: Node, made_by: Mapping[Value, Node], node: Node, nodes: list[Node]) -> Value:
    """The rows of a stack along axis 0 as one matrix: by a copy of its nodes, which is merged with it later."""
    parts: list[Value] = []
    for part in stack.inputs:
        matrix = unstacked(part, made_by)
        parts.append(part if matrix is part else reshaped(matrix, part.type.shape, stack, nodes))
    copy = Value(stack.outputs[0].type)
    nodes.append(Node(stack.op, tuple(parts), (copy,), stack.source))
    columns = copy.type.shape[-1]
    return reshaped(copy, (copy.type.size // columns if columns else 0, columns), node, nodes)
