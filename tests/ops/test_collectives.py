"""Collectives against what they mean for all ranks at once: results, derivatives of both kinds and orders, batches.

Ranks are threads. The global graph (`tests.distributed.global_graphs`) has all ranks in it; its derivatives are judged
by differences, so a derivative that a rank computes is judged by what all ranks compute together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from autojit.core.communicator import ThreadAsRank
from autojit.core.errors import ArgumentError, ShapeError, UnsupportedDTypeError
from autojit.distributed.threads import ThreadRank, _Meeting, run_ranks
from autojit.ir import Graph, evaluate, parse_graph, verify
from autojit.ir.graph import Value
from autojit.ops.collectives import AllReduce, Broadcast, SendRecv
from autojit.transforms.adjoint import adjoint
from autojit.transforms.jvp import jvp
from autojit.transforms.vmap import vmap
from tests.distributed.global_graphs import global_graph
from tests.ops.laws import check_derivatives

RANKS = (1, 2, 3, 5, 8)


def graphs(n: int, dtype: str = "f64") -> Iterator[Graph]:
    """Every collective alone, of operands that vary, and what a rank does alone with a replicated one."""
    w, ring = f"group='world', size={n}", tuple((r, (r + 1) % n) for r in range(n))
    x, parts = f"{dtype}[2, 3]", f"{dtype}[{n}, 2, 3]"
    for is_replicated in (True, False):
        kind = f"is_replicated={is_replicated}"
        for combine in ("sum", "prod", "max", "min"):
            yield _graph(x, f"all_reduce[{w}, combine='{combine}', {kind}]", x)
            yield _begun(x, f"all_reduce[{w}, combine='{combine}', {kind}", x, f"{w}, {kind}")
        for op, result in (f"all_gather[{w}, {kind}", parts), (f"broadcast[{w}, root={n - 1}, {kind}", x):
            yield _graph(x, f"{op}]", result)
            yield _begun(x, op, result, f"{w}, {kind}")
    for op, result in (f"reduce_scatter[{w}", x), (f"all_to_all[{w}", parts):
        yield _graph(parts, f"{op}]", result)
        yield _begun(parts, op, result, f"{w}, is_replicated=False")
    for pairs in (ring, ring[: n // 2], ()):
        yield _graph(x, f"send_recv[{w}, pairs={pairs}]", x)


def alone(n: int) -> Iterator[Graph]:
    w = f"group='world', size={n}"
    yield _graph("f64[2, 3]", f"pvary[{w}]", "f64[2, 3]")
    yield _graph(f"f64[{n}, 2, 3]", f"own_part[{w}]", "f64[2, 3]")


def _graph(operand: str, op: str, result: str) -> Graph:
    return verify(parse_graph(f"(x: {operand}) {{ y: {result} = {op}(x); return y }}"))


def _begun(operand: str, op: str, result: str, wait: str) -> Graph:
    """The same begun, and waited for."""
    begun = f"a: {result} = {op}, manner='begun'](x)"
    return verify(parse_graph(f"(x: {operand}) {{ {begun}; y: {result} = wait[{wait}](a, x); return y }}"))


def both(n: int) -> list[tuple[Graph, bool]]:
    return [*((g, True) for g in graphs(n)), *((g, False) for g in alone(n))]


def draw(graph: Graph, n: int, varying: Sequence[bool], seed: int = 0) -> list[Any]:
    """Inputs for all ranks: those that vary have them as their first axis."""
    generator = np.random.default_rng(seed)

    def one(v: Value, flag: bool) -> Any:
        shape = (n, *v.type.shape) if flag else v.type.shape
        return generator.standard_normal(shape).astype(v.type.dtype.numpy)

    return [one(v, flag) for v, flag in zip(graph.inputs, varying, strict=True)]


def on_ranks(graph: Graph, n: int, inputs: Sequence[Any], varying: Sequence[bool]) -> list[list[Any]]:
    """What every rank computes."""

    def program(world: ThreadRank) -> list[Any]:
        given = [x[world.rank] if flag else x for x, flag in zip(inputs, varying, strict=True)]
        return evaluate(graph, given)

    return run_ranks(n, program)


def agree(ranks: Sequence[Sequence[Any]], whole: Sequence[Any], varying: Sequence[bool], what: object) -> None:
    """What ranks have is their part of the whole; replicated results are the same on all, bit by bit."""
    for k, (expected, flag) in enumerate(zip(whole, varying, strict=True)):
        for r, found in enumerate(ranks):
            wanted = expected[r] if flag else expected
            scale = float(np.max(np.abs(wanted), initial=1e-3))
            np.testing.assert_allclose(found[k], wanted, rtol=1e-12, atol=1e-13 * scale, err_msg=str(what))
            assert flag or np.array_equal(found[k], ranks[0][k]), what


@pytest.mark.parametrize("n", RANKS)
def test_ranks_compute_what_the_global_graph_says(n: int) -> None:
    for graph, kind in both(n):
        x = draw(graph, n, [kind])
        whole, kinds = global_graph(graph, "world", n, [kind])
        agree(on_ranks(graph, n, x, [kind]), evaluate(verify(whole), x), kinds, graph)


@pytest.mark.parametrize("n", RANKS)
def test_the_adjoint_on_every_rank_is_that_of_the_global_graph(n: int) -> None:
    for graph, kind in both(n):
        whole, kinds = global_graph(graph, "world", n, [kind])
        x = draw(graph, n, [kind])
        check_derivatives(whole, x)
        bars = draw(Graph(graph.outputs, (), ()), n, kinds, seed=1)
        back, flags = verify(adjoint(graph)), [kind, *kinds]
        pulled = evaluate(adjoint(whole), [*x, *bars])
        agree(on_ranks(back, n, [*x, *bars], flags), pulled, [kind], graph)
        if n <= 3:  # the adjoint of the adjoint, by the inputs and by the cotangents
            twice = verify(adjoint(back))
            more = draw(Graph(back.outputs, (), ()), n, [kind], seed=2)
            expected = evaluate(adjoint(adjoint(whole)), [*x, *bars, *more])
            agree(on_ranks(twice, n, [*x, *bars, *more], [*flags, kind]), expected, flags, graph)


@pytest.mark.parametrize("n", [1, 3])
def test_tangents_on_every_rank_are_those_of_the_global_graph(n: int) -> None:
    for graph, kind in both(n):
        whole, kinds = global_graph(graph, "world", n, [kind])
        x, v = draw(graph, n, [kind]), draw(graph, n, [kind], seed=3)
        agree(
            on_ranks(verify(jvp(graph)), n, [*x, *v], [kind, kind]),
            evaluate(jvp(whole), [*x, *v]),
            [*kinds, *kinds],
            graph,
        )


@pytest.mark.parametrize("n", [1, 3])
def test_a_batch_is_every_element_by_itself(n: int) -> None:
    for graph, kind in both(n):
        batched = verify(vmap(graph, [True], 4))
        x = draw(batched, n, [kind])[0]
        found = on_ranks(batched, n, [x], [kind])
        for k in range(4):
            one = on_ranks(graph, n, [x[:, k] if kind else x[k]], [kind])
            for rank in range(n):
                np.testing.assert_array_equal(found[rank][0][k], one[rank][0])


def test_texts_and_ops_round_trip() -> None:
    for graph, _ in both(3):
        again = parse_graph(str(graph))
        assert str(again) == str(graph)
        assert [node.op for node in again.nodes] == [node.op for node in graph.nodes]


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "i8", "u8", "i16", "i32", "i64", "bool", "c64", "c128"])
def test_every_dtype_is_combined_and_moved(dtype: str) -> None:
    """Sums of integers wrap around, halves are rounded once, NaN is the result wherever it takes part."""
    n = 3
    for graph in graphs(n, dtype) if not dtype.startswith("c") else _complex(graphs(n, "f64"), dtype):
        kind = graph.inputs[0].type.dtype
        x = (40 * draw(graph, n, [True])[0].real.astype(np.float64)).astype(np.float32)
        if kind.kind == "float":
            x[n - 1].flat[0] = np.nan
        with np.errstate(all="ignore"):
            given = x.astype(np.int64).astype(kind.numpy) if kind.kind in ("int", "uint") else x.astype(kind.numpy)
            (expected,) = evaluate(global_graph(graph, "world", n, [True])[0], [given])
        flag = global_graph(graph, "world", n, [True])[1][0]
        for r, (found,) in enumerate(on_ranks(graph, n, [given], [True])):
            assert found.dtype == kind.numpy
            wanted = expected[r] if flag else expected
            if kind.kind in ("bool", "int", "uint"):
                np.testing.assert_array_equal(found, wanted, err_msg=str(graph))
            else:
                wide: Any = np.complex128 if kind.is_complex else np.float64
                error = 0.01 if kind.size_bytes < 4 else 1e-5
                np.testing.assert_allclose(found.astype(wide), wanted.astype(wide), rtol=error, err_msg=str(graph))


def _complex(found: Iterator[Graph], dtype: str) -> Iterator[Graph]:
    for graph in found:
        if "'max'" not in str(graph) and "'min'" not in str(graph):
            yield verify(parse_graph(str(graph).replace("f64", dtype)))


def test_the_gradient_of_an_extreme_goes_to_the_lowest_rank_that_has_it() -> None:
    graph = _graph("f64[2]", "all_reduce[group='world', size=3, combine='max', is_replicated=True]", "f64[2]")
    x = np.array([[1.0, 5.0], [4.0, 5.0], [4.0, 5.0]])
    found = on_ranks(adjoint(graph), 3, [x, np.array([1.0, 10.0])], [True, False])
    np.testing.assert_array_equal([bars[0] for bars in found], [[0, 10], [1, 0], [0, 0]])


def test_operands_that_do_not_fit_are_refused() -> None:
    with ThreadAsRank(ThreadRank("world", 0, 1, _Meeting(1, 1.0))):
        with pytest.raises(ShapeError, match="a part for each of the 2 ranks"):
            parse_and_verify("(x: f32[3]) { y: f32[] = reduce_scatter[group='world', size=2](x); return y }")
        with pytest.raises(ArgumentError, match="no rank 2"):
            Broadcast("world", 2, 2, True).result_type(_type("f32[3]"))
        with pytest.raises(ArgumentError, match="sends once"):
            SendRecv("world", 2, ((0, 1), (0, 0))).result_type(_type("f32[3]"))
        with pytest.raises(UnsupportedDTypeError, match="complex"):
            AllReduce("world", 2, "max", True).result_type(_type("c64[3]"))
        with pytest.raises(ArgumentError, match="has 1 ranks now"):
            AllReduce("world", 2, "sum", True).eager(np.zeros(3))


def parse_and_verify(text: str) -> Graph:
    return verify(parse_graph(text))


def _type(text: str) -> Any:
    return parse_graph(f"(x: {text}) {{ return x }}").inputs[0].type
