"""Nodes whose derivative is computed from an operand but does not change with it: ``relu``, pools.

The gradient of such a gradient by the operand is zeros, not None: ``.grad`` of what is behind it is set, and optimisers
move what has one. So where a pass is recorded, cotangents that arrive at such a node are connected to what is behind
it.
"""

from __future__ import annotations

from typing import Any

from autojit.history.op_node import connected_to
from autojit.tensor.node import ZERO, Node

__all__ = ["FLAT", "connect_behind"]

FLAT = frozenset(
    {
        "AvgPool2DBackward0", "AvgPool3DBackward0", "HardshrinkBackward0", "HardtanhBackward0", "LeakyReluBackward0",
        "MaxPool2DWithIndicesBackward0", "MaxPool3DWithIndicesBackward0", "NllLossBackward0",
        "ReluBackward0", "SoftshrinkBackward0", "ThresholdBackward0",
    }
)  # fmt: skip
"""Names of nodes: of their derivatives PyTorch's ``derivatives.yaml`` says ``self: zeros_like(grad)``."""


def connect_behind(node: Node, grads: list[Any]) -> None:
    """Let the cotangents at such a node depend, with derivative zero, on what the node was computed from."""
    for number, grad in enumerate(grads):
        if grad is not None and grad is not ZERO:
            grads[number] = connected_to(grad, node.edges)
