"""Look-ups nobody reads, or of which only some elements are read, still refuse an index outside of their axis.

How to read: ``IndexChecks`` is told the nodes from the last to the first by dead-code elimination, which drops unread
look-ups, and then says which checks must be made in their place. No check is made of indices that cannot be outside,
nor where a look-up with the same indices in an axis of the same extent is computed as a whole. A look-up that another
axis leaves without elements looks at none of its indices, so these are checked by themselves.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from functools import cached_property
from typing import Any

from autojit.core.sizes import expression_of, is_symbolic, surely_equal, surely_less
from autojit.ir.graph import Graph, Node, Value
from autojit.ops.base import Elementwise, Reindex
from autojit.ops.indexing import Gathering
from autojit.ops.requirements import InRange
from autojit.ops.reversal import Flip
from autojit.ops.shape import BroadcastTo, Pad, Permute, Reshape
from autojit.passes.index_bounds import IndexBounds

Key = tuple[Value, Any]
"""Indices, and the extent of the axis that they must be in, as an expression where it is open."""

_BY_ELEMENT = (Elementwise, Reindex)
WHOLE = (Reshape, Permute, BroadcastTo, Flip, Pad)
"""Each element of the operand is one of the result."""


class IndexChecks:
    """What the look-ups of a graph check, seen from the last node to the first."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.whole = set(graph.outputs)
        self.done: set[Key] = set()
        self.wanted: dict[Key, tuple[Node, int, Any]] = {}  # the first node that wants it, its axis, the extent
        self.made: dict[Key, Node] = {}  # checks that are in the graph

    def see(self, node: Node, is_live: bool) -> None:
        """Take note of a node whose readers have all been seen."""
        is_whole = not self.whole.isdisjoint(node.outputs)
        if isinstance(node.op, InRange):
            key = key_of(node.inputs[0], node.op.extent)
            self.made[key] = node
            self.wanted[key] = (node, node.op.axis, node.op.extent)
        elif node.op.looks_up:
            for place, axis, extent in look_ups(node):
                key = key_of(node.inputs[place], extent)
                is_computed = is_live and (is_whole or not isinstance(node.op, Gathering))
                is_computed = is_computed and not self._may_be_dropped(node, axis)
                if is_computed and not _may_be_skipped(node, node.inputs[place]):
                    self.done.add(key)
                else:
                    self.wanted[key] = (node, axis, extent)
        if is_live:
            self.whole.update(_read_as_a_whole(node, is_whole))

    def _may_be_dropped(self, node: Node, axis: int) -> bool:
        """Whether elements may be picked without their positions: what is one element along the axis is read at 0.

        It is where it is computed for its readers, which this pass cannot know: all that may be counts as if it were.
        """
        if not isinstance(node.op, Gathering):
            return False
        base = node.inputs[0]
        return base in self._spread or (base in self._made and surely_equal(base.type.shape[axis], 1))

    @cached_property
    def _made(self) -> Container[Value]:
        return self.graph.definitions()

    @cached_property
    def _spread(self) -> Container[Value]:
        """What may be read through an op that spreads elements along an axis. Time O(nodes), once."""
        found: set[Value] = set()
        for node in self.graph.nodes:
            op = node.op
            if isinstance(op, Gathering):
                read = node.inputs[:1]
            else:
                read = node.inputs if isinstance(op, _BY_ELEMENT) else ()
            if isinstance(op, BroadcastTo) or not found.isdisjoint(read):
                found.update(node.outputs)
        return found

    def missing(self) -> dict[Node, list[Node]]:
        """The nodes of the checks that must be made, in the place of nodes of the graph."""
        found: dict[Node, list[Node]] = {}
        bounds = IndexBounds(self.graph)
        for key, (node, axis, extent) in self.wanted.items():
            if key in self.done or bounds.are_within(key[0], extent):
                continue
            made = self.made.get(key)
            if made is not None:
                found.setdefault(made, []).append(made)
            else:
                found.setdefault(node, []).append(check_of(node, axis, key[0], extent))
        return found


def _hashed(extent: Any) -> Any:
    return expression_of(extent) if is_symbolic(extent) else extent


def key_of(index: Value, extent: Any) -> Key:
    """What checks of the same indices in axes of the same extent have in common."""
    return index, _hashed(extent)


def look_ups(node: Node) -> Sequence[tuple[int, int, int]]:
    """The op's look-ups (see there), by the node's operands."""
    return node.op.look_ups(*[v.type for v in node.inputs])


def check_of(node: Node, axis: int, index: Value, extent: Any) -> Node:
    """A node that checks the indices of a look-up by themselves."""
    check = InRange(node.source.callee or node.op.shown_name, axis, extent, str(node.inputs[0].type))
    return Node(check, (index,), (Value(check.result_type(index.type)),), node.source)


def _may_be_skipped(node: Node, index: Value) -> bool:
    """Whether there can be indices, and yet no element that is looked up by them or in what they point at."""
    base, walked = node.inputs[0].type.shape, _walked(node).type.shape
    others = [_hashed(n) for n in walked if not surely_less(0, n)]
    for extent in index.type.shape:
        if _hashed(extent) in others:
            others.remove(_hashed(extent))
    return bool(others) or any(surely_equal(n, 0) for n in base)


def _walked(node: Node) -> Value:
    """The value whose elements are each looked up once: what is picked, or what is put into its place."""
    return node.outputs[0] if isinstance(node.op, Gathering) else node.inputs[1]


def _read_as_a_whole(node: Node, is_whole: bool) -> Sequence[Value]:
    """The operands all of whose elements are computed for a node, all of whose result is if ``is_whole``."""
    op = node.op
    if isinstance(op, Elementwise):
        return node.inputs if is_whole or node.is_kept else ()
    if isinstance(op, Gathering):
        return node.inputs[1:] if is_whole else ()
    if isinstance(op, Reindex):
        return node.inputs if is_whole and isinstance(op, WHOLE) else ()
    return node.inputs
