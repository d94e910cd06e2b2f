"""Laws of the transforms on whole graphs: adjoint, jvp and vmap compose, and say what is zero."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autojit import ops
from autojit.core.dtypes import float64, int64
from autojit.core.errors import DifferentiationError, ShapeError
from autojit.core.types import TensorType
from autojit.ir import Graph, GraphBuilder, Op, evaluate, parse_graph, verify
from autojit.transforms.adjoint import accumulate, adjoint
from autojit.transforms.jvp import jvp
from autojit.transforms.vmap import vmap
from tests.ops.laws import check_derivatives

X = np.random.default_rng(0).standard_normal((3, 4))


def network() -> Graph:
    """Fan-out, broadcasting, a reduction and two outputs."""
    builder = GraphBuilder()
    x = builder.tracer(builder.input(TensorType((3, 4), float64), "x"))
    w = builder.tracer(builder.input(TensorType((4,), float64), "w"))
    h = ops.tanh(ops.mul(x, w))
    y = ops.sum(ops.mul(h, ops.add(h, x)), 1)
    return verify(builder.finish([y.value, ops.mean(h).value]))


def inputs() -> list[Any]:
    return [X, np.random.default_rng(1).standard_normal(4)]


def test_adjoint_and_jvp_agree_with_differences_to_third_order() -> None:
    graph, values = network(), inputs()
    for order in range(3):
        check_derivatives(graph, values)
        values = [*values, *[np.random.default_rng(order).standard_normal(v.type.shape) for v in graph.outputs]]
        graph = adjoint(graph)


def test_transforms_commute_with_vmap() -> None:
    graph = network()
    batch = [np.stack([a, 0.5 * a]) for a in inputs()]
    bars = [np.ones((2, 3)), np.ones(2)]
    inner = evaluate(vmap(adjoint(graph), [True] * 4, 2), [*batch, *bars])
    outer = evaluate(adjoint(vmap(graph, [True] * 2, 2)), [*batch, *bars])
    for a, b in zip(inner, outer, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)


def test_forward_over_reverse_is_reverse_over_forward() -> None:
    graph = parse_graph(
        "(x: f64[3]) { a: f64[3] = sin(x); b: f64[3] = mul(a, a); c: f64[] = sum[axes=(0,)](b); return c }"
    )
    x, v = np.array([0.3, 1.0, 2.0]), np.array([1.0, -1.0, 0.5])
    one = np.ones(())
    forward_over_reverse = evaluate(jvp(adjoint(graph), [0]), [x, one, v])[1]
    reverse_over_forward = evaluate(adjoint(jvp(graph), [0]), [x, v, 0 * one, one])[0]
    np.testing.assert_allclose(forward_over_reverse, 2 * np.cos(2 * x) * v, rtol=1e-13)
    np.testing.assert_allclose(reverse_over_forward, forward_over_reverse, rtol=1e-13)


def test_what_outputs_do_not_depend_on_has_zero_cotangents_and_tangents() -> None:
    graph = parse_graph("(x: f64[2], y: f64[2], n: i64[2]) { a: f64[2] = floor(x); return a, n }")
    x = np.array([1.5, 2.5])
    pulled = evaluate(adjoint(graph), [x, x, np.arange(2), np.ones(2)])
    np.testing.assert_array_equal(pulled, np.zeros((2, 2)))
    pushed = evaluate(jvp(graph), [x, x, np.arange(2), np.ones(2), np.ones(2)])
    assert [p.tolist() for p in pushed[2:]] == [[0.0, 0.0], [0, 0]]


def test_a_stopped_gradient_does_not_flow_but_its_value_does() -> None:
    builder = GraphBuilder()
    x = builder.tracer(builder.input(TensorType((2,), float64)))
    graph = builder.finish([ops.mul(x, ops.stop_gradient(x)).value])
    np.testing.assert_array_equal(evaluate(adjoint(graph), [np.array([2.0, 3.0]), np.ones(2)])[0], [2, 3])


def test_vmap_repeats_outputs_without_the_batch_axis() -> None:
    graph = parse_graph(
        "(x: f64[2], y: f64[2]) { a: f64[2] = exp(x); "
        "i: i64[2] = iota[shape=(2,), axis=0, dtype=i64](); return a, y, i }"
    )
    found = evaluate(verify(vmap(graph, [True, False], 3)), [np.zeros((3, 2)), np.array([1.0, 2.0])])
    assert [f.shape for f in found] == [(3, 2)] * 3
    with pytest.raises(ShapeError, match="at least one input"):
        vmap(graph, [False, False], 3)


def test_unwanted_cotangents_are_not_built() -> None:
    builder = GraphBuilder()
    x = builder.tracer(builder.input(TensorType((2,), float64)))
    before = len(builder.nodes)
    mul = Op.registry["mul"]()
    x_bars = accumulate(mul, [x, x], [x], [x], [False, False])
    assert x_bars == [None, None]
    assert len(builder.nodes) == before


def test_an_op_without_a_derivative_passes_nothing_on_to_any_operand() -> None:
    builder = GraphBuilder()
    x = builder.tracer(builder.input(TensorType((2,), float64)))
    for name in ("floor_divide", "eq"):
        op = Op.registry[name]()
        assert accumulate(op, [x, x], [x], [x], [True, True]) == [None, None], op


def test_a_cotangent_of_the_wrong_type_is_refused() -> None:
    builder = GraphBuilder()
    x = builder.tracer(builder.input(TensorType((2,), float64)))
    n = builder.tracer(builder.input(TensorType((2,), int64)))
    with pytest.raises(DifferentiationError, match="add: the derivative rule"):
        accumulate(Op.registry["add"](), [x, x], [x], [n], [True, False])
