"""The laws every op obeys, checked on the op's own samples.

A law is a function ``law(op, inputs)`` that raises AssertionError; ``LAWS`` lists them all. Derivative laws look at
float64 and complex128 samples only; they go through graphs (adjoint, jvp, vmap) and the interpreter, so an op is judged
by the transforms that will use it. To judge a new op it is enough to register it with ``samples``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autojit.core.dtypes import dtype_of_numpy
from autojit.core.types import TensorType
from autojit.ir import Graph, GraphBuilder, Op, evaluate, parse_graph, verify
from autojit.ops.convolution import Convolution, ConvolutionInput, ConvolutionWeight
from autojit.ops.matmul import Matmul, MatmulAdd
from autojit.transforms.adjoint import adjoint
from autojit.transforms.jvp import jvp
from autojit.transforms.vmap import vmap
from tests.rounding import assert_sums_agree, assert_within, gamma

Arrays = Sequence[NDArray[Any]]
Law = Callable[[Op, Arrays], None]

STEP = 1e-3  # of the five-point difference: its error is STEP**4 times the fifth derivative
BATCH = 3
SUMS_OF_PRODUCTS = (Matmul, MatmulAdd, Convolution, ConvolutionInput, ConvolutionWeight)
STOP = Op.registry["stop_gradient"]()
ELEMENTARY_ULP = 8  # NumPy promises 4 ulp of an elementary function, in a vector loop and in its tail


def type_of(array: NDArray[Any]) -> TensorType:
    return TensorType(array.shape, dtype_of_numpy(array.dtype))


def graph_of(op: Op, inputs: Arrays) -> Graph:
    """The graph of one application of the op."""
    builder = GraphBuilder()
    outputs = builder.apply(op, [builder.input(type_of(x)) for x in inputs])
    return verify(builder.finish(outputs))


def eager(op: Op, inputs: Arrays) -> list[NDArray[Any]]:
    with np.errstate(all="ignore"):
        results = op.eager(*inputs)
    return [np.asarray(y) for y in (results if op.n_outputs > 1 else (results,))]


def assert_close(found: NDArray[Any], expected: NDArray[Any], rtol: float) -> None:
    scale = np.max(np.abs(expected), initial=1e-3, where=np.isfinite(expected))
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol * float(scale))


def inner(a: Arrays, b: Arrays) -> float:
    """The real inner product; complex numbers count as pairs of reals (torch's convention of gradients)."""
    return float(sum(np.sum(np.real(np.conj(x) * y)) for x, y in zip(a, b, strict=True)))


def map_absolute(arrays: Arrays) -> list[NDArray[Any]]:
    """Absolute values; what a sum of them is made of bounds how much a sum of the signed ones can lose."""
    return [np.abs(x) for x in arrays]


def random_like(arrays: Arrays, seed: int) -> list[NDArray[Any]]:
    generator = np.random.default_rng(seed)
    found = []
    for x in arrays:
        draw = generator.standard_normal(x.shape)
        if x.dtype.kind == "c":
            draw = draw + 1j * generator.standard_normal(x.shape)
        found.append(np.asarray(draw).astype(x.dtype))
    return found


def differentiable(graph: Graph) -> list[int]:
    return [i for i, v in enumerate(graph.inputs) if v.type.dtype.is_differentiable]


def smooth_outputs(graph: Graph) -> Graph:
    """The graph with only those outputs that can carry a cotangent."""
    kept = tuple(v for v in graph.outputs if v.type.dtype.is_differentiable)
    return Graph(graph.inputs, graph.nodes, kept)


def has_derivative(op: Op, inputs: Arrays) -> bool:
    """Whether a difference in double precision can judge the op here."""
    doubles = (np.float64, np.complex128)
    floats = [a for a in (*inputs, *eager(op, inputs)) if type_of(a).dtype.is_differentiable]
    return op.is_differentiable and any(x.dtype in doubles for x in inputs) and all(a.dtype in doubles for a in floats)


def eager_has_the_result_type(op: Op, inputs: Arrays) -> None:
    expected = op.result_type(*map(type_of, inputs))
    types = expected if op.n_outputs > 1 else (expected,)
    assert [type_of(y) for y in eager(op, inputs)] == list(types)


def text_round_trips(op: Op, inputs: Arrays) -> None:
    graph = graph_of(op, inputs)
    again = parse_graph(str(graph))
    assert str(again) == str(graph)
    assert [n.op for n in again.nodes] == [op]
    assert [hash(n.op) for n in again.nodes] == [hash(op)]


def difference(graph: Graph, inputs: Arrays, v: Arrays) -> list[NDArray[Any]]:
    """The derivative of the outputs along ``v`` by a five-point difference."""
    where = differentiable(graph)

    def at(step: float) -> list[NDArray[Any]]:
        moved = list(inputs)
        for i, direction in zip(where, v, strict=True):
            moved[i] = moved[i] + step * direction
        return evaluate(graph, moved)

    samples = zip(at(-2 * STEP), at(-STEP), at(STEP), at(2 * STEP), strict=True)
    return [(a - 8 * b + 8 * c - d) / (12 * STEP) for a, b, c, d in samples]


def check_derivatives(graph: Graph, inputs: Arrays, by: int | None = None) -> None:
    """JVP against differences, VJP against JVP; by all inputs, or by one of them."""
    graph = smooth_outputs(graph)
    forward, backward = verify(jvp(graph)), verify(adjoint(graph))
    where = differentiable(graph)
    v = [0.5 * d for d in random_like([inputs[i] for i in where], 1)]
    if by is not None:
        v = [d if i == by else 0 * d for i, d in zip(where, v, strict=True)]
    y = evaluate(graph, inputs)
    w = random_like(y, 2)
    pushed = evaluate(forward, [*inputs, *v])[len(y) :]
    for found, expected in zip(pushed, difference(graph, inputs, v), strict=True):
        assert_close(found, expected, 2e-6)
    pulled = evaluate(backward, [*inputs, *w])
    left, right = inner(w, pushed), inner(pulled, v)
    scale = inner(map_absolute(w), map_absolute(pushed)) + inner(map_absolute(pulled), map_absolute(v))
    assert abs(left - right) <= 1e-10 * max(1.0, scale), (left, right)


def derivative_is_right(op: Op, inputs: Arrays) -> None:
    if has_derivative(op, inputs):
        check_derivatives(graph_of(op, inputs), inputs)


def second_derivative_is_right(op: Op, inputs: Arrays) -> None:
    if not has_derivative(op, inputs):
        return
    graph = smooth_outputs(graph_of(op, inputs))
    w = random_like(evaluate(graph, inputs), 3)
    check_derivatives(adjoint(graph), [*inputs, *w])


def holding(op: Op, inputs: Arrays, by: int) -> Graph:
    """The graph of an op through which derivatives flow to one operand alone: the rules meet symbolic zeros."""
    builder = GraphBuilder()
    values = [builder.input(type_of(x)) for x in inputs]
    held = [v if k == by else builder.apply(STOP, [v])[0] for k, v in enumerate(values)]
    return verify(builder.finish(builder.apply(op, held)))


def derivative_by_each_operand_is_right(op: Op, inputs: Arrays) -> None:
    """Also of each result alone, where there are several: the rules meet cotangents that are not there."""
    if not has_derivative(op, inputs):
        return
    graph = graph_of(op, inputs)
    moving = differentiable(graph)
    for by in moving if len(moving) > 1 else ():
        check_derivatives(holding(op, inputs, by), inputs, by)
    smooth = smooth_outputs(graph).outputs
    for one in smooth if len(smooth) > 1 else ():
        check_derivatives(Graph(graph.inputs, graph.nodes, (one,)), inputs)


def variations(x: NDArray[Any]) -> NDArray[Any]:
    """A batch of slightly different inputs; integers and bools are repeated."""
    if x.dtype.kind in "biu":
        return np.stack([x] * BATCH)
    return np.stack([(x * np.asarray(1 - 0.03 * k).astype(x.dtype)).astype(x.dtype) for k in range(BATCH)])


def flags(count: int) -> Iterator[tuple[bool, ...]]:
    yield (True,) * count
    if count > 1:
        for chosen in range(count):
            yield tuple(i == chosen for i in range(count))


def assert_same_up_to_order(op: Op, found: NDArray[Any], expected: NDArray[Any], inputs: Arrays) -> None:
    """Equal but for the order in which the op sums: no sum has more terms than the op has operand elements.

    Sums of products are held to their own terms' magnitude, other ops to the largest magnitude of their result.
    """
    terms = max((x.size for x in inputs), default=1)
    if isinstance(op, SUMS_OF_PRODUCTS):
        (magnitude,) = eager(op, [np.abs(x) for x in inputs])
        assert_sums_agree(found, expected, magnitude.astype(np.float64), terms, str(op))
        return
    wide = expected.astype(np.complex128)
    scale = float(np.max(np.abs(wide), initial=0.0, where=np.isfinite(wide)))
    assert_within(found, expected, 2 * gamma(terms + ELEMENTARY_ULP, expected.dtype) * scale, str(op))


def batching_is_a_loop(op: Op, inputs: Arrays) -> None:
    if not inputs:
        return
    graph = graph_of(op, inputs)
    for batched in flags(len(inputs)):
        stacked = [variations(x) if flag else x for x, flag in zip(inputs, batched, strict=True)]
        found = evaluate(verify(vmap(graph, batched, BATCH)), stacked)
        rows = [
            evaluate(graph, [x[k] if flag else x for x, flag in zip(stacked, batched, strict=True)])
            for k in range(BATCH)
        ]
        for position, together in enumerate(found):
            for k, row in enumerate(rows):
                one = [x[k] if flag else x for x, flag in zip(stacked, batched, strict=True)]
                assert_same_up_to_order(op, together[k], row[position], one)


LAWS: list[Law] = [
    eager_has_the_result_type,
    text_round_trips,
    derivative_is_right,
    second_derivative_is_right,
    derivative_by_each_operand_is_right,
    batching_is_a_loop,
]
