"""Every tile of products on the emulated device: any layout and alignment of operands, borders, stages, splits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autojit.codegen.cuda.product_choice import Choice
from autojit.codegen.cuda.product_job import job_of
from autojit.codegen.cuda.product_kernel import ProductPrinter, printed
from autojit.codegen.cuda.product_tiles import LAYOUTS, SHORT_SUM, Tile, fragment_of, tiles_of
from autojit.codegen.cuda.target import CudaTarget
from autojit.codegen.grid_text import GridText
from autojit.core.dtypes import DType, bfloat16, float16, float32, float64, int8
from tests.codegen.cuda.emulated import run_grid
from tests.codegen.cuda.product_kernels import View, draw, product
from tests.codegen.cuda.test_products import TOLERANCE, error_of
from tests.covering import covering

Array = np.ndarray[Any, Any]

WAYS = (("sm_90", float32), ("sm_90", float16), ("sm_90", bfloat16), ("sm_90", float64), ("sm_90", int8),
        ("sm_80", float64), ("sm_75", float32))  # fmt: skip


def forced(kernel: Any, target: CudaTarget, tile: Tile, splits: int = 1) -> GridText:
    """The kernel of a product in a tile that nothing has chosen."""
    job = job_of(kernel, target)
    k = job.shape.extents[2]
    steps = -(-k // tile.turn_depth)
    chunk = -(-steps // splits) * tile.turn_depth
    choice = Choice(tile, -(-k // chunk), chunk) if splits > 1 else Choice(tile, 1, k)
    return printed(replace(job, choice=choice), ProductPrinter)


def _aligned_view(values: Array, alignment: int, offset: int, *, is_turned: bool) -> View:
    """Values in a larger array: rows, and the first element, at multiples of ``alignment`` elements."""
    shape = values.shape[::-1] if is_turned else values.shape
    width = -(-(offset + shape[1]) // alignment) * alignment
    stored = np.zeros((shape[0], width), values.dtype)
    seen = stored[:, offset : offset + shape[1]]
    seen = seen.T if is_turned else seen
    seen[...] = values
    return View(stored, seen)


def _extents(generator: np.random.Generator, tile: Tile, multiple: int) -> tuple[int, int, int]:
    """Around one and two tiles, and one to six depths."""
    rows, columns = (int(generator.integers(1, 2 * edge + 1)) for edge in (tile.rows, tile.columns))
    k = int(generator.integers(SHORT_SUM + 1, 5 * tile.depth))
    return tuple(-(-n // multiple) * multiple for n in (rows, columns, k))  # type: ignore[return-value]


def _check(target: CudaTarget, dtype: DType, tile: Tile, seed: int) -> None:
    generator = np.random.default_rng(seed)
    alignment = int(generator.choice((1, 2, 4, 8, 16)))
    m, n, k = _extents(generator, tile, alignment)
    offsets = [alignment * int(generator.integers(0, 2)) for _ in range(2)]
    turned = generator.integers(0, 2, 2)
    a, b = (
        _aligned_view(draw(generator, shape, dtype), alignment, offset, is_turned=bool(turn))
        for shape, offset, turn in zip(((m, k), (k, n)), offsets, turned, strict=True)
    )
    adds = bool(generator.integers(0, 2))
    added = draw(generator, (m, n), dtype) if adds else None
    text = forced(product(a, b, adds=adds), target, tile, int(generator.choice((1, 2, 3))))
    arrays = [a.stored, b.stored, *([] if added is None else [added]), np.zeros((m, n), dtype.numpy)]
    order = None if seed % 2 else seed
    is_shifted = bool(generator.integers(0, 2))
    same = {3: 2} if adds else {}
    found, _ = run_grid(text, arrays, same=same, order=order, architecture=target.cpu, is_shifted=is_shifted)
    if dtype.kind != "float":
        assert np.array_equal(found[-1], a.seen @ b.seen + (0 if added is None else added))
    else:
        assert error_of(found[-1], a.seen, b.seen, added) <= TOLERANCE[dtype]


@covering("way, number", WAYS, range(len(LAYOUTS)), every=2)
def test_every_tile_multiplies_any_operands(way: tuple[str, DType], number: int) -> None:
    architecture, dtype = way
    target = CudaTarget(architecture, 132)
    tiles = tiles_of(fragment_of(dtype, target, 1000), dtype, 1000)
    if number >= len(tiles):
        pytest.skip("results of so large a tile do not fit in registers")
    for seed in range(1 if number < 5 else 2):
        _check(target, dtype, tiles[number], 100 * number + seed)
