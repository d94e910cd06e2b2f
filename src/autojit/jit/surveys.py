"""Surveys: what one look at the history behind a result finds, by which a backward pass is known when it comes again.

How to read: `ops_behind` walks from a node down to the leaves, ``Survey.of`` writes the pass's key; ``_way_to`` says
which memory holds what a node has saved, and `seen` takes it out of that memory again, inside the native call.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from autojit.core.types import TensorType
from autojit.dispatch.dispatch import apply
from autojit.history.lasting import LastingNode
from autojit.history.op_node import NotImplementedNode, OpNode, ZeroDerivative
from autojit.history.residual_plans import plans_of
from autojit.ir.op import Op
from autojit.jit.call_node import CallNode
from autojit.jit.outside_passes import is_plain_leaf
from autojit.tensor.memory_orders import outermost_first, places_of
from autojit.tensor.node import FREED, AccumulateGrad, Node
from autojit.tensor.tensor import Tensor, storage_chain, wrap

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_NODES = 512
"""Longer histories are loops over parts mostly: compiling one would hold up the loop for seconds."""

_by_sequence = attrgetter("sequence")

Way = tuple[int, ...] | tuple[Op, ...] | None
"""From an argument to what a node has saved: a permutation of axes, views one after the other, or nothing."""


class Survey:
    """What one look at a history has found, from one of its nodes down to the leaves."""

    __slots__ = ("calls", "kept", "key", "kind", "leaves", "memories", "order", "places", "saved", "ways", "why")

    def __init__(self, order: list[Node], kind: tuple[int, ...] = ()) -> None:
        self.order = order
        self.kind = kind
        self.places: dict[Any, int] = {node: place for place, node in enumerate(order)}
        self.leaves: list[AccumulateGrad] = []
        self.memories: dict[int, tuple[int, Any]] = {}  # what goes into the call: arrays by id, numbered
        self.saved: dict[int, int] = {}  # what nodes have saved, by id: numbers in ``ways``
        self.ways: list[tuple[int, Way]] = []
        self.kept: list[tuple[list[Any], int]] = []  # where nodes keep them
        self.calls: dict[Any, set[int]] = {node: set() for node in order if isinstance(node, CallNode)}
        self.key: list[Any] = []
        self.why = ""  # the engine has something to say about a pass

    @classmethod
    def of(cls, order: list[Node], kind: tuple[int, ...] = ()) -> Survey:
        """The history of nodes, as `ops_behind` gives them; with ``why`` where there is more to a pass than its rules.

        ``kind`` is what the caller knows it by.
        """
        found = cls(order, kind)
        key, places, calls = found.key, found.places, found.calls
        for node in order:  # what every node of every pass pays: no helper is called that a line can replace
            if calls and isinstance(node, CallNode):
                if not found._add_call(node):
                    break
            elif isinstance(node, OpNode):
                kept = found._kept_by(node)
                if kept is None or (kept and not found._add_saved(node, kept)):
                    break
            else:
                key.append(ZeroDerivative)
            for edge in node.edges:
                if edge is None:
                    key.append(None)
                    continue
                place = places.get(edge[0])
                if place is None:
                    place = found._add_leaf(node, cast("AccumulateGrad", edge[0]))
                    if place is None:
                        return found
                elif calls and edge[0] in calls:
                    calls[edge[0]].add(edge[1])
                key += place, edge[1]
        return found

    def _kept_by(self, node: OpNode) -> Any:
        """Where a node keeps tensors (`_kept_places`); None where the engine has something to say about the node."""
        known = None if node.rules is None else node.rules.get(_KEPT)
        has_hooks = not (node.tensor_hooks is node.retained is node.pre_hooks is node.post_hooks is None)
        if known is not None and not has_hooks and _PLAIN_CLASSES.get(type(node)):
            return known
        if has_hooks or not _is_plain_node(node):
            self.why = f"{_shown(node)} has hooks, or calls a function of its own"
            return None
        if node.rules is None:  # else that is what the kind says
            op = node.op
            plans = op.__dict__.get("_plans")
            self.key.append(id(plans_of(op) if plans is None else plans))  # one for equal ops
            self.key += [x for x in (*node.primals, *node.results) if isinstance(x, tuple | TensorType)]
        return _kept_places(node)

    def _add_saved(self, node: OpNode, kept: Sequence[tuple[bool, int, int]]) -> bool:
        """Note the tensors that a node has saved; False where the engine has something to say about one."""
        known, versions, edges = self.saved, node.versions, node.edges
        noted = None if isinstance(node, LastingNode) else self.kept
        for is_result, number, place in kept:
            entries = node.results if is_result else node.primals
            t = entries[number]
            if type(t) is not Tensor and getattr(type(t), "_array", None) is not _ARRAY:
                self.why = f"what {_shown(node)} has saved is packed, spent or of a class of its own"
                return False
            array, storage = t._array, t._storage
            if type(array) is not np.ndarray or (storage is not None and storage.version != versions[place]):
                self.why = f"what {_shown(node)} has saved was changed, or is no array"
                return False
            if t._grad_fn is None and not t._requires_grad and place < len(edges):
                edge = edges[place]
                if edge is not None and type(edge[0]) is not AccumulateGrad:
                    self.why = f"what {_shown(node)} has saved was detached since"
                    return False
            before = known.get(id(array))
            if before is None:
                self._add_array(t, array)
            else:
                self.key.append(before)
            if noted is not None:
                noted.append((entries, number))
        return True

    def _add_call(self, node: CallNode) -> bool:
        """Note what a native call has been given, of which its derivative is a graph; all that lead to it are noted."""
        if not node.is_ready():
            self.why = f"{_shown(node)} has hooks, is spent, or its operands were changed"
            return False
        self.key.append(node.passes.number)
        self.key += node.results
        for t in node.primals:
            array: Any = t._array
            if type(array) is not np.ndarray:
                self.why = f"what {_shown(node)} has saved is no array"
                return False
            before = self.saved.get(id(array))
            if before is None:
                self._add_array(t, array)
            else:
                self.key.append(before)
        return True

    def _add_array(self, t: Tensor, array: NDArray[np.generic]) -> None:
        """Note what a node has saved that no node before has."""
        number = self.saved[id(array)] = len(self.ways)
        memory, way = (array, None) if array.flags.c_contiguous else _way_to(t, array)
        is_part = _is_views(way)
        known = self.memories.setdefault(id(memory if is_part else array), (len(self.memories), memory))
        self.ways.append((known[0], way))
        self.key.append((number, known[0], array.shape, array.strides, array.dtype.num))
        if is_part:
            self.key.append((memory.shape, way))

    def _add_leaf(self, node: Node, leaf: AccumulateGrad) -> int | None:
        """The place of a leaf, below 0; None where the engine has something to say about it."""
        if not is_plain_leaf(leaf.variable):
            self.why = f"a leaf behind {_shown(node)} has hooks, or is of a class of its own"
            return None
        place = self.places[leaf] = -1 - len(self.leaves)
        self.leaves.append(leaf)
        return place

    def n_bytes(self) -> int:
        """Of the tensors that the nodes have saved."""
        return sum([array.nbytes for _, array in self.memories.values()])

    def arguments(self) -> list[Tensor]:
        """The memories of saved tensors without their histories: what has gaps would be copied."""
        return [wrap(array) for _, array in self.memories.values()]

    def copied_bytes(self) -> int:
        """Of arguments with gaps in memory, which a native call copies."""
        return sum([array.nbytes for _, array in self.memories.values() if not array.flags.c_contiguous])

    def release(self) -> None:
        """As the engine does after the rule of each node."""
        for entries, number in self.kept:
            entries[number] = FREED
        for node, taken in self.calls.items():
            node.taken = tuple(sorted(taken))
            node.release()


def _way_to(t: Tensor, array: Any) -> tuple[Any, Way]:
    """An array whose axes are in the order of memory, of the tensor or of what it is a view of, and the way from it."""
    axes = outermost_first(array)
    turned = array.transpose(axes)
    storage = t._storage
    if not turned.flags.c_contiguous and storage is not None and type(storage.array) is np.ndarray:
        root, chain = storage.array, storage_chain(t)
        is_of_root = array.base is root or (root.base is not None and array.base is root.base)
        if chain and is_of_root and root.flags.c_contiguous:
            return root, chain
    return turned, places_of(axes)


def _is_views(way: Way) -> bool:
    return any(type(part) is not int for part in way or ())


def seen(memory: Any, way: Way) -> Any:
    """What a node has saved, of the argument that holds it."""
    if way is None:
        return memory
    if not _is_views(way):
        return memory.permute(way)
    for op in way:
        memory = apply(cast("Op", op), memory)
    return memory


def _shown(node: Node) -> str:
    return f"{node.name()} ({node.source})"


def _is_zero(node: Node) -> bool:
    """Whether a node gives zeros, and nothing else."""
    return (
        type(node) is ZeroDerivative and node.tensor_hooks is node.retained is node.pre_hooks is node.post_hooks is None
    )


def _is_plain_node(node: OpNode) -> bool:
    """Whether nothing but its op's rule happens at a node."""
    known = _PLAIN_CLASSES.get(type(node))
    if known is None:
        kind = type(node)
        known = _PLAIN_CLASSES[kind] = kind.run is OpNode.run and not issubclass(kind, NotImplementedNode)
    if not known or not (node.tensor_hooks is node.retained is node.pre_hooks is node.post_hooks is None):
        return False
    op = node.op
    return not (op.is_call or op.calls_out or op.has_effect)


_PLAIN_CLASSES: dict[type, bool] = {}
_ARRAY = vars(Tensor)["_array"]  # of tensors that are nothing but their elements


def _kept_places(node: OpNode) -> Any:
    """Where a node keeps tensors: whether that is a result, its number, and its place among operands and results."""
    known: Any = None if node.rules is None else node.rules.get(_KEPT)
    if known is not None:
        return known
    entries = [(False, k, x) for k, x in enumerate(node.primals)] + [(True, k, x) for k, x in enumerate(node.results)]
    found = [(flag, k, place) for place, (flag, k, x) in enumerate(entries) if not isinstance(x, tuple | TensorType)]
    if node.rules is not None:
        node.rules[_KEPT] = found
    return found


_KEPT = "kept"  # among what is known of a kind of nodes


def ops_behind(root: Node) -> list[Node] | str:
    """The nodes of ops behind one, itself among them, in the order in which they run; or why there is more."""
    found: set[Any] = {root}
    stack = [root]
    while stack:
        for edge in stack.pop().edges:
            if edge is not None and (child := edge[0]) not in found and type(child) is not AccumulateGrad:
                if not isinstance(child, OpNode) and not _is_zero(child):
                    return f"{_shown(child)} is no op's"
                if len(found) >= MOST_NODES:
                    return f"it has more than {MOST_NODES} nodes"
                found.add(child)
                stack.append(child)
    return sorted(found, key=_by_sequence, reverse=True)


def kind_of(order: list[Node]) -> tuple[int, ...]:
    """The ops and types of nodes: passes that are alike have one kind, and it takes a fifth of a survey to find it."""
    found = tuple([id(node.rules) if isinstance(node, OpNode) else 0 for node in order])
    if _UNKNOWN in found:
        found += tuple([node.passes.number for node in order if isinstance(node, CallNode)])
    return found


_UNKNOWN = id(None)  # of nodes whose rules nobody notes
