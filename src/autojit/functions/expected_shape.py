"""A node's check of the gradients that reach it, once its tensor has got a shape that nobody recorded."""

from __future__ import annotations

from typing import Any

from autojit.core.errors import ShapeError
from autojit.ops.base import is_expandable, sum_to
from autojit.tensor.node import Node, type_of_meta
from autojit.tensor.tensor import type_of


class ExpectedShape:
    """A pre-hook that refuses gradients of another shape than the node's output had when it was made.

    As in torch, a gradient that the output's shape expands to is summed. The engine trusts what it returns: the check
    of users' hooks compares with what arrived, whose shape is the one to be changed.
    """

    def __init__(self, node: Node, number: int) -> None:
        self.number = number
        self.shape = type_of_meta(node.out_metas[number]).shape
        self.node = f"{node.name()}  {node.source}"
        self.name = node.name()

    def __call__(self, grads: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """The gradients with that of the output in its shape; None where nothing is to be done."""
        grad = grads[self.number]
        if grad is None or type_of(grad).shape == self.shape:
            return None
        shape, found = self.shape, type_of(grad).shape
        if not is_expandable(shape, found):
            raise ShapeError(
                f"Function {self.name} got an invalid gradient at index {self.number} - got {list(found)} but "
                f"expected shape compatible with {list(shape)}",
                {"gradient": grad, "node": self.node},
                "change the shape in grad mode, so that it is recorded, or use the out-of-place form",
            )
        return (*grads[: self.number], sum_to(grad, shape), *grads[self.number + 1 :])
