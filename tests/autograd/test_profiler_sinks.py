"""Other sinks and clocks of the profiler: a device, NVTX, ITT; and measuring the steps of a loop."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import autojit as aj
from autojit.autograd import profiler
from autojit.autograd.profiler import EventList, itt, profile
from tests.autograd.profiler_stubs import stub_nvtx


def test_device_and_cpu_choices_are_checked() -> None:
    with pytest.raises(ValueError, match="unknown device"):
        profile(use_device="abacus")
    with pytest.raises(ValueError, match="nothing to measure"):
        profile(use_cpu=False)


def test_nvtx_ranges_show_shapes_on_request() -> None:
    with stub_nvtx() as nvtx, profiler.emit_nvtx(record_shapes=True):
        aj.ones(2, 3) * 2
    (name,) = [name for name in nvtx.names if name.startswith("aten::mul")]
    assert name.endswith(", sizes = [[2, 3], []]")
    again = profiler.emit_nvtx()
    with stub_nvtx(), again, pytest.raises(RuntimeError, match="not reentrant"), again:
        pass


def test_itt_tasks_are_balanced(monkeypatch: pytest.MonkeyPatch) -> None:
    open_tasks: list[str] = []
    begun: list[str] = []
    functions = {
        "__itt_domain_create": lambda name: name,
        "__itt_string_handle_create": lambda name: name.decode(),
        "__itt_task_begin": lambda domain, a, b, name: (begun.append(name), open_tasks.append(name)),
        "__itt_task_end": lambda domain: open_tasks.pop(),
    }
    itt.set_library(type("Functions", (), {name: staticmethod(f) for name, f in functions.items()}))
    try:
        x = aj.ones(2, requires_grad=True)
        with profiler.emit_itt():
            (x * 2).sum().backward()
        assert aj.profiler.itt.is_available()
        with aj.profiler.itt.range("step {}", 3):
            assert open_tasks == ["step 3"]
    finally:
        itt.set_library(None)
    assert any("MulBackward0, stashed seq=" in name for name in begun) and not open_tasks
    monkeypatch.setenv("AUTOJIT_ITT_LIBRARY", "/nowhere/libittnotify.so")
    assert not aj.profiler.itt.is_available()
    with pytest.raises(RuntimeError, match="ITT functions not installed"), profiler.emit_itt():
        pass


def test_a_trace_is_compressed_if_its_name_says_so(tmp_path: Path) -> None:
    with profile() as prof:
        aj.ones(2) + 1
    prof.export_chrome_trace(tmp_path / "trace.json.gz")
    assert json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))["traceEvents"]


def test_the_names_of_torch_are_there() -> None:
    from autojit.autograd import profiler_util
    from autojit.autograd.profiler import _is_profiler_enabled

    assert profiler_util.EventList is EventList
    assert profiler_util._format_time(1.0) == "1.000us"
    assert not _is_profiler_enabled()
    with profile():
        assert _is_profiler_enabled() and aj.autograd._profiler_enabled()


# -- autojit.profiler: measuring a loop


def test_a_schedule_measures_its_steps(tmp_path: Path) -> None:
    seen: list[list[str]] = []

    def ready(prof: Any) -> None:
        seen.append([e.name for e in prof.events() if e.cpu_parent is None or e.cpu_parent.name.startswith("Prof")])
        aj.profiler.tensorboard_trace_handler(str(tmp_path), use_gzip=len(seen) > 1)(prof)

    plan = aj.profiler.schedule(wait=1, warmup=1, active=2, repeat=2)
    x = aj.ones(3)
    with aj.profiler.profile(schedule=plan, on_trace_ready=ready) as prof:
        for _ in range(9):
            x * 2
            prof.step()
    assert seen == [[f"ProfilerStep#{k}", "aten::mul", f"ProfilerStep#{k + 1}", "aten::mul"] for k in (2, 6)]
    assert len(list(tmp_path.iterdir())) == 2
    assert [e.count for e in prof.key_averages() if e.key == "aten::mul"] == [2]
    with pytest.raises(RuntimeError, match="nothing has been measured"):
        aj.profiler.profile().events()


def test_without_a_schedule_everything_is_measured() -> None:
    with aj.profiler.profile(activities=[aj.profiler.ProfilerActivity.CPU], record_shapes=True) as prof:
        aj.ones(3) * 2
        prof.step()
        aj.ones(3) + 2
    assert {"aten::mul", "aten::add"} <= {e.name for e in prof.events()}
    assert aj.profiler.supported_activities() >= {aj.profiler.ProfilerActivity.CPU}
    with pytest.raises(ValueError, match="activities"):
        aj.profiler.profile(activities=[])
    with pytest.raises(ValueError, match="active"):
        aj.profiler.schedule(wait=0, warmup=0, active=0)
