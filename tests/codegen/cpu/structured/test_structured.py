"""Native kernels of scatters, scans, constants and integer products: no call-backs, right at every layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autojit.ops  # noqa: F401
from autojit.compiler import compile
from autojit.core.errors import IndexOutOfRangeError
from autojit.ir import parse_graph
from tests.codegen.agreement import check_compiled

SCATTERS = {
    "rows": "index_update[axis=0, combine='add'](b, s, i)",
    "rows set": "index_update[axis=0, combine='set'](b, s, i)",
    "leading": "index_put[combine='add'](b, s, i)",
}


@pytest.mark.parametrize("kind", SCATTERS)
@pytest.mark.parametrize("columns", [1, 7, 64, 1000])
def test_scatters_of_rows_are_native(kind: str, columns: int, rng: Any) -> None:
    rows = 50 if columns < 1000 else 400
    text = f"(b: f32[20, {columns}], s: f32[{rows}, {columns}], i: i64[{rows}]) {{"
    graph = parse_graph(f"{text} y: f32[20, {columns}] = {SCATTERS[kind]}; return y }}")
    base, src = (rng.standard_normal((n, columns)).astype(np.float32) for n in (20, rows))
    compiled = check_compiled(graph, [base, src, rng.integers(-20, 20, rows)], 32)
    assert compiled.lowered.fallbacks == ()


def test_a_scatter_into_its_base_touches_only_the_places_written(rng: Any) -> None:
    graph = parse_graph(
        "(b: f64[1000, 8], s: f64[3, 8], i: i64[3]) {"
        " y: f64[1000, 8] = index_update[axis=0, combine='add'](b, s, i); return y }"
    )
    compiled = compile(graph, {0: 0})
    assert len(compiled.schedule.kernels) == 1
    base, src, index = rng.standard_normal((1000, 8)), rng.standard_normal((3, 8)), np.array([5, -1, 5])
    expected = base.copy()
    np.add.at(expected, index, src)
    compiled.executable.run([base, src, index], [base])
    np.testing.assert_allclose(base, expected, rtol=1e-14)


def test_what_becomes_cheap_to_recompute_when_its_operand_is_stored_is_still_a_result() -> None:
    graph = parse_graph(
        "(x: i32[7], i: i64[1], j: i64[1], k: i64[1]) { z: i32[2, 3, 9] = full[value=0, dtype=i32, shape=(2, 3, 9)]();"
        " a: i32[1] = index_select[axis=0](x, i); b: i32[2, 1, 9] = index_select[axis=1](z, j);"
        " u: i32[1] = index_update[axis=0, combine='set'](a, a, k); s: i32[2, 1, 9] = add(a, b); return u, s }"
    )
    zero = np.zeros(1, np.int64)
    check_compiled(graph, [np.arange(3, 10, dtype=np.int32), zero, zero, zero])


def test_a_scatter_reports_an_index_out_of_range() -> None:
    graph = parse_graph("(b: f32[4], s: f32[2], i: i64[2]) { y: f32[4] = index_put[combine='add'](b, s, i); return y }")
    executable = compile(graph).executable
    arrays = [np.zeros(4, np.float32), np.ones(2, np.float32)]
    with pytest.raises(IndexOutOfRangeError, match="index_put"):
        executable.run([*arrays, np.array([1, 4])])
    assert executable.run([*arrays, np.array([1, -4])])[0].tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", ["f32", "f64", "i64", "f16"])
def test_scans_are_native_along_every_axis(axis: int, reverse: bool, dtype: str, rng: Any) -> None:
    shape = [3, 40, 200]
    kind = f"{dtype}{shape}"
    graph = parse_graph(
        f"(x: {kind}, a: {kind}) {{"
        f" s: {kind} = cumulative[kind='sum', axis={axis}, reverse={reverse}](x);"
        f" r: {kind} = linear_recurrence[axis={axis}, reverse={reverse}](a, x);"
        f" m: {kind}, p: i64{shape} = cumulative_extreme[kind='max', axis={axis}](x);"
        " return s, r, m, p }"
    )
    numpy_dtype = graph.inputs[0].type.dtype.numpy
    x = (rng.standard_normal(shape) * 3).astype(numpy_dtype)
    a = (rng.random(shape) * 0.9).astype(numpy_dtype)
    compiled = check_compiled(graph, [x, a], 64)
    assert compiled.lowered.fallbacks == ()


def test_constants_and_integer_products_are_native(rng: Any) -> None:
    table = np.arange(6, dtype=np.int32).reshape(2, 3)
    graph = parse_graph(
        f"(x: i32[4, 5, 2]) {{ c: i32[2, 3] = constant[data='{table.tobytes().hex()}', dtype=i32, shape=(2, 3)]();"
        " w: i32[4, 2, 3] = broadcast_to[shape=(4, 2, 3)](c); y: i32[4, 5, 3] = matmul(x, w); return y, c }"
    )
    compiled = check_compiled(graph, [rng.integers(-9, 9, (4, 5, 2)).astype(np.int32)])
    assert compiled.lowered.fallbacks == ()
