"""Nodes that no backward pass uses up: what they keep is no tensor of the user's, and is not freed.

Of a function of several ops, nodes inside may keep constants that the function made: masks of a triangle, weights of a
resampling, factors. Where torch's one node keeps nothing, a second backward pass is allowed, and must be here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from autojit.core.types import TensorType
from autojit.history.op_node import OpNode
from autojit.tensor.node import AccumulateGrad, Node, node_type
from autojit.tensor.tensor import Tensor

Found = TypeVar("Found")


class LastingNode(OpNode):
    """A node that a backward pass does not use up."""

    __slots__ = ()

    def release(self) -> None:
        """Nothing: the node that torch would have here has nothing to forget."""

    def _unpack(self, entry: Any, place: int, result: int = -1, is_read: bool = True) -> Any:
        # the derivative depends on the values of no operand, so that it does not matter whether they were changed
        return entry if isinstance(entry, Tensor) else super()._unpack(entry, place, result)


def make_lasting(results: Sequence[Tensor]) -> None:
    """Let the node of a call's results last."""
    node = next((t._grad_fn for t in results if t._requires_grad), None)
    if isinstance(node, OpNode):
        _make_lasting(node)


def with_lasting_constants(found: Found, *operands: object) -> Found:
    """The results of a function that, to users, keeps nothing for backward: its nodes keep what it made itself.

    ``operands`` are what it was called with; the history behind them is not looked at. A node that keeps a tensor with
    a history of its own (the ``tanh`` inside ``tanhshrink``) is spent as ever.
    """
    stack = _nodes_of(found if isinstance(found, tuple | list) else (found,))
    if not stack:
        return found
    seen: set[Node] = set(_nodes_of(operands))
    while stack:
        node = stack.pop()
        if type(node) is AccumulateGrad or node in seen:
            continue
        seen.add(node)
        if isinstance(node, OpNode) and _keeps_constants_alone(node):
            _make_lasting(node)
        for edge in node.edges:
            if edge is not None:
                stack.append(edge[0])
    return found


def _nodes_of(tensors: Iterable[object]) -> list[Node]:
    return [t._grad_fn for t in tensors if isinstance(t, Tensor) and t._grad_fn is not None]


def _keeps_constants_alone(node: OpNode) -> bool:
    """Whether a node keeps operands, all of them plain and without a history, and no result."""
    is_any = False
    for entry in node.primals:
        if type(entry) is tuple or type(entry) is TensorType:
            continue
        if not isinstance(entry, Tensor) or entry._requires_grad:
            return False
        is_any = True
    if not is_any:
        return False
    return all([type(entry) in (tuple, TensorType) for entry in node.results])  # noqa: C419  (a list is faster)


def _make_lasting(node: OpNode) -> None:
    if not isinstance(node, LastingNode):
        node.__class__ = node_type(LastingNode, type(node).__name__)


LastingNode.renamed_kind = LastingNode
