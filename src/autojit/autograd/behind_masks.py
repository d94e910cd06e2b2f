"""Which nodes of a pass are behind a mask: their cotangents may be 0 because a branch was not taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autojit.history.op_node import OpNode
from autojit.tensor.node import Edge, Node

__all__ = ["behind_masks"]


def behind_masks(
    order: Sequence[Node], roots: Sequence[Edge], masked: Sequence[Edge]
) -> tuple[set[Node], dict[Node, frozenset[int]]]:
    """The nodes (in the order in which they run) whose cotangents may hold zeros of a masked branch.

    ``masked`` are the roots whose cotangents do. A captured function is many nodes to eager mode: which of its
    operands are behind a mask depends on which outputs are, which is the second result.
    """
    found = {node for node, _ in masked}
    outputs: dict[Node, frozenset[int]] = {}
    behind: dict[Node, frozenset[int]] = {}  # of captured functions: which operands
    for place, node in enumerate(order):
        if not isinstance(node, OpNode):
            is_on = node.is_behind_mask(found)
        elif node.op.masks_cotangents and node.op.is_call:
            reached = {number for other, number in roots if other is node}
            outputs[node] = frozenset({number for other, number in masked if other is node})
            for user in order[:place]:
                numbers = [(k, edge[1]) for k, edge in enumerate(user.edges) if edge is not None and edge[0] is node]
                reached.update([number for _, number in numbers])
                on = {number for k, number in numbers if _hands_mask_on(user, k, found, behind)}
                outputs[node] |= on
            behind[node] = node.op.masked_operands(frozenset(reached), outputs[node])
            found.update([edge[0] for k in behind[node] if (edge := node.edges[k]) is not None])
            continue
        else:
            is_on = node.op.masks_cotangents or node in found
        if is_on:
            found.update([edge[0] for edge in node.edges if edge is not None])
    return found, outputs


def _hands_mask_on(node: Node, place: int, found: set[Node], behind: Mapping[Node, frozenset[int]]) -> bool:
    if node in behind:
        return place in behind[node]
    return node in found or node.op.masks_cotangents if isinstance(node, OpNode) else node.is_behind_mask(found)
