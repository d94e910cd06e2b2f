"""The CPU's walk through a loop program: which loops run inside, and what varies there."""

from __future__ import annotations

import pytest

from autojit.codegen.cpu.loops.walk import CpuWalk
from autojit.schedule.expressions import Applied, Load, LookUp, RowResult
from autojit.schedule.kernels import LoopKernel
from tests.schedule.shown import scheduled


def walk_of(text: str) -> CpuWalk:
    (kernel,) = scheduled(text).kernels
    assert isinstance(kernel, LoopKernel)
    return CpuWalk(kernel.program)


@pytest.mark.parametrize(
    ("text", "rows", "inner"),
    [
        ("(x: f32[4, 6]) { y: f32[4, 6] = exp(x); return y }", [], [24]),
        ("(x: f32[4, 6]) { p: f32[6, 4] = permute[axes=(1, 0)](x); y: f32[6, 4] = exp(p); return y }", [6], [4]),
        ("(x: f32[4, 6]) { y: f32[4] = sum[axes=(1,)](x); return y }", [4], [6]),
        ("(x: f32[4, 6]) { y: f32[6] = sum[axes=(0,)](x); return y }", [4], [6]),
        ("(x: f32[4, 6]) { y: f32[] = sum[axes=(0, 1)](x); return y }", [], [24]),
        ("(x: f32[4, 1]) { y: f32[4] = sum[axes=(1,)](x); return y }", [4], []),
        ("(x: f32[]) { y: f32[] = exp(x); return y }", [], []),
    ],
)
def test_the_last_loop_of_a_flat_nest_runs_inside(text: str, rows: list[int], inner: list[int]) -> None:
    walk = walk_of(text)
    assert ([v.extent for v in walk.rows], [v.extent for v in walk.inner]) == (rows, inner)


def test_what_depends_on_the_row_alone_does_not_vary() -> None:
    walk = walk_of("""(x: f32[4, 6], b: f32[4, 1], c: f32[6]) {
        s: f32[4] = sum[axes=(1,)](x); r: f32[4, 1] = reshape[shape=(4, 1)](s); u: f32[4, 1] = mul(r, b);
        v: f32[4, 6] = mul(x, c); y: f32[4, 6] = add(v, u); return y
    }""")
    names = {"x": walk.program.loads[0], "b": walk.program.loads[1], "c": walk.program.loads[2]}
    assert {v.name for v in names.values()} == {"x", "b", "c"}
    loads = {walk.program.loads[e.buffer].name: e in walk.varying for e in walk.program.exprs if isinstance(e, Load)}
    assert loads == {"x": True, "b": False, "c": True}
    ops = {e: e in walk.varying for e in walk.program.exprs if isinstance(e, Applied | RowResult)}
    assert list(ops.values()).count(False) == 2  # the sum, and what is computed from it for the row


def test_an_index_that_is_looked_up_inside_makes_what_it_finds_vary() -> None:
    rows = walk_of("""(x: f32[5, 6], i: i64[4]) {
        y: f32[4, 6] = index_select[axis=0](x, i); z: f32[4, 6] = neg(y); return z
    }""")
    elements = walk_of("""(x: f32[4, 5], i: i64[4, 6]) {
        y: f32[4, 6] = gather[axis=1](x, i); z: f32[4, 6] = neg(y); return z
    }""")
    for walk, varies in ((rows, False), (elements, True)):
        (lookup,) = [e for e in walk.program.exprs if isinstance(e, LookUp)]
        assert (lookup in walk.varying) == varies
        assert walk.program.stores[0].expr in walk.varying


def test_functions_cost_more_than_sums_and_operands_count() -> None:
    walk = walk_of("(x: f32[9]) { a: f32[9] = exp(x); b: f32[9] = add(a, x); y: f32[9] = mul(b, b); return y }")
    load, exp, add, mul = walk.program.exprs
    assert walk.costs == {load: 0, exp: 7, add: 8, mul: 17}
