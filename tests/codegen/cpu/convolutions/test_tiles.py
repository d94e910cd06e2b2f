"""Which tiles of a convolution are chosen: laws about every machine, of data alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autojit.codegen.cpu.convolutions.tiles import Registers, best_tiling
from autojit.codegen.target import host_target

AVX512 = "+avx2,+avx512bw,+avx512dq,+avx512f,+avx512vl,+fma"
MACHINES = {  # LLVM's name, and the width of vectors
    "skylake-avx512": 64,
    "sapphirerapids": 64,
    "znver4": 64,
    "znver5": 64,
    "haswell": 32,
}


@pytest.mark.parametrize("cpu", MACHINES)
@pytest.mark.parametrize("rows", [16, 96, 512])
@pytest.mark.parametrize("places", [64, 784])
def test_tiles_of_many_places_wait_for_products_not_for_loads(cpu: str, rows: int, places: int) -> None:
    width = MACHINES[cpu]
    target = replace(
        host_target(), triple="x86_64-unknown-linux-gnu", cpu=cpu, features=AVX512 if width == 64 else "+avx2,+fma",
        vector_bytes=width,
    )  # fmt: skip
    registers = Registers.of(target)
    _, tiling = best_tiling(rows, (places, 8), True, (576.0, 1), registers)
    products = tiling.height * tiling.width / registers.at_once
    assert registers.load_cycles(tiling.height, tiling.width) <= products
