"""Schedules that are compiled and run: products over many axes, updates in place, call-backs; positions as numbers."""

from __future__ import annotations

import numpy as np
import pytest

import autojit.ops  # noqa: F401
from autojit.ir import parse_graph
from autojit.ir.graph import Value
from autojit.ir.index import Index, LoopVariable, Opaque, delinearize, linearize
from autojit.schedule.kernels import Access, joint_batch
from tests.codegen.agreement import check_compiled, check_donated, donations


def test_three_batch_axes_walk_as_one() -> None:
    value = Value(parse_graph("(x: f32[2, 3, 4, 5, 6]) { return x }").inputs[0].type)
    whole = Access(value, 0, (360, 120, 30, 6, 1))
    assert joint_batch((whole, whole), value.type.shape) == [(24, (30, 30))]
    crossed = Access(value, 0, (360, 30, 90, 6, 1))
    assert len(joint_batch((whole, crossed), value.type.shape)) == 3


@pytest.mark.parametrize("axes", [(0, 1, 2, 3, 4), (1, 2, 0, 3, 4), (2, 1, 0, 4, 3), (0, 2, 1, 3, 4)])
def test_products_over_many_batch_axes_compile(axes: tuple[int, ...], rng: np.random.Generator) -> None:
    sizes = (2, 3, 4, 5, 5)
    moved = [sizes[a] for a in axes]
    shape = [*moved[:3], moved[4], 2]
    graph = parse_graph(
        f"(x: f32{list(sizes)}, w: f32{shape}) {{ p: f32{moved} = permute[axes={axes}](x);"
        f" y: f32{[*moved[:4], 2]} = matmul(p, w); return y }}"
    )
    check_compiled(graph, [rng.standard_normal(v.type.shape).astype(np.float32) for v in graph.inputs], 32)


IN_PLACE = """(p: f32[300], g: f32[300]) {
  q: f32[300] = sub(p, g); r: f32[300] = mul(p, q); s: f32[300] = add(q, p); return q, r, s
}"""


def test_values_read_beside_an_update_in_place_are_the_old_ones(rng: np.random.Generator) -> None:
    graph = parse_graph(IN_PLACE)
    inputs = [rng.standard_normal(300).astype(np.float32) for _ in graph.inputs]
    assert donations(graph) == {0: 0, 1: 1}
    check_donated(graph, inputs, 2)


def test_an_old_value_that_is_an_output_survives_the_update(rng: np.random.Generator) -> None:
    graph = parse_graph("(p: f32[4, 2]) { o: f32[8] = reshape[shape=(8,)](p); q: f32[4, 2] = exp(p); return o, q }")
    check_donated(graph, [rng.standard_normal((4, 2)).astype(np.float32)], 4)


def test_ops_without_a_lowering_are_called_back_and_complex_numbers_are_not(rng: np.random.Generator) -> None:
    graph = parse_graph(
        "(x: c128[3, 4], y: f32[5]) { a: c128[3, 4] = exp(x); b: c128[4] = sum[axes=(0,)](a);"
        " c: c128[4] = flip[axes=(0,)](b); d: f64[4] = real(c); e: f64[4] = square(d);"
        " n: f32[5] = zeta(y, y); m: f32[5] = neg(n); return e, m }"
    )
    x = rng.standard_normal((3, 4)) + 1j * rng.standard_normal((3, 4))
    compiled = check_compiled(graph, [x, rng.standard_normal(5).astype(np.float32)])
    assert set(compiled.lowered.fallbacks) == {"zeta"}


def test_index_division_is_right_for_every_position(rng: np.random.Generator) -> None:
    """Splitting and joining positions with signs, offsets and run-time parts agrees with plain integers."""
    i, j, g = LoopVariable("i", 7), LoopVariable("j", 5), Opaque("g", 9)
    for _ in range(300):
        a, b, c = (int(k) for k in rng.integers(-12, 13, 3))
        index = Index.of(i) * a + Index.of(j) * b + Index.of(g) * c
        index = index - min(index.bounds()[0], 0) + int(rng.integers(0, 9))
        divisor = int(rng.integers(1, 13))
        for at in ({i: 0, j: 0, g: 0}, {i: 6, j: 4, g: 8}, {i: 3, j: 1, g: 5}, {i: 0, j: 4, g: 2}):
            whole = evaluated(index, at)
            assert evaluated(index // divisor, at) == whole // divisor
            assert evaluated(index % divisor, at) == whole % divisor


def test_delinearize_inverts_linearize() -> None:
    shape = (3, 1, 4, 5)
    index = tuple(Index.of(LoopVariable(f"i{k}", n)) for k, n in enumerate(shape))
    assert delinearize(linearize(index, shape), shape) == index


def evaluated(index: Index, at: dict[object, int]) -> int:
    """The number an index is when its variables have values; divisions as generated code does them."""
    total = index.offset
    for term, coefficient in index.terms:
        if term in at:
            total += coefficient * at[term]
            continue
        base = evaluated(term.base, at)  # type: ignore[union-attr]
        assert base >= 0, "generated code divides unsigned"
        divisor = term.divisor  # type: ignore[union-attr]
        total += coefficient * (base // divisor if type(term).__name__ == "Quotient" else base % divisor)
    return total
