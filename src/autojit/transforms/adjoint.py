"""The adjoint pass: cotangents of outputs in, cotangents of inputs out.

``accumulate`` is one node's share and the only caller of VJP rules: the engine behind ``Tensor.backward`` uses it on
Tensors, ``adjoint`` on Tracers. Rules are written in ops, so the result can be differentiated again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autojit.core.errors import DifferentiationError
from autojit.ir.builder import GraphBuilder, Tracer
from autojit.ir.calls_out import without_calls
from autojit.ir.graph import Graph, Node, Value
from autojit.ir.op import Op
from autojit.ops.base import resolve
from autojit.ops.cotangent_masks import masking, under_mask
from autojit.ops.elementwise_arithmetic import add
from autojit.ops.sources import zeros_like


def accumulate(
    op: Op, primals: Sequence[Any], results: Sequence[Any], y_bars: Sequence[Any], wanted: Sequence[bool]
) -> list[Any]:
    """Cotangents of one node's operands from the cotangents of its results.

    Entries of ``y_bars`` may be None (symbolic zero), not all of them. Only ``wanted`` cotangents are built; the
    others, those of integer operands and symbolic zeros come back as None. Broadcasting is undone.

    Raises:
        DifferentiationError: a rule returned a cotangent of another type than its operand: a defect of the op.
    """
    single = op.n_outputs == 1
    result, y_bar = (results[0], y_bars[0]) if single else (tuple(results), tuple(y_bars))
    cotangents: Any = op.vjp(primals, result, y_bar)
    if cotangents is None:  # the rule is ``not_differentiable``
        return [None] * len(primals)
    found: list[Any] = []
    for x, cotangent, want in zip(primals, cotangents, wanted, strict=True):
        spec = x.spec
        x_bar = resolve(cotangent) if want and cotangent is not None and spec.dtype.category >= 2 else None
        if x_bar is not None and x_bar.spec is not spec:
            x_bar = _checked(op, op.unbroadcast(x_bar, x), x)
        found.append(x_bar)
    return found


def _checked(op: Op, x_bar: Any, x: Any) -> Any:
    found, wanted = x_bar.spec, x.spec
    if found is wanted or (found.shape == wanted.shape and found.dtype is wanted.dtype):
        return x_bar
    raise DifferentiationError(
        f"{op.name}: the derivative rule returned a cotangent of the wrong type",
        {"op": op, "operand": wanted, "cotangent": found},
    )


def replay(graph: Graph, builder: GraphBuilder) -> dict[Value, Tracer]:
    """Record the graph's inputs and nodes into a builder; Value -> the Tracer that stands for it there."""
    environment = {v: builder.tracer(builder.input(v.type, v.name)) for v in graph.inputs}
    for node in graph.nodes:
        outputs = builder.apply(node.op, [environment[v].value for v in node.inputs], node.source)
        environment.update(zip(node.outputs, map(builder.tracer, outputs), strict=True))
    return environment


def adjoint(graph: Graph, wrt: Sequence[int] | None = None, is_masked: bool | None = None) -> Graph:
    """The backward graph: the graph's inputs, then a cotangent per output, to the cotangents of inputs ``wrt``.

    Inputs the outputs do not depend on get zeros. ``wrt`` defaults to every input with a floating or complex dtype.
    ``is_masked``: elements of the given cotangents may be 0 because a branch was masked (``ops.cotangent_masks``); by
    default as in the rule that asks. The forward nodes are repeated; dead code elimination drops those no rule reads.
    Time O(nodes + edges).
    """
    chosen = [i for i, v in enumerate(graph.inputs) if v.type.dtype.is_differentiable] if wrt is None else list(wrt)
    builder = GraphBuilder()
    graph = without_calls(graph)
    environment = replay(graph, builder)
    bars: dict[Value, Any] = {}
    for position, output in enumerate(graph.outputs):
        if output.type.dtype.is_differentiable:
            _add_to(bars, output, builder.tracer(builder.input(output.type, f"y_bar{position}")))
    masked = set(bars) if (masking.is_on if is_masked is None else is_masked) else set[Value]()
    _sweep(graph, environment, bars, {graph.inputs[i] for i in chosen}, builder, masked)
    x_bars = []
    for i in chosen:
        x = graph.inputs[i]
        x_bars.append(bars[x] if x in bars else zeros_like(environment[x]))
    return builder.finish([x_bar.value for x_bar in x_bars])


def _sweep(
    graph: Graph,
    environment: dict[Value, Tracer],
    bars: dict[Value, Any],
    wrt: set[Value],
    builder: GraphBuilder,
    masked: set[Value],
) -> None:
    """Walk the nodes backwards and add up cotangents of everything that depends on ``wrt``.

    ``masked`` are the values whose cotangents may hold masked zeros; those found on the way join them.
    """
    active = _active(graph.nodes, wrt)
    for node in reversed(graph.nodes):
        y_bars = [bars.get(v) for v in node.outputs]
        wanted = [v in active for v in node.inputs]
        if all(y_bar is None for y_bar in y_bars) or not any(wanted):
            continue
        builder.source = node.source
        primals = [environment[v] for v in node.inputs]
        results = [environment[v] for v in node.outputs]
        is_masked = not masked.isdisjoint(node.outputs)
        with under_mask(is_masked):
            x_bars = accumulate(node.op, primals, results, y_bars, wanted)
        if is_masked or node.op.masks_cotangents:
            masked.update(node.inputs)
        for x, x_bar in zip(node.inputs, x_bars, strict=True):
            if x_bar is not None:
                _add_to(bars, x, x_bar)


def _active(nodes: Sequence[Node], wrt: set[Value]) -> set[Value]:
    """The values that depend on ``wrt`` through differentiable ops."""
    active = set(wrt)
    for node in nodes:
        if node.op.is_differentiable and not active.isdisjoint(node.inputs):
            active.update(v for v in node.outputs if v.type.dtype.is_differentiable)
    return active


def _add_to(bars: dict[Value, Any], x: Value, x_bar: Any) -> None:
    bars[x] = add(bars[x], x_bar) if x in bars else x_bar
