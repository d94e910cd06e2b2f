"""What readers compute again rather than read, and what is stored all the same."""

from __future__ import annotations

import numpy as np
import pytest

import autojit as aj
from autojit.schedule import again
from autojit.schedule.schedule import Schedule
from autojit.schedule.scheduler import schedule
from tests.fuzz_graphs import graph_case
from tests.on_cpu import optimize
from tests.schedule.shown import expected, kernels, machine, scheduled

NORMALISED = """
    (x: f32[64, 512], g: f32[64, 512], w: f32[512]) {
      total: f32[512] = sum[axes=(0,)](x);
      d: f32[64, 512] = sub(x, total);
      n: f32[64, 512] = mul(d, w);
      y: f32[64, 512] = relu(n);
      z: f32[64, 512] = exp(y);
      s: f32[] = sum[axes=(0, 1)](z);
      e: f32[64, 512] = mul(d, s);
      f: f32[64, 512] = mul(n, e);
      return y, f
    }"""


def moved(found: Schedule) -> int:
    """Bytes that the kernels of a schedule read and write."""
    return sum(v.type.size_bytes for kernel in found.kernels for v in {*kernel.reads(), *kernel.writes()})


def test_values_are_computed_again_from_what_is_stored_anyway(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two arrays less are written, and one is read instead of two."""
    on = machine(bands=None)
    found = scheduled(NORMALISED, on)
    assert kernels(found) == expected("""
        loops rows 64 inner 512, 0 row phases, 1 accumulators (x) -> total {sum}
        loops 64x512, 1 accumulators (x, total, w) -> y, s {sub mul relu exp sum}
        loops 64x512, 0 accumulators (x, total, s, w) -> f {mul mul}""")
    monkeypatch.setattr(again, "MOST_OPS", 0)
    assert moved(scheduled(NORMALISED, on)) - moved(found) >= 64 * 512 * 4 * 3 - 10_000


def test_a_nest_of_which_nothing_is_left_is_none() -> None:
    """Small nests do not wait for what others need, so the products would have had one of their own."""
    found = scheduled("""
        (x: f32[512], y: f32[64, 64], z: f32[64, 64]) {
          s: f32[64, 64] = matmul(y, y);
          t: f32[64, 64] = matmul(z, z);
          a: f32[512] = mul(x, x);
          m: f32[] = sum[axes=(0, 1)](s);
          n: f32[] = sum[axes=(0, 1)](t);
          b: f32[512] = add(a, m);
          c: f32[512] = sub(a, n);
          return b, c
        }""")
    assert not any(kernel.writes() == [] for kernel in found.kernels)
    assert "(x, m) -> b" in kernels(found) and "(x, n) -> c" in kernels(found)


def test_the_bytes_of_random_graphs_do_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is computed again, no schedule moves more than with every value stored."""
    on = machine(bands=None, batch_bytes=0)
    graphs = [optimize(graph_case(seed)[0]) for seed in range(150)]
    moved_now = [moved(schedule(graph, on)) for graph in graphs]
    monkeypatch.setattr(again, "MOST_OPS", 0)
    moved_before = [moved(schedule(graph, on)) for graph in graphs]
    assert all(now <= before for now, before in zip(moved_now, moved_before, strict=True))
    assert sum(moved_now) < sum(moved_before)


@pytest.mark.parametrize("jump", ["eq", "lt"])
def test_what_jumps_sees_the_stored_value(jump: str) -> None:
    """``x == x.amax()`` finds the maximum, in whichever kernel ``x`` is looked at."""

    @aj.jit
    def step(a: aj.Tensor, b: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        product = a * b - 0.3
        most = product.amax()
        is_most = product == most if jump == "eq" else ~(product < most)
        return is_most.sum(), (product * most).sum()

    generator = np.random.default_rng(0)
    for _ in range(3):
        a, b = (aj.tensor(generator.normal(size=(64, 4096)).astype(np.float32)) for _ in range(2))
        assert step(a, b)[0].item() == 1
