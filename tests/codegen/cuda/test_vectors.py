"""Vectors of neighbours whatever the extents: along the line of all points, past what is not aligned, through tiles
that transpose; and that what no text contracts has the bits of the CPU.
"""

from __future__ import annotations

from math import prod
from zlib import crc32

import numpy as np
import pytest

from autojit.codegen.cuda.entry_point import alignment_of
from autojit.codegen.cuda.grid_plan import plan_grid
from autojit.codegen.cuda.machine import CUDA_MACHINE
from autojit.codegen.grid_text import Buffer
from autojit.compiler import compile as compile_graph
from autojit.core.dtypes import ALL_DTYPES
from autojit.passes.pipeline import optimize
from autojit.schedule.scheduler import schedule
from tests.codegen.cuda.grids import LANE_ORDERS, LARGE, SMALL, all_values, loop_kernels, run
from tests.codegen.cuda.test_grid_forms import check, programs_of
from tests.codegen.cuda.test_machine_code import accesses, entries, program_of
from tests.codegen.cuda.test_op_samples import OPS, PARTS
from tests.ops.laws import graph_of
from tests.ptxas import ptx_of

WIDE = {"ld.global.nc.v4.b32", "st.global.v4.b32"}


def shapes(seed: int, count: int, least: int, most: int) -> list[tuple[int, ...]]:
    rng = np.random.default_rng(seed)
    return [tuple(int(n) for n in rng.integers(least, most, rng.integers(2, 5))) for _ in range(count)]


def spread(shape: tuple[int, ...], axis: int, dtype: str = "f32") -> str:
    """A chain with an operand that only one axis moves, and what it is compared with."""
    full, dims = f"{dtype}[{', '.join(map(str, shape))}]", ", ".join(map(str, shape))
    last = ", ".join(str(n if k == axis else 1) for k, n in enumerate(shape))
    return (
        f"(x: {full}, w: {dtype}[{shape[axis]}]) {{ r: {dtype}[{last}] = reshape[shape=({last})](w); "
        f"b: {full} = broadcast_to[shape=({dims})](r); y: {full} = mul(x, b); p: bool[{dims}] = lt(y, x); "
        f"t: {dtype}[] = sum[axes={tuple(range(len(shape)))}](y); return y, p, t }}"
    )


@pytest.mark.parametrize("number", range(12))
def test_vectors_go_along_all_loops_whatever_their_extents(number: int) -> None:
    """What is behind the last vector is computed too, and totals have it once."""
    shape = shapes(0, 12, 1, 14)[number]
    for axis in range(len(shape)):
        dtype = ("f32", "f64", "bf16")[(number + axis) % 3]
        check(spread(shape, axis, dtype), (LARGE, SMALL)[axis % 2], LANE_ORDERS[number % 2])


def test_odd_extents_are_accessed_wide() -> None:
    """13 columns have no vectors, and 25 x 13 x 31 points none that end where they do."""
    text = spread((25, 31, 13), 1)
    alone = f"{text[: text.index('p: bool')]}return y }}"
    (ptx,) = ptx_of(entries(program_of(alone)), "sm_90")
    assert accesses(ptx).keys() >= {"ld.global.nc.v4.b32", "st.global.v4.b32"}


@pytest.mark.parametrize("size", [4, 12, 16, 20, 48])
def test_no_more_is_said_of_an_address_than_accesses_may_use(size: int) -> None:
    """Of a buffer that is read in whole pieces all that is true; of another what divides its size, too."""
    assert alignment_of(Buffer("reads", 4, True), size, 256) == 16
    assert alignment_of(Buffer("reads", 4, True), size, 256 + 8) == 8
    assert alignment_of(Buffer("reads", 4), size, 256) == min(16, size & -size)


def transposed(shape: tuple[int, ...], order: tuple[int, ...], dtype: str) -> str:
    turned = [shape[k] for k in order]
    full, dims = f"{dtype}[{', '.join(map(str, turned))}]", ", ".join(map(str, turned))
    return (
        f"(x: {dtype}[{', '.join(map(str, shape))}], w: {full}) {{ t: {full} = permute[axes={order}](x); "
        f"y: {full} = mul(t, w); z: {full} = mul(y, t); p: bool[{dims}] = lt(y, w); return z, p }}"
    )


CASES = [
    ((64, 64), (1, 0), "f32"),
    ((70, 130), (1, 0), "f32"),
    ((3, 100, 64), (0, 2, 1), "bf16"),
    ((33, 5, 40), (2, 1, 0), "f64"),
    ((2, 48, 3, 36), (0, 3, 2, 1), "i8"),
    ((17, 257), (1, 0), "i64"),
]


@pytest.mark.parametrize("order", LANE_ORDERS)
@pytest.mark.parametrize(("shape", "axes", "dtype"), CASES)
def test_what_is_transposed_passes_through_tiles(
    shape: tuple[int, ...], axes: tuple[int, ...], dtype: str, order: int | None
) -> None:
    text = transposed(shape, axes, dtype)
    assert prod(shape) >= 4096
    assert any(plan_grid(program, LARGE)[1].transposes for program in programs_of(text)[1])
    check(text, LARGE, order)


def test_both_sides_of_a_transposition_are_wide() -> None:
    (ptx,) = ptx_of(entries(program_of(transposed((1024, 512), (1, 0), "f32").replace("z, p }", "z }"))), "sm_90")
    assert set(accesses(ptx)) == WIDE


def test_elements_of_single_ops_have_the_bits_of_the_cpu() -> None:
    """Also where both contract a product and a sum: of one op they contract alike."""
    compared = 0
    for op_class in OPS:
        for dtype in ALL_DTYPES:
            for number, (op, inputs) in enumerate(op_class.samples(dtype)):  # type: ignore[attr-defined]
                name = f"{op_class.name} {dtype.short} {number}"
                if crc32(name.encode()) % (3 * PARTS):
                    continue
                arrays = [np.ascontiguousarray(x).reshape(np.shape(x)) for x in inputs]
                graph = graph_of(op, arrays)
                parts = optimize(graph, CUDA_MACHINE)
                programs = [k.program for k in loop_kernels(schedule(parts, CUDA_MACHINE)) or ()]
                if not programs or any(p.accumulators or p.reductions for p in programs):
                    continue
                known = all_values(parts, arrays)
                for program in programs:
                    known = {**known, **run(program, known, LARGE).values}
                expected = compile_graph(graph).executable.run(arrays)
                for value, array in zip(parts.outputs, expected, strict=True):
                    assert np.asarray(known[value]).tobytes() == np.ascontiguousarray(array).tobytes(), name
                compared += 1
    assert compared > 60
