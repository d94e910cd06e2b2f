"""Cotangents of pieces of a tensor, added where they belong.

A loop over the rows of a tensor gives a cotangent for each. By the rule of a slice each would be padded to all of the
tensor, and the sums of n of them would cost the square of n. Outside of captures the walk adds each to its place in one
array instead, which nobody else sees before all have come.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autojit.history.op_node import OpNode
from autojit.history.view_history import ViewChain
from autojit.ir.op import Op
from autojit.ops.shape import Permute, Reshape, Slice
from autojit.tensor import Tensor
from autojit.tensor.node import ZERO, Edge, type_of_meta
from autojit.tensor.state import quietly, state
from autojit.tensor.tensor import wrap

CUTS = (Slice, ViewChain)
"""The ops of nodes that may be a piece's."""

_VIEWS = (Slice, Reshape, Permute)


class Pieces:
    """The sums of pieces that a walk has made, by where they arrived; a tensor's ``id`` says whether it is one."""

    def __init__(self) -> None:
        self._sums: dict[Edge, int] = {}

    def add(self, node: OpNode, grad: Any, before: Any) -> Tensor | None:
        """The sum at the node's operand with ``before``, what has come there; None: it is the rule's to make.

        ``before`` itself where it is a sum of pieces.
        """
        chain = _chain_of(node.op)
        if not chain or type(grad) is not Tensor or state.divert is not None or state.layers:
            return None
        base = type_of_meta(node.primals[0])
        array: Any = grad._array
        edge = node.edges[0]
        assert edge is not None
        if type(array) is not np.ndarray or array.dtype is not base.dtype.numpy or 2 * array.size > base.size:
            return None
        if before is None or before is ZERO:
            total = wrap(np.zeros(base.shape, array.dtype))
        elif type(before) is not Tensor or type(before._array) is not np.ndarray:
            return None
        elif self._sums.get(edge) == id(before):
            total = before
        elif before._array.flags.c_contiguous and before._array.dtype is array.dtype:
            total = wrap(before._array.copy())
        else:
            return None
        place = _piece(total._array, chain)
        if place is None or place.shape != array.shape:
            return None
        quietly(np.add, place, array, place)
        self._sums[edge] = id(total)
        return total


def may_be_piece(node: OpNode) -> bool:
    """Whether what arrives at a node may be a piece, and so small that its place in the whole is better than a rule."""
    base, piece = type_of_meta(node.primals[0]), type_of_meta(node.out_metas[0])
    return 2 * piece.size <= base.size and bool(_chain_of(node.op))


def _chain_of(op: Op) -> tuple[Op, ...]:
    """The view ops that cut a piece out; none where that is not what a node does."""
    chain = op.chain if type(op) is ViewChain else (op,)
    if not any([type(one) is Slice for one in chain]):  # noqa: C419  (a list is faster than a generator)
        return ()
    return chain if all([type(one) in _VIEWS for one in chain]) else ()  # noqa: C419


def _piece(array: Any, chain: tuple[Op, ...]) -> Any:
    """The view of the array; None where NumPy had to copy."""
    piece = array
    for op in chain:
        piece = op.eager(piece)
    return piece if piece.flags.writeable and np.may_share_memory(piece, array) else None
