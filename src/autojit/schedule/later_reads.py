"""Later reads: what a node waits for because an operand may be had only later (`ops.ordering.Later`), or because both
call users' functions, which happens in the program's order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from itertools import pairwise

from autojit.ir.graph import Graph, Node, Value
from autojit.ops.ordering import Later
from autojit.schedule.groups import Group
from autojit.schedule.kinds import Kind


class LaterReads:
    """For every node, the stored values that must exist before it may run, though it reads nothing of them.

    Args:
        behind: the stored values that an operand is computed from.
    """

    def __init__(
        self,
        graph: Graph,
        kinds: Mapping[Node, Kind],
        inline: AbstractSet[Value],
        behind: Callable[[Value], tuple[Value, ...]],
    ) -> None:
        self._kinds = kinds
        self._awaited: dict[Value, tuple[Value, ...]] = {}  # by inline value
        calling = [node for node in graph.nodes if node.op.calls_out]
        self._called_before = {node: before.outputs[0] for before, node in pairwise(calling)}
        if any(isinstance(node.op, Later) for node in graph.nodes):
            self._sweep(graph, inline, behind)

    def __bool__(self) -> bool:
        return bool(self._awaited or self._called_before)

    def awaited_by(self, node: Node) -> tuple[Value, ...]:
        """See the class."""
        if not self:
            return ()
        values = (*node.inputs, *node.outputs) if self._kinds[node] is Kind.INLINE else node.inputs
        called = [self._called_before[node]] if node in self._called_before else []
        return tuple(dict.fromkeys([*called, *(v for operand in values for v in self._awaited.get(operand, ()))]))

    def owners(self, unit: Group | Node, owner: Mapping[Value, int]) -> set[int]:
        """The units that one waits for without reading from them."""
        values = unit.awaited if isinstance(unit, Group) else self.awaited_by(unit)
        return {owner[v] for v in values if v in owner}

    def _sweep(self, graph: Graph, inline: AbstractSet[Value], behind: Callable[[Value], tuple[Value, ...]]) -> None:
        for node in graph.nodes:
            if node.outputs[0] not in inline:
                continue
            found = [v for operand in node.inputs for v in self._awaited.get(operand, ())]
            if isinstance(node.op, Later):
                x, after = node.inputs
                found = [*self._awaited.get(x, ()), *(behind(after) if after in inline else (after,))]
            if found:
                self._awaited[node.outputs[0]] = tuple(dict.fromkeys(found))
