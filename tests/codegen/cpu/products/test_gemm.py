"""Generated matrix products against NumPy, on every vector width the machine has."""

from __future__ import annotations

import ctypes
import itertools
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

from autojit.codegen.cpu.products.blocks import DEPTH_BLOCK, row_block
from autojit.codegen.cpu.products.gemm import gemm_module, scratch_bytes
from autojit.codegen.cpu.products.tiles import tile_set
from autojit.codegen.target import HostTarget
from autojit.core.dtypes import DType, bfloat16, float32, float64
from autojit.runtime.host import cached_host_target
from autojit.runtime.llvm import assembly
from autojit.runtime.loader import LoadedObject, load
from autojit.runtime.object_cache import default_cache
from tests.fences import Fence

Array = np.ndarray[Any, Any]

GUARD_BYTES = 64
GUARD = 0x5A
LAYOUTS = ("rows", "columns", "padded rows", "every second")


def widths() -> list[int]:
    widest = cached_host_target().vector_bytes
    return [width for width in (64, 32, 16) if width <= widest]


@dataclass(frozen=True)
class Gemm:
    """The library of operands of one dtype, and of one vector width."""

    dtype: DType
    code: LoadedObject

    @property
    def result(self) -> Any:
        """What C holds, for NumPy: halves are summed in float32."""
        return np.float32 if self.dtype is bfloat16 else self.dtype.numpy

    def call(self, name: str, kinds: str, *values: int) -> None:
        types = [ctypes.c_void_p if kind == "p" else ctypes.c_int64 for kind in kinds]
        address = self.code.address(f"aj_{name}_{self.dtype.short}")
        ctypes.CFUNCTYPE(None, *types)(address)(*values)

    def multiply(self, a: Array, b: Array, c: Array, accumulate: int = 0) -> None:
        m, n, k = extents(a, b)
        scratch = guarded(scratch_bytes(self.dtype, m, n, k))
        operands = (*place(a), *place(b), *place(c))
        self.call("gemm", "iiipiipiipiiip", m, n, k, *operands, accumulate, scratch.ctypes.data + GUARD_BYTES)
        assert_guards_whole(scratch)


def extents(a: Array, b: Array) -> tuple[int, int, int]:
    return a.shape[0], b.shape[1], a.shape[1]


def place(x: Array) -> tuple[int, int, int]:
    """Address and strides in elements."""
    return x.ctypes.data, x.strides[0] // x.itemsize, x.strides[1] // x.itemsize


def guarded(size_bytes: int) -> Array:
    return np.full(size_bytes + 2 * GUARD_BYTES, GUARD, np.uint8)


def assert_guards_whole(buffer: Array) -> None:
    assert (buffer[:GUARD_BYTES] == GUARD).all()
    assert (buffer[-GUARD_BYTES:] == GUARD).all()


@cache
def library(dtype: DType, vector_bytes: int) -> Gemm:
    target = cached_host_target().limited_to(vector_bytes)
    return Gemm(dtype, load(default_cache().object(gemm_module(dtype, target), target)))


LIBRARIES = [(d, w) for d in (float32, float64) for w in widths()]
if cached_host_target().has_dots:
    LIBRARIES.append((bfloat16, 64))


@pytest.fixture(params=LIBRARIES, ids=lambda p: f"{p[0].short}-{8 * p[1]}")
def gemm(request: pytest.FixtureRequest) -> Gemm:
    return library(*request.param)


def laid_out(values: Array, layout: str) -> Array:
    """The values in a buffer of NaNs, with the strides of the layout."""
    rows, columns = values.shape
    room = np.full((2 * rows + 1, 2 * columns + 1), np.nan, values.dtype)
    x = {
        "rows": lambda: np.empty(values.shape, values.dtype),
        "columns": lambda: np.empty(values.shape[::-1], values.dtype).T,
        "padded rows": lambda: room[:rows, :columns],
        "every second": lambda: room[: 2 * rows : 2, : 2 * columns : 2],
    }[layout]()
    x[...] = values
    return x


def random_matrix(
    rng: np.random.Generator, dtype: DType | type[Any], rows: int, columns: int, layout: str = "rows"
) -> Array:
    numpy = dtype.numpy if isinstance(dtype, DType) else dtype
    return laid_out(rng.standard_normal((rows, columns)).astype(numpy), layout)


def tolerance(a: Array, b: Array) -> Array:
    """Rounding bound of a sum of k products, element by element (Higham, Accuracy and Stability, 3.5)."""
    k = a.shape[1]
    epsilon = np.finfo(a.dtype if a.itemsize > 2 else np.float32).eps
    return (k + 2) * epsilon * (np.abs(a).astype(float) @ np.abs(b).astype(float) + 4)


def assert_product(c: Array, a: Array, b: Array, old: Array | float = 0.0) -> None:
    expected = old + a.astype(np.float64) @ b.astype(np.float64)
    assert (np.abs(c - expected) <= tolerance(a, b)).all()


def test_products_equal_numpys_for_all_small_extents_and_strides(gemm: Gemm, rng: np.random.Generator) -> None:
    for _ in range(400):
        m, n, k = (int(extent) for extent in rng.integers(0, 41, 3))
        a_layout, b_layout, c_layout = rng.choice(LAYOUTS, 3)
        accumulate = int(rng.integers(2))
        a = random_matrix(rng, gemm.dtype, m, k, a_layout)
        b = random_matrix(rng, gemm.dtype, k, n, b_layout)
        c = random_matrix(rng, gemm.result, m, n, c_layout)
        old = c.copy() if accumulate else 0.0
        gemm.multiply(a, b, c, accumulate)
        assert_product(c, a, b, old)


@pytest.mark.parametrize("extent", range(1, 41))
def test_every_single_row_column_and_step_is_right(gemm: Gemm, rng: np.random.Generator, extent: int) -> None:
    for m, n, k in ((1, extent, 7), (extent, 1, 7), (5, 6, extent), (1, 1, extent)):
        for layout in ("rows", "columns"):
            a = random_matrix(rng, gemm.dtype, m, k, layout)
            b = random_matrix(rng, gemm.dtype, k, n, layout)
            c = random_matrix(rng, gemm.result, m, n)
            gemm.multiply(a, b, c)
            assert_product(c, a, b)


@pytest.mark.parametrize(
    "shape",
    [
        (130, 200, 70),
        (23, 1600, 20),
        (7, 5, 2 * DEPTH_BLOCK + 9),
        (300, 33, DEPTH_BLOCK + 1),
        (1, 515, 300),
        (70, 1, 900),
    ],
    ids=str,
)
def test_products_that_take_several_blocks_equal_numpys(
    gemm: Gemm, rng: np.random.Generator, shape: tuple[int, int, int]
) -> None:
    m, n, k = shape
    for a_layout, b_layout in (("rows", "rows"), ("columns", "columns"), ("padded rows", "every second")):
        a, b = random_matrix(rng, gemm.dtype, m, k, a_layout), random_matrix(rng, gemm.dtype, k, n, b_layout)
        c = random_matrix(rng, gemm.result, m, n)
        old = c.copy()
        gemm.multiply(a, b, c, accumulate=1)
        assert_product(c, a, b, old)


def test_an_empty_sum_is_zero_or_leaves_c_alone(gemm: Gemm) -> None:
    a, b = np.empty((5, 0), gemm.dtype.numpy), np.empty((0, 4), gemm.dtype.numpy)
    for layout in LAYOUTS:
        c = laid_out(np.full((5, 4), -0.0, gemm.result), layout)
        gemm.multiply(a, b, c, accumulate=1)
        assert np.signbit(c).all()
        gemm.multiply(a, b, c, accumulate=0)
        assert (c == 0).all() and not np.signbit(c).any()


def test_what_c_held_does_not_matter_when_it_is_overwritten(gemm: Gemm, rng: np.random.Generator) -> None:
    for n in (1, 3, 16, 40):
        a, b = random_matrix(rng, gemm.dtype, 9, 6), random_matrix(rng, gemm.dtype, 6, n)
        c = np.full((9, n), np.nan, gemm.result)
        gemm.multiply(a, b, c)
        assert_product(c, a, b)


def test_nan_and_infinity_reach_their_row_and_column_only(gemm: Gemm, rng: np.random.Generator) -> None:
    a, b = random_matrix(rng, gemm.dtype, 15, 30), random_matrix(rng, gemm.dtype, 30, 37)
    a[3, 2], b[29, 36] = np.nan, np.inf
    c = np.empty((15, 37), gemm.result)
    gemm.multiply(a, b, c)
    touched = np.zeros(c.shape, bool)
    touched[3], touched[:, 36] = True, True
    assert np.array_equal(np.isfinite(c), ~touched)


def random_cuts(rng: np.random.Generator, m: int) -> list[slice]:
    edges = sorted({0, m, *(int(edge) for edge in rng.integers(0, m + 1, 4))})
    return [slice(low, high) for low, high in itertools.pairwise(edges)]


@pytest.mark.parametrize(
    "shape", [(61, 20, 20), (61, 3, 100), (50, 1, 300), (200, 75, 530), (40, 33, 1100), (29, 130, 3)], ids=str
)
@pytest.mark.parametrize("layouts", [("rows",) * 3, ("columns",) * 3, ("rows", "columns", "rows"), (LAYOUTS[3],) * 3])
def test_bits_do_not_depend_on_how_rows_are_cut(
    gemm: Gemm, rng: np.random.Generator, shape: tuple[int, int, int], layouts: tuple[str, str, str]
) -> None:
    m, n, k = shape
    a = random_matrix(rng, gemm.dtype, m, k, layouts[0])
    b = random_matrix(rng, gemm.dtype, k, n, layouts[1])
    start = random_matrix(rng, gemm.result, m, n)
    for accumulate in (0, 1):
        whole, cut = (laid_out(start, layouts[2]) for _ in range(2))
        gemm.multiply(a, b, whole, accumulate)
        for rows in random_cuts(rng, m):
            gemm.multiply(a[rows], b, cut[rows], accumulate)
        assert cut.tobytes() == whole.tobytes()


def test_bits_do_not_depend_on_how_a_is_stored(gemm: Gemm, rng: np.random.Generator) -> None:
    """Rows, far columns and others are read in place, copied or packed, whatever pays; what is beside is NaN."""
    for m in (1, 13, 131, 164, 200):
        n, k = int(rng.integers(128, 145)), int(rng.integers(1, 2 * DEPTH_BLOCK))
        a, b = random_matrix(rng, gemm.dtype, m, k), random_matrix(rng, gemm.dtype, k, n)
        results = []
        for layout in LAYOUTS:
            c = np.ones((m, n), gemm.result)
            gemm.multiply(laid_out(a, layout), b, c, accumulate=1)
            results.append(c)
        assert_product(results[0], a, b, old=1.0)
        for other in results[1:]:
            np.testing.assert_array_equal(results[0], other)


def test_bits_do_not_depend_on_single_rows(gemm: Gemm, rng: np.random.Generator) -> None:
    for n, layout in ((1, "rows"), (1, "columns"), (300, "rows"), (37, "columns")):
        a, b = random_matrix(rng, gemm.dtype, 13, 600, layout), random_matrix(rng, gemm.dtype, 600, n, layout)
        whole, single = (np.empty((13, n), gemm.result) for _ in range(2))
        gemm.multiply(a, b, whole)
        for row in range(13):
            gemm.multiply(a[row : row + 1], b, single[row : row + 1])
        assert single.tobytes() == whole.tobytes()


def test_nothing_beyond_the_operands_is_touched(gemm: Gemm, rng: np.random.Generator) -> None:
    fence = [Fence(60 * 60 * 8) for _ in range(3)]
    for _ in range(60):
        m, n, k = (int(extent) for extent in rng.integers(1, 50, 3))
        turned = rng.integers(0, 2, 3)
        operands = []
        kinds = gemm.dtype, gemm.dtype, gemm.result
        for kind, place_, turn, (rows, columns) in zip(kinds, fence, turned, ((m, k), (k, n), (m, n)), strict=True):
            values = random_matrix(rng, kind, *((columns, rows) if turn else (rows, columns)))
            operands.append(place_.array(values).T if turn else place_.array(values))
        a, b, c = operands
        old = c.copy()
        gemm.multiply(a, b, c, accumulate=1)
        assert_product(c, a, b, old)


def test_only_the_elements_of_c_are_written(gemm: Gemm, rng: np.random.Generator) -> None:
    for layout in ("padded rows", "every second"):
        for n in (1, 5, 16, 29, 48):
            a, b = random_matrix(rng, gemm.dtype, 14, 9), random_matrix(rng, gemm.dtype, 9, n)
            room = np.full((31, 2 * n + 3), 7.0, gemm.result)
            c = room[1:15, 1 : n + 1] if layout == "padded rows" else room[1:29:2, 1 : 2 * n + 1 : 2]
            gemm.multiply(a, b, c)
            assert_product(c, a, b)
            c[...] = 7.0
            assert (room == 7.0).all()


def test_accumulators_stay_in_registers(gemm: Gemm, request: pytest.FixtureRequest) -> None:
    dtype, width = request.node.callspec.params["gemm"]
    target = cached_host_target().limited_to(width)
    text = assembly(gemm_module(dtype, target), target)
    if target.triple.startswith("x86_64"):  # of 32 bytes and more; 16-byte registers also carry arguments
        spills = re.findall(r"v?mov[au]p[sd]\s+%[yz]mm\d+, -?\d*\(%[re]sp\)", text)
        assert len(spills) == 0


@pytest.mark.parametrize("dtype", [float32, float64], ids=lambda dtype: dtype.short)
def test_other_machines_are_a_matter_of_parameters(dtype: DType) -> None:
    arm = HostTarget("aarch64-unknown-linux-gnu", "neoverse-n1", "+neon", 16)
    tiles = tile_set(dtype, arm)
    assert tiles.registers == 32 and tiles.fused
    assert "fmla" in assembly(gemm_module(dtype, arm), arm)


@pytest.mark.parametrize("dtype", [float32, float64], ids=lambda dtype: dtype.short)
def test_blocks_are_whole_tiles(dtype: DType) -> None:
    for width in widths():
        tiles = tile_set(dtype, cached_host_target().limited_to(width))
        assert all(row_block(dtype) % shape.rows[0] == 0 for shape in tiles.shapes)
