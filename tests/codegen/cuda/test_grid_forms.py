"""The forms that loop programs take as grids, at sizes where each begins and ends: rows that few lanes hold, one block
or none; columns with and without kept positions; totals; domains without elements; what is updated in place; reports.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from autojit.codegen.cuda.grid_loops import print_grid
from autojit.codegen.cuda.grid_plan import plan_grid
from autojit.codegen.cuda.machine import CUDA_MACHINE
from autojit.codegen.cuda.target import CudaTarget
from autojit.codegen.report_sites import ACCESS_SITE, FAILURE_SITE
from autojit.core.config import config
from autojit.core.dtypes import float32
from autojit.core.types import TensorType
from autojit.ir import Graph, parse_graph
from autojit.ir.graph import Value
from autojit.passes.pipeline import optimize
from autojit.schedule.expressions import Load
from autojit.schedule.kernels import LoopKernel
from autojit.schedule.loops import Form, LoopProgram, Store
from autojit.schedule.scheduler import schedule
from tests.codegen.cuda.grids import CODE, LANE_ORDERS, LARGE, SMALL, Known, all_values, disagreements, run

ULPS = 16.0
TARGETS = (LARGE, SMALL)

ROWS = [(1, 1), (3, 7), (64, 10), (1000, 3), (8, 1000), (130, 33), (2, 5000), (2, 20_001)]
"""A lane, part of a warp, a warp, several; rows that a block holds in registers, and one that it does not."""


def programs_of(
    text: str, donated: dict[int, int] | None = None, *, passes: bool = True
) -> tuple[Graph, list[LoopProgram]]:
    """The graph, and its loop programs; what has one element is perhaps a copy."""
    graph = optimize(parse_graph(text), CUDA_MACHINE) if passes else parse_graph(text)
    kernels = schedule(graph, CUDA_MACHINE, donated).kernels
    return graph, [kernel.program for kernel in kernels if isinstance(kernel, LoopKernel)]


def drawn(graph: Graph, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [
        (rng.normal(size=v.type.shape) if v.type.dtype.kind == "float" else rng.integers(0, 2, v.type.shape)).astype(
            v.type.dtype.numpy
        )
        for v in graph.inputs
    ]


def check(text: str, target: CudaTarget, order: int | None = None) -> None:
    graph, programs = programs_of(text)
    wrong = disagreements(programs, all_values(graph, drawn(graph)), ULPS, target, order)
    assert not wrong, f"{wrong}\n{graph}"


def softmax(rows: int, columns: int) -> str:
    """Lines that make ``y`` of ``x``: two reductions over each row, and what is computed between them."""
    full = f"f32[{rows}, {columns}]"
    spread = f"broadcast_to[shape=({rows}, {columns})]"
    return (
        f"a0: f32[{rows}] = amax[axes=(1,)](x); a1: f32[{rows}, 1] = reshape[shape=({rows}, 1)](a0); "
        f"a: {full} = {spread}(a1); b: {full} = sub(x, a); c: {full} = exp(b); s0: f32[{rows}] = sum[axes=(1,)](c); "
        f"s1: f32[{rows}, 1] = reshape[shape=({rows}, 1)](s0); s: {full} = {spread}(s1); y: {full} = div(c, s);"
    )


@pytest.mark.parametrize(
    ("rows", "columns", "target"), [*((*rows, LARGE) for rows in ROWS), *((*rows, SMALL) for rows in ROWS[2::2])]
)
def test_rows_are_held_through_all_phases(rows: int, columns: int, target: CudaTarget) -> None:
    """With columns and totals of what is computed last, and totals of what there is one of in a row."""
    text = f"z: f32[{columns}] = sum[axes=(0,)](y); t: f32[] = sum[axes=(0, 1)](y); u: f32[] = sum[axes=(0,)](s0);"
    check(f"(x: f32[{rows}, {columns}]) {{ {softmax(rows, columns)} {text} return y, z, t, u, s0 }}", target)


@pytest.mark.parametrize(
    ("rows", "columns", "order"), [*((*rows, None) for rows in ROWS), *((*rows, 1) for rows in ROWS[::3])]
)
def test_the_first_of_equal_values_is_best(rows: int, columns: int, order: int | None) -> None:
    text = (
        f"(x: i32[{rows}, {columns}], y: f32[{rows}, {columns}]) {{ a: i64[{rows}] = argmax[axes=(1,)](x); "
        f"b: i64[{columns}] = argmin[axes=(0,)](x); c: i64[{rows}] = argmax[axes=(1,)](y); return a, b, c }}"
    )
    check(text, LARGE, order)


@pytest.mark.parametrize("dtype", ["f32", "f64", "i8"])
def test_one_line_is_folded_to_its_end(dtype: str) -> None:
    """Of any length, where nothing is stored of its elements: what two folds of it leave."""
    for n in (1, 3, 5, 6, 7, 17, 67, 1025):
        full = f"{dtype}[{n}]"
        text = (
            f"(x: {full}) {{ a: i64[] = argmax[axes=(0,)](x); m: {dtype}[] = amin[axes=(0,)](x); "
            f"b: {full} = broadcast_to[shape=({n},)](m); d: {full} = sub(x, b); "
            f"s: {dtype}[] = amax[axes=(0,)](d); return a, s }}"
        )
        for only in (text, f"(x: {full}) {{ a: i64[] = argmax[axes=(0,)](x); return a }}"):
            check(only, LARGE)


DTYPES = ("f32", "i8", "f64", "i32", "bf16", "u8", "f16", "i64", "bool", "u16", "u32", "i16", "u64")


@pytest.mark.parametrize("dtype", DTYPES)
def test_columns_and_totals_in_every_dtype(dtype: str) -> None:
    target = TARGETS[DTYPES.index(dtype) % 2]
    total = "any_true" if dtype == "bool" else "sum"
    for kept, rows, columns in [(1, 300, 10), (2, 33, 130), (40, 3, 2)]:
        text = (
            f"(x: {dtype}[{kept}, {rows}, {columns}]) {{ s: {dtype}[{kept}, {columns}] = {total}[axes=(1,)](x); "
            f"t: {dtype}[{columns}] = {total}[axes=(0, 1)](x); u: {dtype}[] = {total}[axes=(0, 1, 2)](x); "
            f"return s, t, u }}"
        )
        check(text, target)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
def test_domains_without_elements_leave_what_folds_begin_with(shape: tuple[int, int]) -> None:
    rows, columns = shape
    text = (
        f"(x: f32[{rows}, {columns}]) {{ e: f32[{rows}, {columns}] = exp(x); r: f32[{rows}] = sum[axes=(1,)](e); "
        f"p: f32[{columns}] = prod[axes=(0,)](e); t: f32[] = sum[axes=(0, 1)](e); return e, r, p, t }}"
    )
    check(text, LARGE)


@pytest.mark.parametrize("target", TARGETS, ids=["many processors", "one processor"])
def test_vectors_end_where_rows_do(target: CudaTarget) -> None:
    """Every length near a multiple of a vector and of a tile, contiguous, strided and turned."""
    for n in (1, 2, 3, 4, 5, 31, 32, 36, 1023, 1024, 1028, 4096):
        text = (
            f"(x: f32[3, {n}], w: f32[{n}]) {{ b: f32[3, {n}] = broadcast_to[shape=(3, {n})](w); "
            f"y: f32[3, {n}] = mul(x, b); t: f32[{n}, 3] = permute[axes=(1, 0)](y); p: bool[3, {n}] = lt(y, x); "
            f"return y, t, p }}"
        )
        check(text, target)


@pytest.mark.parametrize("order", LANE_ORDERS)
def test_what_is_updated_in_place_is_read_before(order: int | None) -> None:
    for n in (1, 1000, 4097):
        graph, programs = programs_of(
            f"(p: f32[{n}], g: f32[{n}], m: f32[{n}]) {{ k: f32[{n}] = add(m, g); q: f32[{n}] = sub(p, k); "
            f"r: f32[{n}] = mul(p, g); return q, k, r }}",
            {0: 0, 1: 2},
        )
        assert {buffer.role for p in programs for buffer in print_grid(p, LARGE).buffers} == {
            "reads",
            "writes",
            "updates",
        }
        assert not disagreements(programs, all_values(graph, drawn(graph)), ULPS, LARGE, order)


# -- errors


def gathering(extent: int) -> tuple[Graph, LoopProgram]:
    text = "y: f32[100, 8] = index_select[axis=0](x, i); z: f32[100, 8] = exp(y);"
    graph, (program,) = programs_of(f"(x: f32[{extent}, 8], i: i64[100]) {{ {text} return z }}", passes=False)
    return graph, program


@pytest.mark.parametrize("order", LANE_ORDERS)
def test_a_bad_index_is_reported_and_spoils_no_other_element(order: int | None) -> None:
    graph, program = gathering(20)
    table, index = drawn(graph)
    good = run(program, {graph.inputs[0]: table, graph.inputs[1]: index}, LARGE, order)
    assert good.errors == (0, 0)
    index[17], index[70] = 20, -21
    bad = run(program, {graph.inputs[0]: table, graph.inputs[1]: index}, LARGE, order)
    assert bad.errors == (CODE << 32 | 1, 0)
    (before,), (after,) = good.values.values(), bad.values.values()
    others = np.setdiff1d(np.arange(100), [17, 70])
    np.testing.assert_array_equal(before[others], after[others])


def test_a_look_up_among_no_elements_is_reported_and_reads_nothing() -> None:
    graph, program = gathering(0)
    known = {graph.inputs[0]: np.zeros((0, 8), "f4"), graph.inputs[1]: np.zeros(100, "i8")}
    assert run(program, known).errors == (CODE << 32 | 1, 0)


def test_an_op_that_fails_is_reported_with_the_number_of_its_failure() -> None:
    text = (
        "(i: i64[300]) { y: bool[300] = in_range[looked_up='gather', axis=0, extent=9, indexed='f32[9]'](i); return y }"
    )
    graph, (program,) = programs_of(text, passes=False)
    index = np.arange(300) % 9
    assert run(program, {graph.inputs[0]: index}).errors == (0, 0)
    index[250] = 9
    word, number = run(program, {graph.inputs[0]: index}).errors
    assert word == CODE << 32 | FAILURE_SITE and number != 0
    assert len(print_grid(program, LARGE).failing) == 1


@contextmanager
def checking() -> Iterator[None]:
    before, config.check = config.check, True
    try:
        yield
    finally:
        config.check = before


def test_checked_kernels_are_right_and_report_where_they_leave_a_buffer() -> None:
    graph, (program,) = programs_of(
        "(x: f32[6, 40]) { s: f32[6] = sum[axes=(1,)](x); e: f32[6, 40] = exp(x); t: f32[40] = sum[axes=(0,)](e); "
        "return s, e, t }"
    )
    known = all_values(graph, drawn(graph))
    short = Value(TensorType((120,), float32), "short")
    wrong = replace(program, loads=(short,))
    with checking():
        assert not disagreements([program], known, ULPS)
        word, position = run(wrong, {**known, short: np.zeros(120, "f4")}).errors
    assert word >> 32 == CODE and word & 0xFFFFFFFF > ACCESS_SITE
    assert 120 <= position < 240


@pytest.mark.parametrize("target", TARGETS, ids=["many processors", "one processor"])
def test_results_are_the_same_bits_whichever_lanes_come_first(target: CudaTarget) -> None:
    """Over lanes, warps, blocks and partial results."""
    text = "z: f32[70] = sum[axes=(0,)](y); t: f32[] = sum[axes=(0, 1)](y); q: f32[] = prod[axes=(0, 1)](c);"
    graph, programs = programs_of(f"(x: f32[1000, 70]) {{ {softmax(1000, 70)} {text} return y, z, t, q, s0 }}")
    known = all_values(graph, drawn(graph))
    for program in programs:
        one, other = (run(program, known, target, order).values for order in LANE_ORDERS)
        assert all(one[value].tobytes() == other[value].tobytes() for value in one)


def carrying(rows: int, columns: int, steps: int) -> str:
    """A chain of which every value is read again after a reduction of the last one."""
    full, spread = f"f32[{rows}, {columns}]", f"broadcast_to[shape=({rows}, {columns})]"
    lines, before = "", ("x", "x")
    for k in range(steps):
        lines += f"u{k}: {full} = mul({before[0]}, {before[1]}); w{k}: {full} = tanh(u{k}); "
        before = f"w{k}", f"u{k}"
    lines += f"m0: f32[{rows}] = sum[axes=(1,)](w{steps - 1}); m1: f32[{rows}, 1] = reshape[shape=({rows}, 1)](m0); "
    lines += f"z0: {full} = {spread}(m1); "
    lines += " ".join(f"z{k + 1}: {full} = add(z{k}, w{k});" for k in range(steps))
    return f"(x: {full}) {{ {lines} s: f32[{columns}] = sum[axes=(0,)](z{steps}); return z{steps}, s }}"


def test_what_registers_do_not_hold_is_computed_again() -> None:
    """Short chains are held by one block, long ones walked; both are right."""
    for steps, is_long in ((3, False), (8, True)):
        text = carrying(3, 4000, steps)
        _, (program,) = programs_of(text)
        assert plan_grid(program, LARGE)[1].is_long == is_long
        check(text, LARGE)


def test_equal_programs_have_one_text() -> None:
    text = f"(x: f32[40, 50]) {{ {softmax(40, 50)} return y }}"
    first, second = (print_grid(programs_of(text)[1][0], LARGE) for _ in range(2))
    assert first == second


def overwriting_rows(columns: int) -> tuple[LoopProgram, Known]:
    """Column sums of rows times what each row has once, which is written again where it was; its values.

    The schedule makes a kernel of its own for what rows have once; here it is part of the sums'.
    """
    full = f"f32[6, {columns}]"
    graph, (sums,) = programs_of(
        f"(b: f32[6], x: {full}) {{ b1: f32[6, 1] = reshape[shape=(6, 1)](b); "
        f"b2: {full} = broadcast_to[shape=(6, {columns})](b1); z: {full} = mul(x, b2); "
        f"s: f32[{columns}] = sum[axes=(0,)](z); return s }}"
    )
    known, old, result = all_values(graph, drawn(graph)), graph.inputs[0], Value(TensorType((6,), float32), "c")
    place = sums.loads.index(old)
    (once,) = [e for e in sums.exprs if isinstance(e, Load) and e.buffer == place]
    store = Store(result, once, once.positions[0])
    program = replace(sums, stores=(store,), in_place={result: place}, form=Form())
    return program, {**known, result: known[old]}


@pytest.mark.parametrize("order", [*LANE_ORDERS, 2, 3])
@pytest.mark.parametrize("columns", [3, 64, 200, 5000, 20_001])
def test_what_a_row_has_once_is_overwritten_behind_all_who_read_it(columns: int, order: int | None) -> None:
    """Lanes of one warp, of several, and rows that are walked."""
    program, known = overwriting_rows(columns)
    assert not disagreements([program], known, ULPS, LARGE, order)
