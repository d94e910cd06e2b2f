"""Histories of results that can be used again: those in which no node keeps a tensor.

In eager mode ``backward`` frees what nodes keep, and a second pass raises where it would need that. Where nothing was
kept (sums, views, copies) it runs again. A compiled call keeps its operands in any case, for its own derivative; it has
to forget them only where eager mode forgets something.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from autojit.core.types import TensorType
from autojit.tensor.composite_boundary import Entered, Left
from autojit.tensor.node import FREED, AccumulateGrad, Edge, Node, node_type
from autojit.tensor.op_node import OpNode
from autojit.tensor.tensor import Tensor


class LastingNode(OpNode):
    """The node of a compiled call that a backward pass does not use up."""

    __slots__ = ()

    def release(self) -> None:
        """Nothing: eager mode would have had nothing to forget."""

    def _unpack(self, entry: Any, place: int, result: int = -1) -> Any:
        # the derivative depends on the values of no operand, so that it does not matter whether they were changed
        return entry if isinstance(entry, Tensor) else super()._unpack(entry, place, result)


def make_lasting(results: Sequence[Tensor]) -> None:
    """Let the node of a call's results last."""
    node = next((t._grad_fn for t in results if t._requires_grad), None)
    if isinstance(node, OpNode) and not isinstance(node, LastingNode):
        node.__class__ = node_type(LastingNode, type(node).__name__)


def keeps_nothing(starts: Iterable[Edge | None], ends: Collection[Node]) -> bool:
    """Whether no node of eager mode's from ``starts`` to those in ``ends`` keeps a tensor, or has kept one."""
    stack = [(edge[0], False) for edge in starts if edge is not None]  # the second: inside one node of eager mode's
    seen = set(ends)
    while stack:
        node, is_inside = stack.pop()
        if node in seen or isinstance(node, AccumulateGrad):
            continue
        seen.add(node)
        if isinstance(node, Left | Entered):
            if isinstance(node, Left) and node.kept:
                return False
            is_inside = isinstance(node, Left)
        elif not isinstance(node, OpNode) or any(_is_kept(kept, is_inside) for kept in (*node.primals, *node.results)):
            return False
        stack += [(edge[0], is_inside) for edge in node.edges if edge is not None]
    return True


def _is_kept(kept: object, is_inside: bool) -> bool:
    """Whether eager mode would have kept, or has freed, what a node has for an operand or a result."""
    return kept is FREED if is_inside else not (type(kept) is tuple or type(kept) is TensorType)
