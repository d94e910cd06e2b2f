"""The graph in which some values are computed again, late."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from autojit.core.records import record
from autojit.ir.graph import Graph, Node, Value
from autojit.ops.ordering import WITHOUT_ORDER, Later
from autojit.schedule.lives import Lives


@record
class Stretch:
    """Values that are computed again together.

    Attributes:
        values: those that are read late.
        again: what is computed for them.
        leaves: what that starts from.
        needed: the time before which all is there.
        work: what it costs, in elements of a loop.
    """

    values: frozenset[Value]
    again: frozenset[Value]
    leaves: frozenset[Value]
    needed: int
    work: float


class LateCopies:
    """Builds the graph in the order of a schedule, so that every copy stands where it is needed first.

    Args:
        stretches: those needed first, first.
    """

    def __init__(self, graph: Graph, lives: Lives, stretches: Sequence[Stretch]) -> None:
        self.before = graph
        self.lives = lives
        self.stretches = stretches
        self.peak = lives.peak
        self.definitions = graph.definitions()
        self.place = {v: k for k, node in enumerate(graph.nodes) for v in node.outputs}
        self.nodes: list[Node] = []
        self.done: set[Value] = set(graph.inputs)
        self.late: dict[Value, Value] = {}  # by name in the graph before, what late nodes read

    def graph(self) -> Graph:
        """See the class. O(nodes)."""
        by_time: dict[int, list[Node]] = {}
        for node in self.before.nodes:
            time = self.lives.made.get(node.outputs[0])
            if time is not None:
                by_time.setdefault(time, []).append(node)
        waiting = list(self.stretches)
        for time in range(len(self.lives.planned.kernels)):
            while waiting and waiting[0].needed == time:
                self._copy(waiting.pop(0))
            for node in by_time.get(time, ()):
                self._emit(node, is_late=time > self.peak)
        for node in self.before.nodes:  # asked for what they refuse, or shown by results
            if node.is_asked and node.outputs[0] not in self.done:
                self._emit(node, is_late=False)
        for value in self.before.outputs:
            self._early(value)
        return Graph(self.before.inputs, tuple(self.nodes), self.before.outputs)

    def _emit(self, node: Node, is_late: bool) -> None:
        if node.outputs[0] in self.done:
            return
        read = self._late if is_late else self._early
        inputs = tuple([read(v) for v in node.inputs])
        self.nodes.append(Node(node.op, inputs, node.outputs, node.source))
        self.done.update(node.outputs)

    def _early(self, value: Value) -> Value:
        """A value under its own name: ops that readers compute themselves are put in front of the first of them."""
        stack = [value]
        while stack:
            top = stack[-1]
            missing = [] if top in self.done else [v for v in self.definitions[top].inputs if v not in self.done]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            if top not in self.done:
                node = self.definitions[top]
                self.nodes.append(node)
                self.done.update(node.outputs)
        return value

    def _late(self, value: Value) -> Value:
        """What a late node reads for a value."""
        found = self.late.get(value)
        if found is not None:
            return found
        if value in self.done and value in self.lives.made:
            return value
        node = self.definitions.get(value)
        if node is None or value in self.lives.made:
            return self._early(value)
        inputs = tuple([self._late(v) for v in node.inputs])  # chains of these are short: they are followed in one nest
        if inputs == node.inputs:
            return self._early(value)
        outputs = tuple([Value(v.type) for v in node.outputs])
        self.nodes.append(Node(node.op, inputs, outputs, node.source))
        self.late.update(zip(node.outputs, outputs, strict=True))
        return self.late[value]

    def _copy(self, stretch: Stretch) -> None:
        """Compute a stretch again."""
        after = self._awaited(stretch)
        names: dict[Value, Value] = {}
        for leaf in sorted(stretch.leaves, key=lambda v: self.place.get(v, -1)):
            names[leaf] = self._later(self._early(leaf), after)
        for place in sorted({self.place[v] for v in stretch.again}):
            node = self.before.nodes[place]
            if not node.inputs:  # of which nothing is read: readers compute it themselves
                names.update((v, self._early(v)) for v in node.outputs)
                continue
            outputs = tuple([Value(v.type) for v in node.outputs])
            self.nodes.append(Node(node.op, tuple([names[v] for v in node.inputs]), outputs, node.source))
            names.update(zip(node.outputs, outputs, strict=True))
        self.late.update((v, names[v]) for v in stretch.values)

    def _awaited(self, stretch: Stretch) -> Value | None:
        """What is stored last before the stretch is needed."""
        for time in range(stretch.needed - 1, self.peak - 1, -1):
            for value in self.lives.planned.kernels[time].writes():
                if value in self.done and value in self.definitions:
                    return value
        return None

    def _later(self, leaf: Value, after: Value | None) -> Value:
        kind, shape = leaf.type.dtype.kind, leaf.type.shape
        if after is None or kind in WITHOUT_ORDER or prod(shape) == 1 or leaf.type.device != after.type.device:
            return leaf
        made = Value(leaf.type)
        self.nodes.append(Node(Later(), (leaf, after), (made,)))
        return made
