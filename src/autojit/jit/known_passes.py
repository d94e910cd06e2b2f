"""Backward passes of eager histories that come again and again: compiled beside, then one native call.

A training loop without ``@aj.jit`` records the same ops on the same kinds of tensors in every round, and what the
engine computes from them is a function of the saved tensors alone. Where no hook, no custom function and no mode could
see it happen (`Survey`), a pass is known by its ops, types and edges. One that has come ``TIMES`` times is compiled on
another thread (`dispatch.awaited_kernels`): saved tensors go into one native call, gradients of leaves come out, and
the engine's own accumulation takes them. All else is left to the engine, which computes the same.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

from autojit.autograd.accumulation import accumulate as accumulate_in_leaf
from autojit.autograd.edges import edge_type
from autojit.autograd.engine import Walk
from autojit.autograd.running import running
from autojit.core.ports import ports
from autojit.core.source import SourceLocation
from autojit.dispatch.awaited_kernels import awaited
from autojit.history.op_node import OpNode, Rule, ZeroDerivative, looked_at
from autojit.ir.op import Op
from autojit.jit.call_node import CallNode
from autojit.jit.function import jit
from autojit.jit.outside_passes import OutsidePasses, is_plain_now
from autojit.jit.surveys import Survey, kind_of, ops_behind, seen
from autojit.tensor.node import ZERO, Meta, Node, type_of_meta
from autojit.tensor.state import grad_mode, state
from autojit.tensor.tensor import Tensor, type_of
from autojit.transforms.adjoint import accumulate

TIMES = 16
"""How often a pass comes before it is compiled, and once more for every ``NODES_A_TIME`` nodes: compiling takes as long
as some hundred passes are then faster, whatever their length (19 nodes: 55, 333 nodes: 60 to 200).
"""

NODES_A_TIME = 16
SURE = 4
"""How many of these times one key has to come among passes of its kind; of another key as many more."""

MOST_BYTES = 1 << 25
"""Of saved tensors. All are kept until the pass ends, where the engine lets go of them one by one."""

MOST_COPIED = 1 << 16
MOST_OF_GRADIENTS = 1 << 19
"""Bytes. Results of a native call are its own, so accumulation copies what it would take over from the engine."""

MOST_KINDS = 1024


def _place_of(x: Any, survey: Survey) -> int:
    """Which leaf of a history a tensor is, below 0; 0 for none."""
    if not isinstance(x, Tensor):
        return 0
    reference = x._accumulator
    return 0 if x._grad_fn is not None or reference is None else survey.places.get(reference(), 0)


class _Rule(NamedTuple):
    """One node of a pass: places of saved tensors, or types; edges by place, leaves below 0.

    ``passes`` are those of a native call; weak, as they lead to a step's state: whoever asks for the rule has such a
    node.
    """

    op: Op | None  # None: zeros, or a native call
    outputs: Sequence[Meta]
    primals: list[Any]
    results: list[Any]
    edges: list[tuple[int, int] | None]
    source: SourceLocation
    passes: weakref.ref[OutsidePasses] | None = None


class _Node(OpNode):
    """A node of the history that is made again inside a pass: its saved tensors are arguments."""

    __slots__ = ()

    def check_not_detached(self, t: Tensor, place: int) -> None:
        """Arguments have no histories: `Survey` has looked at the tensors that they stand for."""


class _Call(_Node):
    """The node of a native call, inside a pass: its derivative becomes part of the pass."""

    __slots__ = ("passes",)
    passes: OutsidePasses

    def run(self, grads: list[Any], wanted: tuple[bool, ...], accumulate: Rule = accumulate) -> Sequence[Any]:
        bars = {k: self._zeros(k) if grad is ZERO else grad for k, grad in enumerate(grads) if grad is not None}
        found = self.passes.derivative_of(self.primals, bars)
        return [found.get(place) if is_wanted else None for place, is_wanted in enumerate(wanted)]

    def release(self) -> None:
        """It is made for one pass, and its operands are arguments."""


def _node_of(rule: _Rule, saved: Sequence[Tensor]) -> OpNode:
    """A fresh node without its edges."""
    node: _Node
    if rule.passes is not None:
        passes = rule.passes()
        assert passes is not None, "a pass is asked for by its nodes, which keep what they are of"
        node = _Call()
        node.passes, node.op = passes, passes.op
    else:
        assert rule.op is not None
        node = _Node()
        node.op = rule.op
    node.mask = sum([1 << k for k, e in enumerate(rule.edges) if e is not None])
    node.primals = [saved[x] if type(x) is int else x for x in rule.primals]
    node.results = [saved[x] if type(x) is int else x for x in rule.results]
    kept = [*node.primals, *node.results]
    node.versions = [x._storage.version if isinstance(x, Tensor) and x._storage else 0 for x in kept]
    return node


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
        self.kinds = [node.rules for node in survey.order if isinstance(node, OpNode)]  # which the key names by id
        self.rules = [self._rule(node, survey) for node in survey.order]
        self.step = jit(self.run)

    @staticmethod
    def _rule(node: Node, survey: Survey) -> _Rule:
        def kept(entry: Any) -> Any:
            return survey.saved[id(entry._array)] if isinstance(entry, Tensor) else entry

        edges = [None if e is None else (survey.places[e[0]], e[1]) for e in node.edges]
        if not isinstance(node, OpNode):
            return _Rule(None, node.out_metas, [], [], edges, node.source)
        primals = [kept(x) for x in node.primals]
        if isinstance(node, CallNode):
            return _Rule(None, node.out_metas, primals, [], edges, node.source, weakref.ref(node.passes))
        results = [kept(x) for x in node.results]
        return _Rule(node.op, node.out_metas, primals, results, edges, node.source)

    def run(self, *memories: Tensor) -> tuple[Any, ...]:
        """The gradients of the leaves that are wanted."""
        with grad_mode(False):
            root, leaves = self._history([seen(memories[number], way) for number, way in self.ways])
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
            rule = self.rules[place]
            is_zero = rule.op is None and rule.passes is None
            node = ZeroDerivative() if is_zero else _node_of(rule, saved)
            ends = [None if e is None else (leaves[-1 - e[0]] if e[0] < 0 else nodes[e[0]], e[1]) for e in rule.edges]
            node.edges, node.out_metas, node.source = ends, rule.outputs, rule.source
            nodes[place] = node
        return nodes[0], leaves


class _Key:
    """What a pass is known by: thousands of numbers, whose hash is taken once."""

    __slots__ = ("_hash", "_parts")

    def __init__(self, parts: tuple[Any, ...]) -> None:
        self._parts = parts
        self._hash = hash(parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is _Key and self._parts == other._parts)


class _Met:
    """How often a key has come, and whether it is compiled: ``key`` is the one that came first."""

    __slots__ = ("is_taken", "key", "times")

    def __init__(self, key: _Key) -> None:
        self.key = key
        self.times = 0
        self.is_taken = False


class KnownPasses:
    """The passes of the process, by their keys."""

    def __init__(self) -> None:
        self._met: dict[_Key, _Met] = {}
        self._kinds: Counter[tuple[Any, ...]] = Counter()  # how many passes of a kind there were
        self._compiled: Counter[tuple[Any, ...]] = Counter()  # and how many keys of it have been compiled
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
        if Node.renumbered:
            self._tell(root, "a node has a number of its own (_set_sequence_nr)")
            return None
        if made.shape or not made.dtype.is_floating_point:
            self._tell(root, "it is not of one floating-point number")
            return None
        now = state.__dict__
        if not now["grad_enabled"] or now["inference"] or now["reference"] or not is_plain_now():
            return None
        order = ops_behind(root)
        if isinstance(order, str):
            self._tell(root, order)
            return None
        kind = (number, *kind_of(order))
        if not self._comes_often(root, kind):
            return None
        found = Survey.of(order, kind)
        if found.why:
            self._tell(root, found.why)
            return None
        return found

    def _comes_often(self, root: OpNode, kind: tuple[int, ...]) -> bool:
        """Whether passes of a kind have come often enough for a look at what their nodes have saved."""
        times = self._kinds[kind] = self._kinds[kind] + 1
        if times + SURE > TIMES + len(kind) // NODES_A_TIME:
            return True
        self._forget_if_many()
        self._tell(root, "it has not come often enough", is_known=times > 1)
        return False

    def _step(self, survey: Survey, number: int, wanted: tuple[int, ...] | None, root: OpNode) -> Any:
        """The native call of a pass, if it is there."""
        key = _Key((wanted, survey.kind, *survey.key))
        met = self._met.get(key)
        if met is None:
            met = self._met[key] = _Met(key)
        met.times += 1
        if not met.is_taken:
            if met.times <= SURE + TIMES * self._compiled[survey.kind]:
                self._forget_if_many()
                self._tell(root, "it has not come often enough", is_known=met.times > 1)
                return None
            met.is_taken = True
            self._compiled[survey.kind] += 1
        found = awaited.find(("pass", met.key), lambda: _made(survey, number, wanted))
        if type(found) is Pass:
            self._tell(root, "", is_known=True)
            return found.step._entries[1]
        self._tell(root, found or "it is being compiled", is_known=found is None)
        return None

    def _forget_if_many(self) -> None:
        if max(len(self._met), len(self._kinds)) > MOST_KINDS:
            self._met.clear()
            self._kinds.clear()
            self._compiled.clear()

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


passes = ports.passes = KnownPasses()
