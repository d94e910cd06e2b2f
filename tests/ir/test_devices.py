"""Where values lie is in their types: sources and literals are where they are used, results where operands are."""

from __future__ import annotations

import numpy as np
import pytest

import autojit.ops  # noqa: F401
from autojit.core.device import CPU, Device
from autojit.core.dtypes import ALL_DTYPES, bool_, float32, int64
from autojit.core.errors import DeviceError
from autojit.core.types import TensorType
from autojit.ir import Graph, GraphBuilder, Op, evaluate, parse_graph, verify
from autojit.ir.builder import Tracer
from autojit.ir.placed import op_on
from autojit.ops import sources
from autojit.ops.base import Elementwise
from autojit.ops.control_flow import Cond
from autojit.ops.graph_op import as_tuple
from autojit.ops.while_sweeps import WhileLoop
from autojit.transforms.adjoint import adjoint
from autojit.transforms.jvp import jvp
from tests.on_cpu import optimize
from tests.ops.laws import type_of

THERE = Device("cuda", 1)
OPS = [op for op in Op.registry.load().values() if op.__module__.startswith("autojit.ops.") and hasattr(op, "samples")]
SOURCES = ("full", "iota", "size_value", "constant")


def devices_of(graph: Graph) -> set[Device]:
    """Without those of the conditions of loops and branches, which the host is asked for."""
    values = (*graph.inputs, *(v for node in graph.nodes for v in node.outputs))
    asked = {node.inputs[0] for node in graph.nodes if isinstance(node.op, Cond)}
    asked |= {node.outputs[0] for node in graph.nodes if isinstance(node.op, WhileLoop)}
    asked |= {node.inputs[0] for node in graph.nodes if isinstance(node.op, WhileLoop)}
    return {v.type.device for v in values if not (v in asked and v.type.dtype is bool_)}


def there(op: Op) -> Op:
    return op_on(op, THERE)


def graph_there(op: Op, inputs: list[np.ndarray]) -> Graph:
    """The op applied to operands that lie elsewhere."""
    builder = GraphBuilder()
    operands = [builder.input(type_of(x).on(THERE)) for x in inputs]
    return verify(builder.finish(builder.apply(op, operands)))


@pytest.mark.parametrize("op_class", OPS, ids=lambda op: op.name)
def test_everything_that_comes_of_an_op_is_where_its_operands_are(op_class: type[Op]) -> None:
    """Its result, its derivatives, and what the passes make of them; printed and parsed, too."""
    for dtype in ALL_DTYPES:
        for op, inputs in op_class.samples(dtype)[:2]:  # type: ignore[attr-defined]
            if not inputs:
                continue
            graph = graph_there(there(op), list(inputs))
            made = [graph, optimize(graph)]
            if dtype is float32:
                for transform in (adjoint, jvp):
                    try:
                        made.append(verify(transform(graph)))
                    except NotImplementedError:  # no derivative by some operand
                        continue
                    made.append(verify(optimize(made[-1])))
            for found in made:
                assert devices_of(found) <= {THERE}, str(found)
            assert devices_of(verify(parse_graph(str(graph)))) == {THERE}


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_says_where_it_lies_and_reads_it_back(name: str) -> None:
    for op, _ in Op.registry[name].samples(float32):  # type: ignore[attr-defined]
        here = str(op)
        fields = {field: getattr(op, field) for field in op.__match_args__}
        moved = type(op)(**{**fields, "device": THERE})
        assert "device" not in here
        assert moved != op
        assert moved.result_type() == op.result_type().on(THERE)
        graph = parse_graph(f"() {{ y: {moved.result_type()} = {moved}(); return y }}")
        assert graph.nodes[0].op == moved


def test_literals_are_where_they_are_needed() -> None:
    builder = GraphBuilder()
    x = Tracer(builder, builder.input(TensorType((3,), float32, THERE)))
    made = [
        sources.full(x, 2, (4,)),
        sources.zeros_like(x),
        sources.iota(x, (2, 3), 1),
        sources.arange(x, 4),
        sources.constant(x, np.ones(3)),
        sources.literal(x, 1.5),
    ]
    assert {y.spec.device for y in made} == {THERE}


def test_mixed_devices_are_refused_in_the_words_of_torch() -> None:
    builder = GraphBuilder()
    x = builder.input(TensorType((3,), float32, THERE))
    y = builder.input(TensorType((3,), float32))
    for op in (Op.registry["add"](), Op.registry["maximum"]()):
        for operands in ((x, y), (y, x)):
            with pytest.raises(DeviceError, match="Expected all tensors to be on the same device") as caught:
                builder.apply(op, operands)
            assert "cuda:1" in str(caught.value)
            assert "cpu" in str(caught.value)
    assert not builder.nodes


@pytest.mark.parametrize("turned", [False, True])
def test_numbers_on_the_cpu_go_anywhere(turned: bool) -> None:
    builder = GraphBuilder()
    x = builder.input(TensorType((3,), float32, THERE))
    number = builder.input(TensorType((), float32))
    (found,) = builder.apply(Op.registry["add"](), (number, x) if turned else (x, number))
    assert found.type == TensorType((3,), float32, THERE)
    (alone,) = builder.apply(Op.registry["add"](), (number, number))
    assert alone.type.device == CPU


def test_an_index_from_elsewhere_is_refused() -> None:
    builder = GraphBuilder()
    x = builder.input(TensorType((3, 2), float32, THERE))
    index = builder.input(TensorType((5,), int64))
    with pytest.raises(DeviceError, match="same device"):
        builder.apply(Op.registry["index_select"](0), (x, index))


def test_a_graph_of_elsewhere_evaluates_as_here() -> None:
    text = "(x: f32[3]@{0}) {{ a: f32[]@{0} = full[value=2, dtype=f32, shape=(){1}](); y: f32[3]@{0} = mul(x, a); "
    text += "return y }}"
    here = verify(parse_graph(text.replace("@{0}", "").format("", "")))
    elsewhere = verify(parse_graph(text.format("cuda:1", ", device=device('cuda:1')")))
    x = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(evaluate(here, [x])[0], evaluate(elsewhere, [x])[0])


@pytest.mark.parametrize("op_class", OPS, ids=lambda op: op.name)
def test_an_op_of_elsewhere_computes_as_here(op_class: type[Op]) -> None:
    """The graphs an op holds, and what they make of nothing, say another device than the arrays in host memory."""
    for op, arrays in op_class.samples(float32):  # type: ignore[attr-defined]
        here, elsewhere = (as_tuple(made.eager(*arrays), op.n_outputs) for made in (op, there(op)))
        for expected, found in zip(here, elsewhere, strict=True):
            np.testing.assert_array_equal(found, expected)


def _mixed_samples() -> list[tuple[Op, list[np.ndarray], int]]:
    """Elementwise ops with one operand that is a number: which one."""
    found = []
    for op_class in OPS:
        if not issubclass(op_class, Elementwise):
            continue
        for op, inputs in op_class.samples(float32)[:1]:
            if len(inputs) > 1 and not any(isinstance(getattr(op, n), Graph) for n in op.__match_args__):
                found += [(op, list(inputs), place) for place in range(len(inputs))]
    return found


@pytest.mark.parametrize("is_literal", [False, True])
@pytest.mark.parametrize(("op", "inputs", "place"), _mixed_samples(), ids=str)
def test_numbers_on_the_cpu_go_with_operands_elsewhere_through_every_pass(
    op: Op, inputs: list[np.ndarray], place: int, is_literal: bool
) -> None:
    builder = GraphBuilder()
    operands = []
    for k, x in enumerate(inputs):
        kind = type_of(x).on(THERE)
        if k != place:
            operands.append(builder.input(kind))
        elif is_literal:
            one = True if kind.dtype.kind == "bool" else 1
            operands += builder.apply(sources.Full(one, kind.dtype, ()), ())
        else:
            operands.append(builder.input(TensorType((), kind.dtype)))
    graph = verify(builder.finish(builder.apply(op, operands)))
    assert {v.type.device for v in graph.outputs} == {THERE}
    for made in (optimize(graph), optimize(adjoint(graph)) if op.is_differentiable else graph):
        verify(made)
        assert {v.type.device for v in made.outputs if v.type.shape} <= {THERE}
