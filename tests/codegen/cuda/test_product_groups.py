"""Products by groups of four warps, straight from shared memory: right, assembled, and chosen where they can be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autojit.codegen.cuda import product_choice
from autojit.codegen.cuda.entry_point import entry_text
from autojit.codegen.cuda.grid_function import MOST_REGISTERS
from autojit.codegen.cuda.product_tiles import GROUP_LAYOUTS
from autojit.codegen.cuda.products import print_product
from autojit.codegen.cuda.target import CudaTarget
from autojit.core.dtypes import DType, bfloat16, float16
from tests.codegen.cuda.emulated import run_grid
from tests.codegen.cuda.product_kernels import View, draw, product
from tests.codegen.cuda.test_products import TOLERANCE, error_of
from tests.ptxas import assemble, needs_ptxas, ptx_of

Array = np.ndarray[Any, Any]

TARGET = CudaTarget("sm_90", 132)


@pytest.fixture(params=range(len(GROUP_LAYOUTS)), ids=lambda k: f"{GROUP_LAYOUTS[k][1]} columns")
def one_layout(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other way to multiply than by such a tile."""
    monkeypatch.setattr("autojit.codegen.cuda.product_tiles.GROUP_LAYOUTS", (GROUP_LAYOUTS[request.param],))
    monkeypatch.setattr(product_choice, "tiles_of", lambda *_: [])


def _operand(values: Array, is_turned: bool) -> View:
    if not is_turned:
        return View(values, values)
    stored = np.ascontiguousarray(values.swapaxes(-1, -2))
    return View(stored, stored.swapaxes(-1, -2))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.usefixtures("one_layout")
def test_products_are_right_however_operands_run(seed: int) -> None:
    """Rows or columns side by side, tiles that reach beyond the result and the sum, batches, something added."""
    generator = np.random.default_rng(seed)
    dtype: DType = (bfloat16, float16)[seed % 2]
    m, n, k = (8 * int(number) for number in generator.integers((1, 1, 32), (24, 36, 44)))
    batch = (2,) * (seed % 2)
    a, b = draw(generator, (*batch, m, k), dtype), draw(generator, (*batch, k, n), dtype)
    added = draw(generator, (*batch, m, n), dtype) if seed == 2 else None
    kernel = product(_operand(a, bool(seed & 1)), _operand(b, bool(seed & 2)), adds=added is not None)
    text = print_product(kernel, TARGET)
    assert "wgmma.mma_async" in text.text
    arrays = [np.ascontiguousarray(a.swapaxes(-1, -2)) if seed & 1 else a]
    arrays += [np.ascontiguousarray(b.swapaxes(-1, -2)) if seed & 2 else b]
    arrays += [*([] if added is None else [added]), np.zeros((*batch, m, n), a.dtype)]
    found, _ = run_grid(text, arrays, same={} if added is None else {3: 2}, order=seed)
    assert error_of(found[-1], a, b, added) <= TOLERANCE[dtype]


def _large(dtype: DType, *turned: bool, extent: int = 4096) -> View:
    stored = np.empty((extent, extent), dtype.numpy)
    return View(stored, stored.T if turned[0] else stored)


@needs_ptxas
@pytest.mark.usefixtures("one_layout")
def test_they_assemble_without_spills_for_the_one_architecture() -> None:
    kernels = [product(_large(bfloat16, x), _large(bfloat16, y)) for x, y in ((0, 0), (0, 1), (1, 0))]
    texts = [entry_text(print_product(kernel, TARGET), [16] * 3, {}) for kernel in kernels]
    ptx = ptx_of(texts, "sm_90")
    assert all(".target sm_90a" in text and ".extern .shared" in text for text in ptx)
    for made in assemble(ptx, "sm_90"):
        assert made.spilled_bytes == 0 and made.registers <= MOST_REGISTERS


@pytest.mark.parametrize("cpu", ["sm_75", "sm_80", "sm_90", "sm_100"])
def test_other_architectures_have_none(cpu: str) -> None:
    text = print_product(product(_large(bfloat16, False), _large(bfloat16, True)), CudaTarget(cpu, 132))
    assert ("wgmma" in text.text) == (cpu == "sm_90")


@pytest.mark.parametrize("extent", [4095, 4100])
def test_operands_whose_rows_begin_anywhere_take_the_usual_way(extent: int) -> None:
    kernel = product(_large(bfloat16, False, extent=extent), _large(bfloat16, False, extent=extent))
    assert "wgmma" not in print_product(kernel, TARGET).text


@pytest.mark.parametrize("extent", [2048, 4096])
def test_large_products_are_multiplied_so(extent: int) -> None:
    kernel = product(_large(float16, False, extent=extent), _large(float16, False, extent=extent))
    assert "wgmma" in print_product(kernel, TARGET).text
