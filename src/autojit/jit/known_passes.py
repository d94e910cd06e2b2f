"""Backward passes of eager histories that come again and again: compiled beside, then one native call.

A training loop without ``@aj.jit`` records the same ops on the same kinds of tensors in every round, and what the
engine computes from them is a function of the saved tensors alone. Where no hook, no custom function and no mode could
see it happen (`Survey`), a pass is known by its ops, types and edges. One that has come ``TIMES`` times is compiled on
another thread (`dispatch.awaited_kernels`): saved tensors go into one native call, gradients of leaves come out, and
the engine's own accumulation takes them. All else is left to the engine, which computes the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod
from operator import attrgetter
from typing import Any, NamedTuple, cast

import numpy as np

from autojit.autograd.accumulation import accumulate as accumulate_in_leaf
from autojit.autograd.engine import Walk, edge_type
from autojit.autograd.running import running
from autojit.core.ports import ports
from autojit.core.source import SourceLocation
from autojit.core.types import TensorType
from autojit.dispatch.awaited_kernels import awaited
from autojit.dispatch.dispatch import apply
from autojit.history.op_node import NotImplementedNode, OpNode, looked_at
from autojit.history.residual_plans import plans_of
from autojit.ir.op import Op
from autojit.jit.function import jit
from autojit.jit.outside_passes import is_plain_leaf, is_plain_now
from autojit.tensor.memory_orders import outermost_first, places_of
from autojit.tensor.node import FREED, AccumulateGrad, Meta, Node, type_of_meta
from autojit.tensor.state import grad_mode, state
from autojit.tensor.tensor import Tensor, storage_chain, type_of, wrap

TIMES = 16
"""How often a pass comes before it is compiled, and once more for every ``NODES_A_TIME`` nodes: compiling takes as long
as some hundred passes.
"""

NODES_A_TIME = 4
MOST_NODES = 512
"""Longer histories are loops over parts mostly: compiling one would hold up the loop for seconds."""

MOST_BYTES = 1 << 25
"""Of saved tensors. All are kept until the pass ends, where the engine lets go of them one by one."""

MOST_COPIED = 1 << 16
MOST_OF_GRADIENTS = 1 << 19
"""Bytes. Results of a native call are its own, so accumulation copies what it would take over from the engine."""

MOST_KINDS = 256
_by_sequence = attrgetter("sequence")


Way = tuple[int, ...] | tuple[Op, ...] | None
"""From an argument to what a node has saved: a permutation of axes, views one after the other, or nothing."""


class Survey:
    """What one look at a history has found, from one of its nodes down to the leaves."""

    __slots__ = ("kept", "key", "leaves", "memories", "order", "places", "saved", "ways", "why")

    def __init__(self, order: list[OpNode]) -> None:
        self.order = order
        self.places: dict[Any, int] = {node: place for place, node in enumerate(order)}
        self.leaves: list[AccumulateGrad] = []
        self.memories: dict[int, tuple[int, Any]] = {}  # what goes into the call: arrays by id, numbered
        self.saved: dict[int, int] = {}  # what nodes have saved, by id: numbers in ``ways``
        self.ways: list[tuple[int, Way]] = []
        self.kept: list[tuple[list[Any], int]] = []  # where nodes keep them
        self.key: list[Any] = []
        self.why = ""  # the engine has something to say about a pass

    @classmethod
    def of(cls, root: Node) -> Survey:
        """The history behind a node; with ``why`` where there is more to a pass than its rules."""
        order: list[OpNode] = []
        why = _ops_behind(root, order)
        found = cls(order)
        found.why = why
        if not why:
            for node in order:
                if not (found._add_node(node) and found._add_edges(node)):
                    break
        return found

    def _add_node(self, node: OpNode) -> bool:
        op = node.op
        if not _is_plain_node(node):
            self.why = f"{_shown(node)} has hooks, or calls a function of its own"
            return False
        plans = op.__dict__.get("_plans")
        key = self.key
        key.append(id(plans_of(op) if plans is None else plans))  # one for equal ops
        place = 0
        for entries in (node.primals, node.results):
            for number, entry in enumerate(entries):
                kind = type(entry)
                if kind is tuple or kind is TensorType:
                    key.append(entry)
                elif getattr(kind, "_array", None) is _ARRAY and self._add_saved(entry, node, place):
                    self.kept.append((entries, number))
                else:
                    self.why = self.why or f"what {_shown(node)} has saved is packed, spent or of a class of its own"
                    return False
                place += 1
        return True

    def _add_saved(self, t: Tensor, node: OpNode, place: int) -> bool:
        """Note a tensor that a node has saved; False where the engine has something to say about it."""
        array: Any = t._array
        storage = t._storage
        if type(array) is not np.ndarray or (storage is not None and storage.version != node.versions[place]):
            self.why = f"what {_shown(node)} has saved was changed, or is no array"
            return False
        if t._grad_fn is None and not t._requires_grad and place < len(node.edges):
            edge = node.edges[place]
            if edge is not None and type(edge[0]) is not AccumulateGrad:
                self.why = f"what {_shown(node)} has saved was detached since"
                return False
        number = self.saved.get(id(array))
        if number is None:
            number = self.saved[id(array)] = len(self.ways)
            memory, way = (array, None) if array.flags.c_contiguous else _way_to(t, array)
            is_part = _is_views(way)
            known = self.memories.setdefault(id(memory if is_part else array), (len(self.memories), memory))
            self.ways.append((known[0], way))
            self.key.append((number, known[0], array.shape, array.strides, array.dtype.num))
            if is_part:
                self.key.append((memory.shape, way))
        else:
            self.key.append(number)
        return True

    def _add_edges(self, node: OpNode) -> bool:
        key, places = self.key, self.places
        for edge in node.edges:
            if edge is None:
                key.append(None)
                continue
            child: Any = edge[0]
            number = edge[1]
            place = places.get(child)
            if place is None:
                if not is_plain_leaf(child.variable):
                    self.why = f"a leaf behind {_shown(node)} has hooks, or is of a class of its own"
                    return False
                place = places[child] = -1 - len(self.leaves)
                self.leaves.append(child)
            key.append(place)
            key.append(number)
        return True

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
    return bool(way) and type(way[0]) is not int  # type: ignore[index]


def _seen(memory: Any, way: Way) -> Any:
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


def _place_of(x: Any, survey: Survey) -> int:
    """Which leaf of a history a tensor is, below 0; 0 for none."""
    if not isinstance(x, Tensor):
        return 0
    reference = x._accumulator
    return 0 if x._grad_fn is not None or reference is None else survey.places.get(reference(), 0)


def _ops_behind(root: Node, order: list[OpNode]) -> str:
    """Fill in the nodes of ops behind one, itself among them, in the order in which they run; or why there is more."""
    found: set[Any] = {root}
    stack = [root]
    while stack:
        for edge in stack.pop().edges:
            if edge is not None and (child := edge[0]) not in found and type(child) is not AccumulateGrad:
                if not isinstance(child, OpNode):
                    return f"{_shown(child)} is no op's"
                if len(found) >= MOST_NODES:
                    return f"it has more than {MOST_NODES} nodes"
                found.add(child)
                stack.append(child)
    order += sorted(found, key=_by_sequence, reverse=True)
    return ""


class _Rule(NamedTuple):
    """One node of a pass: places of saved tensors, or types; edges by place, leaves below 0."""

    op: Op
    outputs: Sequence[Meta]
    primals: list[Any]
    results: list[Any]
    edges: list[tuple[int, int] | None]
    source: SourceLocation


class _Node(OpNode):
    """A node of the history that is made again inside a pass: its saved tensors are arguments."""

    __slots__ = ()

    def check_not_detached(self, t: Tensor, place: int) -> None:
        """Arguments have no histories: `Survey` has looked at the tensors that they stand for."""


class Pass:
    """A backward pass as a function of the saved tensors: the engine walks over a history of arguments.

    Args:
        survey: the history.
        number: which output of its first node the pass is from.
        wanted: places of leaves, if not all.
    """

    def __init__(self, survey: Survey, number: int, wanted: Sequence[int] | None) -> None:
        self.number = number
        self.wanted = tuple([-1 - k for k in range(len(survey.leaves))]) if wanted is None else wanted
        self.leaf_types = [type_of(leaf.variable) for leaf in survey.leaves]
        self.ways = list(survey.ways)
        self.rules = [self._rule(node, survey) for node in survey.order]
        self.step = jit(self.run)

    @staticmethod
    def _rule(node: OpNode, survey: Survey) -> _Rule:
        def kept(entry: Any) -> Any:
            return survey.saved[id(entry._array)] if isinstance(entry, Tensor) else entry

        edges = [None if e is None else (survey.places[e[0]], e[1]) for e in node.edges]
        primals, results = [kept(x) for x in node.primals], [kept(x) for x in node.results]
        return _Rule(node.op, node.out_metas, primals, results, edges, node.source)

    def run(self, *memories: Tensor) -> tuple[Any, ...]:
        """The gradients of the leaves that are wanted."""
        with grad_mode(False):
            root, leaves = self._history([_seen(memories[number], way) for number, way in self.ways])
        targets = [(leaves[-1 - place], 0) for place in self.wanted]
        walk = Walk(keep_graph=False, targets=targets, accumulate=False, is_masked=False)
        one = Tensor._literal_of(1, edge_type((root, self.number)))
        found = walk.start([((root, self.number), one)], create_graph=False)
        return tuple([found.get(target) for target in targets])

    def _history(self, saved: Sequence[Tensor]) -> tuple[Node, list[Node]]:
        """The first node of a fresh history on these tensors, and its leaves."""
        leaves = [Node() for _ in self.leaf_types]
        for leaf, kind in zip(leaves, self.leaf_types, strict=True):
            leaf.out_metas = (kind,)
        nodes: list[Any] = [None] * len(self.rules)
        for place in range(len(nodes) - 1, -1, -1):  # later ones get greater numbers
            rule, node = self.rules[place], _Node()
            node.op, node.out_metas, node.source = rule.op, rule.outputs, rule.source
            ends = [None if e is None else (leaves[-1 - e[0]] if e[0] < 0 else nodes[e[0]], e[1]) for e in rule.edges]
            node.edges, node.mask = ends, sum([1 << k for k, e in enumerate(ends) if e is not None])
            node.primals = [saved[x] if type(x) is int else x for x in rule.primals]
            node.results = [saved[x] if type(x) is int else x for x in rule.results]
            kept = [*node.primals, *node.results]
            node.versions = [x._storage.version if isinstance(x, Tensor) and x._storage else 0 for x in kept]
            nodes[place] = node
        return nodes[0], leaves


class KnownPasses:
    """The passes of the process, by their keys."""

    def __init__(self) -> None:
        self._met: Counter[tuple[Any, ...]] = Counter()
        self.lines: dict[tuple[int, int], Line] = {}  # of programs, that were looked at

    def backward(self, root: OpNode, number: int, keep: bool) -> bool:
        """Do a pass that adds to ``.grad`` of all leaves; False: the engine has to do it."""
        survey = self._surveyed(root, number)
        step = None if survey is None else self._step(survey, number, None, root)
        if step is None:
            return False
        assert survey is not None
        made = list(step(*survey.arguments()))
        made.reverse()
        with grad_mode(False):
            for leaf in survey.leaves:
                accumulate_in_leaf(leaf, [made.pop()])
        if not keep:
            survey.release()
        return True

    def asked(self, root: OpNode, number: int, inputs: Sequence[Any], keep: bool) -> tuple[Tensor, ...] | None:
        """The gradients by some leaves; None: the engine has to do it."""
        survey = self._surveyed(root, number)
        if survey is None:
            return None
        wanted = tuple([_place_of(x, survey) for x in inputs])
        if max(wanted, default=0) >= 0 or len(set(wanted)) < len(wanted):
            self._tell(root, "gradients of other tensors than leaves are asked for")
            return None
        step = self._step(survey, number, wanted, root)
        if step is None:
            return None
        made: tuple[Tensor, ...] = step(*survey.arguments())
        if not keep:
            survey.release()
        return made

    def _surveyed(self, root: OpNode, number: int) -> Survey | None:
        if awaited.at_once or awaited.is_settled or running.depth:
            return None
        made = type_of_meta(root.out_metas[number])
        if made.shape or not made.dtype.is_floating_point or Node.renumbered:
            self._tell(root, "it is not of one floating-point number")
            return None
        now = state.__dict__
        if not now["grad_enabled"] or now["inference"] or now["reference"] or not is_plain_now():
            return None
        found = Survey.of(root)
        if found.why:
            self._tell(root, found.why)
            return None
        return found

    def _step(self, survey: Survey, number: int, wanted: tuple[int, ...] | None, root: OpNode) -> Any:
        """The native call of a pass, if it is there."""
        key = (number, wanted, *survey.key)
        self._met[key] += 1
        times = self._met[key]
        if times <= TIMES + len(survey.order) // NODES_A_TIME:
            if len(self._met) > MOST_KINDS:
                self._met.clear()
            self._tell(root, "it has not come often enough", is_known=times > 1)
            return None
        found = awaited.find(("pass", key), lambda: _made(survey, number, wanted))
        if type(found) is Pass:
            self._tell(root, "", is_known=True)
            return found.step._entries[1]
        self._tell(root, found or "it is being compiled", is_known=found is None)
        return None

    def _tell(self, root: OpNode, why: str, is_known: bool = False) -> None:
        """Note what became of a pass; of lines whose passes stay unknown no more are looked at."""
        place = root.source
        looked_at(root, is_known)
        key = id(place.code), place.instruction
        line = self.lines.get(key)
        if line is None:
            if len(self.lines) >= MOST_KINDS:
                self.lines.clear()
            line = self.lines[key] = Line(place)
        line.why = why
        line.looks += 1
        line.native += not why


class Line:
    """What became of the passes that begin at one line: how many were looked at, and native; why the last was not."""

    __slots__ = ("looks", "native", "place", "why")

    def __init__(self, place: SourceLocation) -> None:
        self.place = place
        self.looks = self.native = 0
        self.why = ""

    def __str__(self) -> str:
        counts = f"{self.place}: {self.native} of {self.looks} passes that were looked at were one native call"
        return f"{counts}; the engine's: {self.why}" if self.why else counts


def _made(survey: Survey, number: int, wanted: tuple[int, ...] | None) -> Pass | str:
    """The pass with a native step, or why it stays the engine's."""
    reached = survey.leaves if wanted is None else [survey.leaves[-1 - k] for k in wanted]
    kinds = [type_of(leaf.variable) for leaf in reached]
    if survey.n_bytes() > MOST_BYTES:
        return f"it has saved more than {MOST_BYTES} bytes"
    if survey.copied_bytes() > MOST_COPIED:
        return f"more than {MOST_COPIED} bytes would be copied to close gaps"
    if sum([prod(kind.shape) * kind.dtype.numpy.itemsize for kind in kinds]) > MOST_OF_GRADIENTS:
        return f"its gradients have more than {MOST_OF_GRADIENTS} bytes"
    try:
        made = Pass(survey, number, wanted)
        found = made.step(*survey.arguments())
    except Exception as error:  # a program that the engine runs does not end by it; tests take it for a defect
        return f"raised {type(error).__name__}: {error}"
    if not all(type(t) is Tensor for t in found):
        return "a gradient is no plain tensor"
    return made if made.step._entries[1] is not None else f"not native: {made.step.stats()}"


ports.passes = KnownPasses()
