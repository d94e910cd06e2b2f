"""Profiles of work on a device: a row per launch, with the ops and lines it comes from; nothing else is changed."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.jit.view.data import view_data
from tests.autograd.profiler_stubs import stub_nvtx
from tests.emulated import emulated_cuda

pytestmark = pytest.mark.skipif(aj.cuda.is_available(), reason="a device of its own")


@pytest.fixture(autouse=True)
def _device() -> Iterator[None]:
    with emulated_cuda():
        yield


def launches_of(prof: Any) -> list[Any]:
    return [event for event in prof.function_events if event.metadata.get("kind") == "kernel"]


def trained() -> tuple[Any, Any]:
    """A step whose run is several launches, and its state."""
    w = aj.eye(40, 40, device="cuda").requires_grad_()

    @aj.jit
    def step(x: aj.Tensor) -> aj.Tensor:
        w.grad = None
        loss = aj.cumsum(aj.cumsum((x @ w).relu(), 1), 0).square().sum()
        loss.backward()
        with aj.no_grad():
            w.sub_(w.grad * 1e-4)
        return loss

    return step, w


def test_a_launch_is_a_row_with_its_ops_and_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOJIT_CUDA", "apart")  # kernels share no launches
    step, _ = trained()
    x = aj.ones(30, 40, device="cuda")
    for _ in range(3):
        step(x)
    before = step.stats()
    with aj.autograd.profiler.profile() as prof:
        step(x)
    after = step.stats()
    rows = launches_of(prof)
    assert after["device_entries"] == 1 and len(rows) == after["launches"] > 1
    told = {op for row in rows for op in row.metadata.get("ops", [])}
    assert {"matmul", "square"} <= {op.split("[")[0] for op in told} | {row.name.split()[1] for row in rows}
    assert all("test_profiles.py" in row.name or "arguments" in row.name for row in rows if row.metadata.get("ops"))
    assert after["captures"] == before["captures"] == 1


def test_watched_calls_do_what_others_do() -> None:
    """Also between calls that launch a graph, and when nothing was launched before."""
    losses = []
    for is_watched in (False, True):
        step, w = trained()
        x = aj.linspace(-1, 1, 1200, device="cuda").reshape(30, 40)
        found = []
        for number in range(5):
            if is_watched and number in (0, 3):
                with aj.autograd.profiler.profile():
                    found.append(step(x).item())
            else:
                found.append(step(x).item())
        losses.append((found, w.detach().cpu().numpy(), step.stats()["captures"]))
    np.testing.assert_array_equal(losses[0][0], losses[1][0])
    np.testing.assert_array_equal(losses[0][1], losses[1][1])
    assert losses[0][2] == losses[1][2] == 1


def test_a_bad_index_is_raised_from_a_watched_call_too() -> None:
    table = aj.ones(5, 2, device="cuda")
    step = aj.jit(lambda rows: aj.cumsum(table[rows], 0).sum())
    fine, wrong = aj.tensor([1, 4], device="cuda"), aj.tensor([1, 9], device="cuda")
    step(fine)
    with aj.autograd.profiler.profile(), pytest.raises(IndexError, match="9"):
        step(wrong)
        aj.cuda.synchronize()
    assert step(fine).item() == 6


def test_eager_ops_and_the_table_have_their_columns(tmp_path: Path) -> None:
    x = aj.ones(8, 8, device="cuda")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        activities = [aj.profiler.ProfilerActivity.CPU, aj.profiler.ProfilerActivity.CUDA]
        with aj.profiler.profile(activities=activities) as prof, aj.profiler.record_function("mine"):
            (x @ x).relu()
    assert any("no times" in str(each.message) for each in told)
    table = prof.key_averages().table(sort_by="self_cuda_time_total", row_limit=10)
    assert all(word in table for word in ("mine", "mm", "relu", "kernel relu"))
    prof.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    kernels = [event for event in events if event.get("cat") == "kernel"]
    assert [event["name"].split()[1] for event in kernels] == ["matmul", "relu"]
    assert all(event["ph"] == "X" for event in kernels)


def test_launches_are_ranges_of_nvtx() -> None:
    step, _ = trained()
    x = aj.ones(30, 40, device="cuda")
    step(x)
    with stub_nvtx() as stub, aj.autograd.profiler.emit_nvtx():
        step(x)
    assert any("matmul" in name for name in stub.names) and stub.is_balanced


def test_kernels_of_a_device_have_names_code_and_times() -> None:
    layer = aj.nn.Linear(4, 3).to("cuda")

    @aj.jit
    def step(x: Any) -> Any:
        return layer(x).softmax(-1).sum()

    x = aj.ones(2, 4, device="cuda")
    with aj.no_grad(), step.timing(kernels_every=2):
        for _ in range(3):
            step(x)
    program = view_data(step, assembly=False)["programs"][-1]
    on_device = [kernel for kernel in program["kernels"] if kernel["device"] == "cuda:0"]
    assert on_device
    assert all(kernel["name"] and kernel["ns"] is not None for kernel in on_device)
    assert ".visible .entry" in program["ptx"]
