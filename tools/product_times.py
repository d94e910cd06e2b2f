"""Times all ways to compute products on a GPU: ``python -m tools.product_times [--sizes 512x512x512] [--out FILE]``.

For each size, dtype and orientation every choice of a tile and of splits whose estimate is not out of the question
(`codegen.cuda.product_choice`) is launched ten times behind itself in one graph. One line each, as CSV: what the
estimate is fitted to, and what `tests/codegen/cuda/test_product_choice.py` judges it by.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO
from unittest.mock import patch

import numpy as np

import autojit as aj
from autojit.codegen.cuda import product_choice, product_job
from autojit.codegen.cuda.product_choice import Choice
from autojit.core import dtypes
from autojit.core.config import config
from autojit.runtime.gpu.devices import CudaDevice, cuda_device
from autojit.runtime.gpu.driver import KernelNode
from autojit.runtime.gpu.plan import DevicePlan
from tools.gpu_measure import FULL, Session

SIZES = (
    "512x512x512", "1024x1024x1024", "2048x2048x2048", "4096x4096x4096", "1024x128x384", "1024x128x128", "1024x128x512",
    "1024x512x128", "1024x128x65", "128x784x512", "128x512x256", "64x64x64", "32x256x512", "8192x64x64", "4096x4096x8",
    "256x4096x256", "2048x256x2048", "16x1024x4096", "200x300x100", "32x512x128", "32x128x512", "512x2048x128",
    "64x64x10", "16x512x512", "8x1024x1024", "1x1024x1024", "64x1024x1024", "32x2048x512", "128x256x10",
)  # fmt: skip
DTYPES = ("float32", "bfloat16")
ORIENTATIONS = {"nn": lambda a, b: a @ b, "nt": lambda a, b: a @ b.t(), "tn": lambda a, b: a.t() @ b}
OUT_OF_THE_QUESTION = 4.0
"""Times the best estimate."""
TURNS = 10
FIELDS = ("dtype", "orientation", "m", "k", "n", "rows", "columns", "warps", "slices", "splits", "us")


def row_of(choice: Choice) -> tuple[str, ...]:
    """A choice as the fields have it."""
    tile = choice.tile
    down, across = tile.warps
    return tuple(map(str, (tile.rows, tile.columns, f"{down}x{across}", tile.slices, choice.splits)))


def timed(session: Session, choice: Choice, function: Any, operands: list[aj.Tensor]) -> float:
    """Microseconds of a product computed in one way."""
    plans: list[DevicePlan] = []
    load = DevicePlan._load

    def seen(plan: DevicePlan) -> None:
        plans.append(plan)
        load(plan)

    device = session.device
    chosen = patch.object(product_job, "choose", lambda *_, **__: choice)
    anew = patch.object(config, "keep_steps", False)  # a step that is kept is that of the way before
    with chosen, anew, patch.object(DevicePlan, "_load", seen):
        step = aj.jit(lambda a, b: function(a, b))
        for _ in range(2):
            step(*operands)
    device.synchronize()
    nodes: list[KernelNode] = []
    for _ in range(TURNS):
        for launch in plans[-1]._launches:
            nodes.append(launch.node((len(nodes) - 1,) if nodes else ()))
    graph = device.driver.make_graph(nodes)
    found = session.device_us(lambda: device.driver.launch_graph(graph, device.stream), 7) / TURNS
    device.driver.destroy_graph(graph)
    return found


def rows(device: CudaDevice, size: str, dtype: str, orientation: str) -> Iterator[tuple[str, ...]]:
    """All choices of one product with their times."""
    session, rng = Session(device, FULL), np.random.default_rng(0)
    m, k, n = map(int, size.split("x"))
    shapes = (k, m) if orientation == "tn" else (m, k), (n, k) if orientation == "nt" else (k, n)
    operands = [
        aj.from_numpy(rng.normal(size=shape).astype(np.float32)).to("cuda").to(getattr(aj, dtype)) for shape in shapes
    ]
    found = product_choice.estimates(getattr(dtypes, dtype), device.target, (m, n, k), 1)
    best = min(cycles for cycles, _ in found)
    for cycles, choice in sorted(found, key=lambda pair: pair[0]):
        if cycles <= OUT_OF_THE_QUESTION * best:
            us = timed(session, choice, ORIENTATIONS[orientation], operands)
            yield (dtype, orientation, str(m), str(k), str(n), *row_of(choice), f"{us:.2f}")


def write(target: TextIO, sizes: list[str]) -> None:
    """Time and write."""
    writer, device = csv.writer(target), cuda_device(0)
    writer.writerow(FIELDS)
    for size in sizes:
        for dtype in DTYPES:
            for orientation in ORIENTATIONS:
                for row in rows(device, size, dtype, orientation):
                    writer.writerow(row)
                    target.flush()


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default=",".join(SIZES), help="m x k x n, with commas")
    parser.add_argument("--out", type=Path, help="a file; without it, the output")
    options = parser.parse_args()
    if cuda_device(0).driver.is_emulated:
        parser.error("the device is emulated, so its times say nothing: unset AUTOJIT_CUDA")
    sizes = options.sizes.split(",")
    if options.out is None:
        write(sys.stdout, sizes)
    else:
        with options.out.open("w", newline="") as file:
            write(file, sizes)


if __name__ == "__main__":
    main()
