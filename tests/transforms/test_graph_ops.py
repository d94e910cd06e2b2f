"""Ops that hold graphs: their derivatives and batches are those of the graph's own ops, whoever wrote the rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import autojit as aj
from autojit.codegen.cpu.machine import CPU_MACHINE
from autojit.control_flow.captured_call import BatchedCall, CapturedCall
from autojit.core.dtypes import float64
from autojit.core.types import TensorType
from autojit.history.view_history import Copied, Parts, Restrided, ViewChain
from autojit.ir import Graph, GraphBuilder, Op, evaluate, parse_graph, verify
from autojit.jit.graph_call import GraphCall
from autojit.ops.graph_op import GraphOp
from autojit.ops.reductions import Sum
from autojit.ops.shape import Permute, Reshape, Slice
from autojit.passes.expand import expand
from autojit.passes.open_bodies import open_bodies
from autojit.transforms.adjoint import adjoint
from autojit.transforms.jvp import jvp
from autojit.transforms.vmap import vmap
from tests.ops.laws import graph_of
from tests.passes.drawn_graphs import arrays_for, drawn

Case = tuple[GraphOp, Sequence[NDArray[Any]]]

X, ROW = (np.random.default_rng(k).standard_normal(shape) for k, shape in enumerate([(4, 3), (3,)]))
SLICE, TURN = Slice((1, 0), (3, 3), (1, 1)), Permute((1, 0))
DRAWN = [
    graph
    for seed in range(4)
    for kind in ("products", "layouts", "literals")
    for graph in drawn(kind, seed)[:1]
    if all(v.type.dtype is float64 for v in (*graph.inputs, *graph.outputs))
]


def compiled_call() -> GraphOp:
    """What a compiled step leaves in its caller's history."""
    found = aj.jit(lambda x, w: (x * w).sin() / 3)(aj.tensor(X, requires_grad=True), aj.tensor(ROW, requires_grad=True))
    op = found.grad_fn.op
    assert isinstance(op, GraphOp)
    return op


def cases() -> dict[str, Case]:
    """Every kind of GraphOp, on float64."""
    found: dict[str, Case] = {}
    for name, kind in sorted(Op.registry.load().items()):
        if issubclass(kind, GraphOp) and hasattr(kind, "samples"):
            found |= {f"{name} {k}": sample for k, sample in enumerate(kind.samples(float64))}
    found |= {f"graph_call {k}": (GraphCall(g), arrays_for(g)) for k, g in enumerate(DRAWN)}
    found |= {f"captured_call {k}": (CapturedCall(g), arrays_for(g)) for k, g in enumerate(DRAWN)}
    body = CapturedCall(graph_of(Sum((0,)), [X]))
    return found | {
        "batched_call": (BatchedCall(body, [True], 2, [False]), [np.stack([X, X + 1])]),
        "compiled_call": (compiled_call(), [X, ROW]),
        "view_chain": (ViewChain((SLICE, TURN, Reshape((6,)))), [X]),
        "parts": (Parts(0, (1, 3), False), [X]),
        "parts that drop": (Parts(1, (1, 1, 1), True), [X]),
        "restrided": (Restrided((SLICE,), (TURN,), TensorType((4, 3), float64)), [X[1:3]]),
        "copied": (Copied(), [X, ROW]),
    }


CASES = cases()
REFORMED = {
    "attention_adjoint",
    "flex_attention_adjoint",
}  # the pass writes the weights as the op in front does, to share them
UNREAD = ("graph_call", "compiled_call", "batched_call", "restrided")  # native code, and what stands in no user's text
EVERY = pytest.mark.parametrize("name", CASES)


def inlined(op: GraphOp, arrays: Sequence[NDArray[Any]]) -> Graph:
    """The graph's ops on operands of the arrays' types."""
    builder = GraphBuilder()
    found = op.expand(*[builder.tracer(v) for v in map(builder.input, map(type_of, arrays))])
    return verify(builder.finish([y.value for y in (found if op.n_outputs > 1 else (found,))]))


def type_of(array: NDArray[Any]) -> TensorType:
    return TensorType(array.shape, aj.tensor(array).dtype)


def agree(found: Graph, expected: Graph, arrays: Sequence[NDArray[Any]]) -> None:
    """Both graphs give the same on draws for the inputs after ``arrays``, but for rounding."""
    draw = np.random.default_rng(5)
    given = [*arrays, *[draw.standard_normal(v.type.shape) for v in found.inputs[len(arrays) :]]]
    assert [v.type for v in found.inputs] == [v.type for v in expected.inputs]
    for y, wanted in zip(evaluate(found, given), evaluate(expected, given), strict=True):
        scale = float(np.abs(wanted).max(initial=0)) + 1e-300
        np.testing.assert_allclose(y / scale, wanted / scale, rtol=0, atol=1e-12)


@EVERY
def test_the_value_is_that_of_the_graph(name: str) -> None:
    op, arrays = CASES[name]
    agree(graph_of(op, arrays), inlined(op, arrays), arrays)


@EVERY
def test_derivatives_are_those_of_the_graph(name: str) -> None:
    op, arrays = CASES[name]
    one, parts = graph_of(op, arrays), inlined(op, arrays)
    for transform in (adjoint, jvp):
        agree(verify(transform(one)), transform(parts), arrays)
    for k in [k for k, v in enumerate(one.inputs) if v.type.dtype.is_differentiable]:
        agree(adjoint(one, [k]), adjoint(parts, [k]), arrays)
        agree(jvp(one, [k]), jvp(parts, [k]), arrays)


@EVERY
def test_second_derivatives_are_those_of_the_graph(name: str) -> None:
    op, arrays = CASES[name]
    first = adjoint(graph_of(op, arrays)), adjoint(inlined(op, arrays))
    for transform in (adjoint, jvp):
        agree(*[transform(graph) for graph in first], arrays)


@EVERY
def test_batches_are_those_of_the_graph(name: str) -> None:
    op, arrays = CASES[name]
    one, parts = graph_of(op, arrays), inlined(op, arrays)
    for chosen in [range(len(arrays)), *([k] for k in range(len(arrays)))]:
        flags = [k in chosen for k in range(len(arrays))]
        given = [np.stack([a, a, a]) if flag else a for a, flag in zip(arrays, flags, strict=True)]
        agree(verify(vmap(one, flags, 3)), vmap(parts, flags, 3), given)


@EVERY
def test_a_pass_writes_the_graph_in_the_place_of_the_op_bit_for_bit(name: str) -> None:
    op, arrays = CASES[name]
    one = graph_of(op, arrays)
    opened = verify(expand(open_bodies(one), CPU_MACHINE))
    assert any(node.op == op for node in opened.nodes) == (op.opened_by is None)
    if op.opened_by is not None:
        expected = evaluate(expand(inlined(op, arrays), CPU_MACHINE), arrays)
        for y, wanted in zip(evaluate(opened, arrays), expected, strict=True):
            if op.name in REFORMED:
                np.testing.assert_allclose(y, wanted, rtol=1e-12, atol=1e-14)
            else:
                np.testing.assert_array_equal(y, wanted)


@EVERY
def test_the_text_is_read_again(name: str) -> None:
    op, arrays = CASES[name]
    if op.name in UNREAD:
        return
    graph = graph_of(op, arrays)
    again = parse_graph(str(graph))
    assert str(again) == str(graph)
    for y, wanted in zip(evaluate(again, arrays), evaluate(graph, arrays), strict=True):
        np.testing.assert_array_equal(y, wanted)
