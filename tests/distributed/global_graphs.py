"""All ranks of a group in one graph: what varies has the ranks as its first axis, what is replicated is there once.

Collectives become ordinary ops along that axis, other ops are batched. So a program of many ranks runs in one process
without any engine, and can be differentiated as one function: the reference for the adjoints of collectives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autojit.ir.builder import GraphBuilder
from autojit.ir.graph import Graph, Value
from autojit.ops.collectives import Wait
from autojit.ops.ranks import OwnPart, Pvary, Rank, for_all, simulating
from autojit.ops.sources import arange
from autojit.transforms.vmap import batch_node
from tests.distributed.rank_kinds import of_group, require_rank_outside, with_pvary


def global_graph(graph: Graph, group: str, size: int, varying: Sequence[bool]) -> tuple[Graph, tuple[bool, ...]]:
    """The graph for all ranks at once, and which of its outputs vary.

    Inputs flagged ``varying`` gain a first axis of ``size``; so do the outputs that vary. Time O(nodes + edges).
    """
    require_rank_outside(graph, group)
    typed = with_pvary(graph, group, size, varying)
    builder = GraphBuilder()
    known: dict[Value, tuple[Any, bool]] = {}
    for value, flag in zip(typed.inputs, varying, strict=True):
        type = value.type.with_shape((size, *value.type.shape)) if flag else value.type
        known[value] = builder.tracer(builder.input(type, value.name)), flag
    assert known, "what makes sources needs an operand to be like"
    like = next(iter(known.values()))[0]
    with simulating(group):
        for node in typed.nodes:
            builder.source = node.source
            op: Any = node.op
            if of_group(node, group):
                known[node.output] = _stacked(op, [known[v] for v in node.inputs], like)
                continue
            args = [known[v] for v in node.inputs]
            results, flag = batch_node(op, [x for x, _ in args], [f for _, f in args], like)
            known.update((v, (y, flag)) for v, y in zip(node.outputs, results, strict=True))
    found = [known[v] for v in typed.outputs]
    return builder.finish([y.value for y, _ in found]), tuple([flag for _, flag in found])


def _stacked(op: Any, operands: Sequence[tuple[Any, bool]], like: Any) -> tuple[Any, bool]:
    """An op of the group for all ranks at once."""
    if isinstance(op, Rank):
        return arange(like, op.size), True
    x, is_varying = operands[0]
    if isinstance(op, Wait):
        return x, is_varying
    if isinstance(op, Pvary):
        return for_all(x, op.size), True
    assert is_varying or isinstance(op, OwnPart), "with_pvary gives collectives what varies"
    found: tuple[Any, bool] = op.stacked(x)
    return found
