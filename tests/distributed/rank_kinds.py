"""Which values of a graph vary over the ranks of a group, and what makes a graph say so (`ops.collectives`).

An input is replicated or varying as the caller says, a source is replicated, a collective says what it makes, and
another op's result varies if an operand does. Where replicated and varying operands meet, the replicated one enters as
``pvary``: on every rank it has a part in results of that rank alone, so its cotangents are summed over the ranks. With
that in the graph, the adjoint of the graph is the adjoint of what all ranks compute together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autojit.core.errors import UsageError
from autojit.ir.builder import GraphBuilder
from autojit.ir.graph import Graph, Node, Value
from autojit.ops.control_flow import HoldsGraphs
from autojit.ops.ranks import OfGroup, OwnPart, Pvary, Rank

Kinds = Mapping[Value, bool]
"""Of every value, whether it varies."""


def of_group(node: Node, group: str) -> bool:
    """Whether a node is a collective, or another op, of a group."""
    return isinstance(node.op, OfGroup) and node.op.group == group


def rank_kinds(graph: Graph, group: str, varying: Sequence[bool]) -> Kinds:
    """Of every value, whether it varies over the group; ``varying`` says it of the inputs. Time O(edges)."""
    kinds = dict(zip(graph.inputs, varying, strict=True))
    for node in graph.nodes:
        op: Any = node.op
        is_varying = any(kinds[v] for v in node.inputs)
        if of_group(node, group):
            is_varying = op.varies(is_varying)
        elif isinstance(op, HoldsGraphs) and _uses(op, group):
            is_varying = True
        kinds.update((v, is_varying) for v in node.outputs)
    return kinds


def with_pvary(graph: Graph, group: str, size: int, varying: Sequence[bool]) -> Graph:
    """The graph with a ``pvary`` wherever a replicated value becomes a varying one without saying so.

    Preserves every rank's results; the adjoint is another one. Time O(nodes + edges).

    Raises:
        UsageError: what takes a replicated value is given a varying one.
    """
    builder = GraphBuilder(graph.inputs)
    kinds = dict(zip(graph.inputs, varying, strict=True))
    names: dict[Value, Value] = {v: v for v in graph.inputs}
    made: dict[Value, Value] = {}  # by replicated value: the varying one

    def varied(value: Value) -> Value:
        if kinds[value]:
            return names[value]
        if value not in made:
            (made[value],) = builder.apply(Pvary(group, size), (names[value],))
        return made[value]

    for node in graph.nodes:
        builder.source = node.source
        op: Any = node.op
        is_varying = any(kinds[v] for v in node.inputs)
        takes_varying = is_varying
        if of_group(node, group):
            _check(node, is_varying)
            takes_varying = op.takes_varying
            is_varying = op.varies(is_varying)
        elif isinstance(op, HoldsGraphs) and (is_varying or _uses(op, group)):
            op = op.with_graphs([_inside(inner, group, size) for inner in op.graphs()])
            is_varying = takes_varying = True
        inputs = [varied(v) if takes_varying else names[v] for v in node.inputs]
        outputs = builder.apply(op, inputs, node.source)
        names.update(zip(node.outputs, outputs, strict=True))
        kinds.update((v, is_varying) for v in node.outputs)
    return builder.finish([names[v] for v in graph.outputs])


def _check(node: Node, is_varying: bool) -> None:
    if isinstance(node.op, OwnPart | Pvary) and is_varying:
        raise UsageError(
            f"{node.op.shown_name}: the operand differs from rank to rank already",
            {"operand": node.inputs[0].type, "at": node.source},
            "use the value itself",
        )


def _uses(op: HoldsGraphs, group: str) -> bool:
    """Whether a graph of a branch or loop has something of a group in it."""
    inner = [node for graph in op.graphs() for node in graph.nodes]
    return any(of_group(n, group) or (isinstance(n.op, HoldsGraphs) and _uses(n.op, group)) for n in inner)


def _inside(graph: Graph, group: str, size: int) -> Graph:
    """The body of a branch or loop, whose operands and results all vary."""
    flags = [True] * len(graph.inputs)
    typed = with_pvary(graph, group, size, flags)
    kinds = rank_kinds(typed, group, flags)
    builder = GraphBuilder(typed.inputs, typed.nodes)
    outputs = [v if kinds[v] else builder.apply(Pvary(group, size), (v,))[0] for v in typed.outputs]
    return builder.finish(outputs)


def require_rank_outside(graph: Graph, group: str, is_body: bool = False) -> None:
    """Refuse a branch or loop that asks for the number of its rank: a batch of it would not know which one it is.

    Raises:
        UsageError: one does.
    """
    for node in graph.nodes:
        if is_body and isinstance(node.op, Rank) and node.op.group == group:
            raise UsageError(
                "a branch or loop asks for its rank, which a simulation of all ranks cannot tell it",
                {"at": node.source},
                "ask for the rank outside, and use it inside",
            )
        if isinstance(node.op, HoldsGraphs):
            for inner in node.op.graphs():
                require_rank_outside(inner, group, is_body=True)
