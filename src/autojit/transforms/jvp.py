"""Forward mode: tangents of inputs in, tangents of outputs out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autojit.ir.builder import GraphBuilder
from autojit.ir.calls_out import without_calls
from autojit.ir.graph import Graph, Value
from autojit.ir.op import Op
from autojit.ops.shape import broadcast_to
from autojit.ops.sources import zeros_like


def push_forward(op: Op, primals: Sequence[Any], results: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
    """Tangents of one node's results; None stands for a symbolic zero, in and out."""
    if all(t is None for t in tangents):
        return [None] * op.n_outputs
    if op.n_outputs == 1:
        found = [op.jvp(primals, results[0], tangents)]
    else:
        several = op.jvp(primals, tuple(results), tangents)
        found = [None] * op.n_outputs if several is None else list(several)
    return [None if t is None else broadcast_to(t, y.spec.shape) for t, y in zip(found, results, strict=True)]


def jvp(graph: Graph, wrt: Sequence[int] | None = None) -> Graph:
    """The graph with tangents: inputs, then a tangent per input ``wrt``, to the outputs' values, then their tangents.

    ``wrt`` defaults to every input with a floating or complex dtype; outputs without a derivative (integers, bools,
    constants) get zeros as tangents. Time O(nodes + edges).
    """
    chosen = [i for i, v in enumerate(graph.inputs) if v.type.dtype.is_differentiable] if wrt is None else list(wrt)
    graph = without_calls(graph)
    builder = GraphBuilder()
    environment = {v: builder.tracer(builder.input(v.type, v.name)) for v in graph.inputs}
    tangents: dict[Value, Any] = {}
    for i in chosen:
        x = graph.inputs[i]
        tangents[x] = builder.tracer(builder.input(x.type, f"{x.name or i}_dot"))
    for node in graph.nodes:
        builder.source = node.source
        primals = [environment[v] for v in node.inputs]
        outputs = builder.apply(node.op, [p.value for p in primals], node.source)
        results = [builder.tracer(v) for v in outputs]
        environment.update(zip(node.outputs, results, strict=True))
        pushed = push_forward(node.op, primals, results, [tangents.get(v) for v in node.inputs])
        tangents.update((v, t) for v, t in zip(node.outputs, pushed, strict=True) if t is not None)
    values = [environment[v] for v in graph.outputs]
    dots = [tangents[v] if v in tangents else zeros_like(environment[v]) for v in graph.outputs]
    return builder.finish([t.value for t in (*values, *dots)])
