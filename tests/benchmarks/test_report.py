"""The harness's own arithmetic: quantiles, which records count, ratios and bounds."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.report import agreement_rows, bound_ms, cold_and_warm, report, steady_ms, step_rows
from benchmarks.timing import median, quantile, steady_state
from benchmarks.workloads import WORKLOADS

LIMITS = {"memcpy_gbs": 10.0, "float32_gflops": 100.0, "float64_gflops": 50.0}


def record(system: str, round_: int, ms: float, loss: float = 1.0, discarded: bool = False) -> dict[str, Any]:
    return {
        "system": system,
        "workload": "mlp_mnist",
        "round": round_,
        "discarded": discarded,
        "median_s": ms / 1e3,
        "first_call_s": 2.0 - round_,
        "to_first_step_s": 3.0,
        "peak_mb": 100.0,
        "peak_over_import_mb": 10.0,
        "last_check": {"loss": loss},
    }


RECORDS = [
    record("torch-eager", 0, 9.0),
    record("torch-eager", 1, 4.0),
    record("jax", 1, 3.0),
    record("autojit", 0, 5.0),
    record("autojit", 1, 8.0, discarded=True),
    record("autojit", 1, 1.5, loss=1.001),
]


@pytest.mark.parametrize(("q", "expected"), [(0.0, 1.0), (0.5, 2.5), (1.0, 4.0)])
def test_quantiles_interpolate(q: float, expected: float) -> None:
    assert quantile([1.0, 2.0, 3.0, 4.0], q) == expected


def test_median_orders_first() -> None:
    assert median([3.0, 1.0, 2.0]) == 2.0


def test_steady_state_comes_from_warm_undisturbed_rounds() -> None:
    assert steady_ms(RECORDS, "mlp_mnist", "autojit") == pytest.approx(1.5)
    assert steady_ms(RECORDS, "mlp_mnist", "tinygrad") is None


def test_cold_is_round_zero() -> None:
    found = [r for r in RECORDS if r["system"] == "torch-eager"]
    assert cold_and_warm(found, lambda r: float(r["first_call_s"])) == "2 / 1"


def test_ratio_counts_against_the_best_peer() -> None:
    head, row = step_rows(RECORDS, ["mlp_mnist"], ["autojit", "torch-eager", "jax"], LIMITS)
    cells = dict(zip(head, row, strict=True))
    assert (cells["best peer"], cells["autojit is faster by"]) == ("jax", "2.00x")


def test_bound_is_the_slower_of_arithmetic_and_memory() -> None:
    bound = bound_ms("black_scholes", LIMITS)
    assert bound is not None
    assert bound == (pytest.approx(12.8), "memory")
    assert bound_ms("rosenbrock10", LIMITS) is None


def test_disagreement_is_relative_to_the_reference() -> None:
    rows = agreement_rows(RECORDS, ["mlp_mnist"], ["autojit", "torch-eager"])
    assert rows[1] == ["mlp_mnist", "1.0e-03", "0.0e+00"]


def test_the_report_names_failures() -> None:
    failed = {"system": "jax", "workload": "gpt", "round": 0, "discarded": False, "error": "exit status 1"}
    run = {
        "date": "2026-01-01",
        "machine": {"cpu": "a", "cores": 2, "python": "3.11"},
        "systems": ["autojit", "jax"],
        "threads": 2,
        "rounds": 2,
        "workloads": [*RECORDS, failed],
        "limits": LIMITS,
    }
    assert "- gpt, jax: exit status 1" in report(run)


def test_work_is_stated_for_every_workload() -> None:
    for workload in WORKLOADS.values():
        work = workload.work()
        assert work.flops >= 0
        assert work.bytes >= 0


def test_steady_state_orders_its_quantiles() -> None:
    timing = steady_state(lambda: sum(range(1000)), lambda _: None, 0.02)
    assert 0 < timing.best_s <= timing.p10_s <= timing.median_s <= timing.p90_s
