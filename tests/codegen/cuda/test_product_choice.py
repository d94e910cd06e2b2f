"""Tiles are chosen well by what an H100 and an H200 take for each: times recorded by `tools.product_times`."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from pathlib import Path
from unittest.mock import patch

import pytest

from autojit.codegen.cuda import product_choice
from autojit.codegen.cuda.product_choice import choose, estimates
from autojit.codegen.cuda.target import CudaTarget
from autojit.core import dtypes
from autojit.runtime.gpu.devices import cuda_device
from autojit.runtime.gpu.plan import DevicePlan
from tests.emulated import emulated_cuda
from tools import product_times
from tools.product_times import FIELDS, row_of, rows

RECORDED = sorted((Path(__file__).with_name("recorded")).glob("product_times_*.csv"))
H100 = CudaTarget("sm_90", 132)

Product = tuple[str, str, int, int, int]


def recorded() -> dict[Product, dict[tuple[str, ...], float]]:
    """Of each product (dtype, orientation, m, k, n) the microseconds of each way."""
    found: dict[Product, dict[tuple[str, ...], float]] = defaultdict(dict)
    for path in RECORDED:
        with path.open() as file:
            reader = csv.reader(file)
            assert tuple(next(reader)) == FIELDS
            for dtype, orientation, m, k, n, *way, us in reader:
                found[dtype, orientation, int(m), int(k), int(n)][tuple(way)] = float(us)
    return found


def losses() -> dict[Product, float]:
    """How much longer the way that is chosen takes than the fastest."""
    found = {}
    for product, times in recorded().items():
        dtype, _, m, k, n = product
        chosen = row_of(choose(getattr(dtypes, dtype), H100, (m, n, k), 1))
        found[product] = times[chosen] / min(times.values())
    return found


def test_every_way_is_computed_where_it_is_to_be_timed() -> None:
    grids, load = set(), DevicePlan._load

    def seen(plan: DevicePlan) -> None:
        load(plan)
        grids.add(tuple((node.blocks, node.threads) for node in (launch.node(()) for launch in plan._launches)))

    few = patch.object(product_times, "OUT_OF_THE_QUESTION", 1.3)
    with emulated_cuda(), few, patch.object(DevicePlan, "_load", seen):
        found = list(rows(cuda_device(0), "16x16x16", "float32", "nn"))
    assert len({row[5:-1] for row in found}) == len(found) > 2
    assert {row[-1] for row in found} == {"nan"}  # an emulated device has no times
    assert len(grids) > 2  # each is another kernel


def test_what_is_chosen_is_nearly_the_fastest() -> None:
    found = losses()
    assert len(found) > 50
    assert math.exp(sum(map(math.log, found.values())) / len(found)) < 1.08
    assert max(found.values()) < 1.6, max(found, key=lambda product: found[product])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_estimate_orders_ways_as_their_times_do(dtype: str) -> None:
    """Of pairs of ways whose times differ by half and more, nine of ten."""
    right = count = 0
    for (name, _, m, k, n), times in recorded().items():
        if name == dtype:
            cycles = {row_of(way): c for c, way in estimates(getattr(dtypes, dtype), H100, (m, n, k), 1)}
            known = [(cycles[way], us) for way, us in times.items() if way in cycles]
            for c, us in known:
                slower = [other for other, time in known if time > 1.5 * us]
                right, count = right + sum(other > c for other in slower), count + len(slower)
    assert count > 1000 and right > 0.9 * count


def test_a_batch_pays_for_its_splits_as_a_product_of_its_rows() -> None:
    """What splits leave in memory is written and read for every matrix."""

    def combining(extents: tuple[int, int, int], batch: int) -> set[float]:
        cost = {way: cycles for cycles, way in estimates(dtypes.float32, H100, extents, batch)}
        with patch.object(product_choice, "MEMORY_BYTES_PER_CYCLE", math.inf):
            free = {way: cycles for cycles, way in estimates(dtypes.float32, H100, extents, batch)}
        return {round((cost[way] - free[way]) / (way.splits + 1), 6) for way in cost if way.splits > 1}

    assert combining((64, 256, 576), 16) == combining((16 * 64, 256, 576), 1) != {0.0}
    assert choose(dtypes.float32, H100, (64, 256, 576), 16).splits == 1  # 16 images of 64 channels
