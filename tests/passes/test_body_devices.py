"""Branches and loops whose values are on several devices: who runs them finds every value where it expects it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import autojit.ops  # noqa: F401
from autojit.core.device import CPU
from autojit.ir import evaluate, parse_graph, verify
from autojit.ir.graph import Graph, Node
from autojit.ops.control_flow import Cond, HoldsGraphs
from autojit.ops.scan_steps import Scan
from autojit.ops.while_sweeps import WhileLoop
from autojit.passes.body_devices import settle_devices

GPU = "device('cuda:0')"
X = "f32[3]@cuda:0"


def loop_on(place: str) -> Graph:
    """A while loop whose condition and counter are on a device or on the host, and a sweep back over its tape."""
    at = "@cuda:0" if place == "cuda" else ""
    device = f", device={GPU}" if at else ""
    first = parse_graph(
        f"(go: bool[]{at}, n: i64[]{at}, x: {X}) {{ y: {X} = sin(x); one: i64[]{at} = full[value=1, dtype=i64, "
        f"shape=(){device}](); m: i64[]{at} = add(n, one); "
        f"last: i64[]{at} = full[value=3, dtype=i64, shape=(){device}](); "
        f"more: bool[]{at} = lt(m, last); return more, m, y, x }}"
    )
    back = parse_graph(f"(t: {X}, x: {X}) {{ s: {X} = add(t, x); return s }}")
    op = WhileLoop((first, back), (3, 1), ((), (0,)), (False, True))
    given = parse_graph(f"(go: bool[]{at}, n: i64[]{at}, x: {X}, t: {X}) {{ return go, n, x, t }}")
    types = op.result_type(*[v.type for v in given.inputs])
    outputs = tuple([type(given.inputs[0])(t) for t in types])
    return Graph(given.inputs, (Node(op, given.inputs, outputs),), outputs)


def branch() -> Graph:
    """The condition is on a device; one branch makes a number of the host, the other gives what it was given."""
    on_true = parse_graph(f"(x: {X}) {{ y: f32[3] = full[value=2, dtype=f32, shape=(3,)](); return y, x }}")
    on_false = parse_graph(f"(x: {X}) {{ y: {X} = neg(x); return y, y }}")
    op = Cond(on_true, on_false)
    given = parse_graph(f"(go: bool[]@cuda:0, x: {X}) {{ return go, x }}")
    outputs = tuple([type(given.inputs[0])(v.type) for v in on_false.outputs])
    return Graph(given.inputs, (Node(op, given.inputs, outputs),), outputs)


def scan() -> Graph:
    """A stack of the host, a carry that is a result in another shape, and one that is given as it was."""
    body = parse_graph(
        f"(c: {X}, row: {X}) {{ a: {X} = mul(c, row); "
        "b: f32[1, 3]@cuda:0 = reshape[shape=(1, 3)](a); return a, b, a, c }"
    )
    op = Scan(body, 1, 1, 4, True)
    given = parse_graph(f"(c: {X}, rows: f32[4, 3]) {{ return c, rows }}")
    outputs = tuple([type(given.inputs[0])(t) for t in op.result_type(*[v.type for v in given.inputs])])
    return Graph(given.inputs, (Node(op, given.inputs, outputs),), outputs)


def values(graph: Graph) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    made = {"bool": True, "i64": 0}
    return [
        np.asarray(made.get(v.type.dtype.short, rng.standard_normal(v.type.shape)), v.type.dtype.numpy)
        for v in graph.inputs
    ]


def holders(graph: Graph) -> Iterator[Node]:
    return (node for node in graph.nodes if isinstance(node.op, HoldsGraphs))


GRAPHS = [loop_on("cuda"), loop_on("cpu"), branch(), scan()]


@pytest.mark.parametrize("graph", GRAPHS, ids=["loop", "loop of the host", "branch", "scan"])
def test_results_are_kept_and_bodies_have_what_is_handed_to_them(graph: Graph) -> None:
    settled = settle_devices(graph)
    for a, b in zip(evaluate(settled, values(graph)), evaluate(graph, values(graph)), strict=True):
        np.testing.assert_array_equal(a, b)
    assert [v.type for v in settled.outputs] == [v.type for v in graph.outputs]
    for node in holders(settled):
        for body in node.op.graphs():
            verify(body)
        _meets(node)
    assert settle_devices(settled).nodes == settled.nodes or str(settle_devices(settled)) == str(settled)


def _meets(node: Node) -> None:
    places = [v.type.device for v in node.inputs]
    given = [v.type.device for v in node.outputs]
    op = node.op
    if isinstance(op, Cond):
        assert places[0] == CPU
        for body in op.graphs():
            assert [v.type.device for v in body.inputs] == places[1:]
            assert [v.type.device for v in body.outputs] == given
    elif isinstance(op, Scan):
        assert [v.type.device for v in op.body.inputs] == places
        assert [v.type.device for v in op.body.outputs] == given
    else:
        assert isinstance(op, WhileLoop)
        first, back = op.bodies
        assert places[0] == CPU and [v.type.device for v in first.inputs] == places[:3]
        assert [v.type.device for v in first.outputs[:3]] == places[:3]
        assert first.outputs[3].type.device == back.inputs[1].type.device


@pytest.mark.parametrize("graph", GRAPHS, ids=["loop", "loop of the host", "branch", "scan"])
def test_outputs_of_bodies_on_devices_are_values_of_their_own(graph: Graph) -> None:
    for node in holders(settle_devices(graph)):
        for body in node.op.graphs():
            histories = body.inputs[: node.op.carries] if isinstance(node.op, Scan) else ()
            outputs = [v for v in body.outputs if v.type.device != CPU and v not in histories]
            assert len(set(outputs)) == len(outputs)
            assert set(outputs).isdisjoint(body.inputs)


def test_a_graph_of_the_host_comes_back_as_it_is() -> None:
    graph = loop_on("cpu")
    text = str(graph).replace("@cuda:0", "")
    plain = parse_graph(text)
    assert settle_devices(plain) is plain
