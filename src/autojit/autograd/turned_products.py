"""Products with transposed operands, as every linear layer's: their cotangents come out in the order of the weights.

``x @ w.t()`` has a cotangent for ``w.t()``, whose transpose is that of ``w``. The product that makes it is as fast in
either order; in the wrong one the gradient of ``w`` would have to be copied to be laid out like ``w``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autojit.history.op_node import OpNode
from autojit.ops.composed_products import Addmm
from autojit.ops.matmul import Matmul, turned_operands
from autojit.ops.shape import Permute
from autojit.tensor.node import Edge
from autojit.tensor.state import state

PRODUCTS = (Matmul, Addmm)
"""The ops of nodes whose last two operands are multiplied."""


NOT_TURNED = False, False


def run_product(node: OpNode, grads: list[Any], wanted: tuple[bool, ...]) -> Sequence[Any]:
    """Run a product's rule in the order that suits its operands. Histories of gradients keep the usual one."""
    flags = NOT_TURNED if state.grad_enabled else turns(node)
    if flags == NOT_TURNED:
        return node.run(grads, wanted)
    turned_operands.flags = flags
    try:
        return node.run(grads, wanted)
    finally:
        turned_operands.flags = NOT_TURNED


def turns(node: OpNode) -> tuple[bool, bool]:
    """Which of a product's operands are transposed tensors."""
    left, right = node.edges[-2:]
    return _is_turned(left), _is_turned(right)


def _is_turned(edge: Edge | None) -> bool:
    """Whether an operand is a transposed tensor."""
    op = getattr(edge[0], "op", None) if edge is not None else None
    if type(op) is not Permute:
        return False
    axes = op.axes
    last = len(axes) - 1
    return axes[-2:] == (last, last - 1)
