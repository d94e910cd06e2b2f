"""Sums of padded slices and of short products become one concatenation and one product; results stay."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

import autojit as aj
from autojit.ir.graph import Graph
from autojit.ir.interpreter import evaluate
from autojit.ir.text import parse_graph
from autojit.passes.common_subexpressions import eliminate_common_subexpressions
from autojit.passes.dead_code import eliminate_dead_code
from autojit.passes.join_slices import join_slices
from tests.codegen.agreement import check_compiled
from tests.on_cpu import join_products

PADDED = "pad[low=({},), high=({},), interior=(0,), value={}]({})"


def joined(text: str) -> Graph:
    return eliminate_dead_code(join_slices(parse_graph(text)))


def drawn(graph: Graph) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [generator.normal(size=v.type.shape).astype(v.type.dtype.numpy) for v in graph.inputs]


def check(before: Graph, after: Graph) -> None:
    inputs = drawn(before)
    for x, y in zip(evaluate(before, inputs), evaluate(after, inputs), strict=True):
        np.testing.assert_allclose(y, x, rtol=1e-6, atol=1e-6)


def padded_sum(low: tuple[int, int], high: tuple[int, int], value: int = 0) -> str:
    return (
        f"(x: f32[2], y: f32[3]) {{ a: f32[6] = {PADDED.format(low[0], high[0], value, 'x')}; "
        f"b: f32[6] = {PADDED.format(low[1], high[1], value, 'y')}; c: f32[6] = add(a, b); return c }}"
    )


def test_padded_slices_are_joined_with_zeros_between_them() -> None:
    text = padded_sum((4, 0), (0, 3))
    assert "v0: f32[1] = full[value=0" in str(joined(text))
    assert "c: f32[6] = concatenate[axis=0](y, v0, x);" in str(joined(text))
    check(parse_graph(text), joined(text))


@pytest.mark.parametrize(("low", "high", "value"), [((1, 0), (3, 3), 0), ((4, 0), (0, 3), 1)])
def test_slices_that_overlap_or_are_padded_with_others_than_zeros_stay(
    low: tuple[int, int], high: tuple[int, int], value: int
) -> None:
    text = padded_sum(low, high, value)
    assert str(joined(text)) == str(parse_graph(text))


def test_other_terms_are_added_to_what_is_joined_and_sums_that_somebody_reads_stay_whole() -> None:
    text = (
        f"(x: f32[2], y: f32[4], z: f32[6]) {{ a: f32[6] = {PADDED.format(0, 4, 0, 'x')}; b: f32[6] = add(z, a); "
        f"c: f32[6] = {PADDED.format(2, 0, 0, 'y')}; d: f32[6] = add(b, c); return d }}"
    )
    assert "add(z, v0)" in str(joined(text))
    check(parse_graph(text), joined(text))
    read = text.replace("return d", "return d, b")
    assert str(joined(read)) == str(parse_graph(read))


def products(count: int, rows: int) -> str:
    """``sum of a_k.T @ b_k``, with the ``a_k`` stacked elsewhere in another order."""
    names = range(count)
    parts = [
        *(f"a{k}: f32[{rows}, 8]" for k in names),
        *(f"b{k}: f32[{rows}, 6]" for k in names),
    ]
    lines = [f"s{k}: f32[1, {rows}, 8] = reshape[shape=(1, {rows}, 8)](a{k})" for k in names]
    lines += [f"t{k}: f32[8, {rows}] = permute[axes=(1, 0)](a{k})" for k in reversed(names)]
    lines += [f"p{k}: f32[8, 6] = matmul(t{k}, b{k})" for k in reversed(names)]
    total = f"p{count - 1}"
    for k in reversed(range(count - 1)):
        lines.append(f"q{k}: f32[8, 6] = add({total}, p{k})")
        total = f"q{k}"
    lines.append(f"stack: f32[{count}, {rows}, 8] = concatenate[axis=0]({', '.join(f's{k}' for k in names)})")
    return f"({', '.join(parts)}) {{ {'; '.join(lines)}; return {total}, stack }}"


def test_a_sum_of_short_products_is_one_product_of_what_is_stacked_already() -> None:
    graph = parse_graph(products(5, 2))
    found = eliminate_dead_code(eliminate_common_subexpressions(join_products(graph)))
    text = str(found)
    assert text.count("matmul(") == 1
    assert text.count("add(") == 0
    assert text.count("concatenate") == 2  # the stack that was there, and the second operands
    check(graph, found)
    check_compiled(found, drawn(found))


def test_products_of_what_is_stacked_along_the_other_axis_keep_their_meaning() -> None:
    text = products(5, 8).replace("matmul(t", "matmul(a")
    graph = eliminate_dead_code(parse_graph(text))
    found = eliminate_dead_code(eliminate_common_subexpressions(join_products(graph)))
    check(graph, found)


@pytest.mark.parametrize("order", [range(5), reversed(range(5)), (2, 0, 4, 1, 3)], ids=["rising", "falling", "mixed"])
def test_operands_that_are_the_rows_of_a_whole_are_not_joined(order: Iterable[int]) -> None:
    """A loop over steps of a sequence, whose gradient goes through them in any order."""
    places = list(order)
    rows = "slice[starts=({}, 0, 0), stops=({}, 2, 6), steps=(1, 1, 1)](w)"
    lines = [
        f"s{k}: f32[1, 2, 6] = {rows.format(k, k + 1)}; b{k}: f32[2, 6] = reshape[shape=(2, 6)](s{k})" for k in places
    ]
    lines += [f"t{k}: f32[8, 2] = permute[axes=(1, 0)](a{k}); p{k}: f32[8, 6] = matmul(t{k}, b{k})" for k in places]
    total = f"p{places[0]}"
    for k in places[1:]:
        lines.append(f"q{k}: f32[8, 6] = add({total}, p{k})")
        total = f"q{k}"
    inputs = ", ".join(f"a{k}: f32[2, 8]" for k in range(5))
    graph = parse_graph(f"({inputs}, w: f32[5, 2, 6]) {{ {'; '.join(lines)}; return {total} }}")
    found = eliminate_dead_code(join_products(graph))
    assert str(found).count("matmul(") == 1
    assert str(found).count("concatenate") == 1  # of the first operands
    assert "slice" not in str(found)
    check(graph, found)


def two_sums(count: int, rows: int, narrow: int) -> str:
    """``sum of a_k.T @ b_k`` and ``sum of a_k.T @ c_k``."""
    names = range(count)
    parts = [f"{x}{k}: f32[{rows}, {n}]" for k in names for x, n in (("a", 64), ("b", 48), ("c", narrow))]
    lines = [f"t{k}: f32[64, {rows}] = permute[axes=(1, 0)](a{k})" for k in names]
    for x, n in (("b", 48), ("c", narrow)):
        lines += [f"p{x}{k}: f32[64, {n}] = matmul(t{k}, {x}{k})" for k in names]
        lines += [f"q{x}{k}: f32[64, {n}] = add({'p' if k == 1 else 'q'}{x}{k - 1}, p{x}{k})" for k in names if k]
    return f"({', '.join(parts)}) {{ {'; '.join(lines)}; return qb{count - 1}, qc{count - 1} }}"


def test_what_one_sum_joins_serves_the_others() -> None:
    graph = parse_graph(
        two_sums(5, 40, 12).replace("f32", "f64")
    )  # alone, the narrow products would copy more than they save
    found = eliminate_dead_code(eliminate_common_subexpressions(join_products(graph)))
    assert str(found).count("matmul(") == 2
    assert str(found).count("concatenate") == 3
    check(graph, found)
    check_compiled(found, drawn(found))


def test_products_of_open_length_are_joined_where_their_operands_are_stacked_already() -> None:
    text = products(5, 3).replace(", 3, ", ", s0, ").replace("[3, ", "[s0, ").replace(", 3]", ", s0]")
    text = text.replace("8", "384").replace("6]", "32]")
    graph = parse_graph(text)
    found = eliminate_dead_code(eliminate_common_subexpressions(join_products(graph)))
    assert str(found).count("matmul(") == 1
    rng = np.random.default_rng(5)
    for n in (2, 31):
        shapes = [(n, 384)] * 5 + [(n, 32)] * 5
        check_compiled(found, [rng.standard_normal(shape).astype(np.float32) for shape in shapes])
    unstacked = parse_graph(text.replace(", stack }", " }"))
    assert str(join_products(eliminate_dead_code(unstacked))) == str(eliminate_dead_code(unstacked))


def test_few_or_long_products_stay() -> None:
    for count, rows in ((3, 2), (5, 40)):
        graph = parse_graph(products(count, rows))
        assert str(join_products(graph)) == str(graph)


@pytest.mark.parametrize("dtype", ["f32", "f64", "bool", "i8"])
def test_many_blocks_are_copied_whole(dtype: str) -> None:
    rows = [100 + k for k in range(12)]
    names = ", ".join(f"x{k}" for k in range(12))
    inputs = ", ".join(f"x{k}: {dtype}[1, {n}, 40]" for k, n in enumerate(rows))
    graph = parse_graph(f"({inputs}) {{ y: {dtype}[1, {sum(rows)}, 40] = concatenate[axis=1]({names}); return y }}")
    compiled = check_compiled(graph, [np.round(3 * x).astype(x.dtype) for x in drawn(graph)])
    assert not compiled.lowered.fallbacks
    assert "memcpy" in compiled.lowered.entries[0].body  # type: ignore[union-attr, operator]


def test_many_blocks_of_open_length_are_copied_whole() -> None:
    names = ", ".join(f"x{k}" for k in range(9))
    inputs = ", ".join(f"x{k}: f32[1, {'s0' if k % 2 else 's1'}, 40]" for k in range(9))
    graph = parse_graph(f"({inputs}) {{ y: f32[1, 4*s0+5*s1, 40] = concatenate[axis=1]({names}); return y }}")
    rng = np.random.default_rng(4)
    for m, n in ((2, 3), (300, 7)):
        shapes = [(1, m if k % 2 else n, 40) for k in range(9)]
        compiled = check_compiled(graph, [rng.standard_normal(shape).astype(np.float32) for shape in shapes])
        assert "memcpy" in compiled.lowered.entries[0].body  # type: ignore[union-attr, operator]


def test_gradients_of_a_loop_over_slices() -> None:
    x = aj.tensor(np.random.default_rng(1).normal(size=(9, 4, 16)), requires_grad=True)
    w = aj.tensor(np.random.default_rng(2).normal(size=(16, 16)), requires_grad=True)

    def gradients(x: aj.Tensor, w: aj.Tensor) -> tuple[aj.Tensor, ...]:
        h = aj.zeros(4, 16, dtype=aj.float64)
        for t in range(x.shape[0]):
            h = aj.tanh(x[t] + h @ w)
        return aj.autograd.grad(h.square().sum(), (x, w))

    jitted = aj.jit(gradients)
    for found, expected in zip(jitted(x, w), gradients(x, w), strict=True):
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-10, atol=1e-12)
    assert jitted.show("schedule").count("matmul") <= 2 * (9 + 8 + 1)
