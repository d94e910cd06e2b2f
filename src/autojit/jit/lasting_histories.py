"""What eager mode's nodes keep of a history; those that can be used again, because no node keeps a tensor.

In eager mode ``backward`` frees what nodes keep, and a second pass raises where it would need that. Where nothing was
kept (sums, views, copies) it runs again. A compiled call keeps its operands in any case, for its own derivative; it has
to forget them only where eager mode forgets something.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from autojit.core.types import TensorType
from autojit.dispatch.composite_nodes import Entered, Left
from autojit.history.lasting import LastingNode
from autojit.history.op_node import OpNode
from autojit.tensor.node import FREED, AccumulateGrad, Edge, Node
from autojit.tensor.tensor import Tensor


def keeps_nothing(starts: Iterable[Edge | None], ends: Collection[Node]) -> bool:
    """Whether no node of eager mode's from ``starts`` to those in ``ends`` keeps a tensor, or has kept one."""
    return next(_kept(starts, ends), None) is None


def memory_kept(starts: Iterable[Edge | None], ends: Collection[Node]) -> set[int]:
    """By ``identity``, the memory that eager mode's nodes keep: it must not change before backward."""
    return {identity(entry) for _, entry in _kept(starts, ends) if isinstance(entry, Tensor)}


def keepers(start: Edge, ends: Collection[Node]) -> frozenset[Node]:
    """The nodes of eager mode's behind a result that keep tensors: a backward pass through one uses it up."""
    return frozenset(node for node, _ in _kept([start], ends))


def identity(t: Tensor) -> int:
    """The same for tensors whose changes are counted together."""
    return id(t if t._storage is None else t._storage.counter)


def _kept(starts: Iterable[Edge | None], ends: Collection[Node]) -> Iterator[tuple[Node, object]]:
    """Nodes with what they keep: tensors, or what says that there was something, or may be."""
    stack = [(edge[0], False) for edge in starts if edge is not None]  # the second: inside one node of eager mode's
    seen = set(ends)
    while stack:
        node, is_inside = stack.pop()
        if node in seen or isinstance(node, AccumulateGrad):
            continue
        seen.add(node)
        if isinstance(node, Left | Entered):
            is_inside = isinstance(node, Left)
            yield from ((node, kept[0]) for kept in (node.kept if isinstance(node, Left) else ()))
        elif isinstance(node, LastingNode):
            pass  # what it keeps stays
        elif isinstance(node, OpNode):
            yield from ((node, kept) for kept in (*node.primals, *node.results) if _is_kept(kept, is_inside))
        else:
            yield node, node
        stack += [(edge[0], is_inside) for edge in node.edges if edge is not None]


def _is_kept(kept: object, is_inside: bool) -> bool:
    """Whether eager mode would have kept, or has freed, what a node has for an operand or a result."""
    return kept is FREED if is_inside else not (type(kept) is tuple or type(kept) is TensorType)
