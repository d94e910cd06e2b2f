"""vmap: a leading batch axis on chosen inputs, carried through by the ops' batching rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autojit.core.errors import ShapeError
from autojit.ir.builder import GraphBuilder
from autojit.ir.graph import Graph, Value
from autojit.ir.op import Op, bind
from autojit.ops.shape import broadcast_to, reshape


def batch_node(op: Op, args: Sequence[Any], batched: Sequence[bool], like: Any) -> tuple[list[Any], bool]:
    """One node with batched operands: its results and whether they have the batch axis.

    Without a batched operand the op is applied once for the whole batch; ``like`` says where sources are recorded.
    """
    if any(batched):
        results = op.batch(list(args), tuple(batched))
        return (list(results) if op.n_outputs > 1 else [results]), True
    results = bind(op, *args) if args else like._bind(op, ())
    return (list(results) if op.n_outputs > 1 else [results]), False


def vmap(graph: Graph, batched: Sequence[bool], size: int, leading: Sequence[bool] | None = None) -> Graph:
    """The graph over a batch of ``size``: flagged inputs gain a leading axis, and so do all outputs.

    Outputs that do not depend on a flagged input are repeated; with ``leading`` only those that it flags, the others
    stay as they are. Time O(nodes + edges).

    Raises:
        ShapeError: no input is flagged.
    """
    if not any(batched):
        raise ShapeError("vmap: at least one input must have the batch axis")
    builder = GraphBuilder()
    environment: dict[Value, tuple[Any, bool]] = {}
    for value, flag in zip(graph.inputs, batched, strict=True):
        type = value.type.with_shape((size, *value.type.shape)) if flag else value.type
        environment[value] = builder.tracer(builder.input(type, value.name)), flag
    like = next(iter(environment.values()))[0]
    for node in graph.nodes:
        builder.source = node.source
        args = [environment[v] for v in node.inputs]
        results, flag = batch_node(node.op, [a for a, _ in args], [f for _, f in args], like)
        environment.update((v, (y, flag)) for v, y in zip(node.outputs, results, strict=True))
    wanted = leading or (True,) * len(graph.outputs)
    found = [environment[v] for v in graph.outputs]
    return builder.finish(
        [_lead(y, flag or not lead, size).value for (y, flag), lead in zip(found, wanted, strict=True)]
    )


def _lead(y: Any, flag: bool, size: int) -> Any:
    """The output with its batch axis."""
    if flag:
        return y
    shape = y.spec.shape
    return broadcast_to(reshape(y, (1, *shape)), (size, *shape))
