"""The reference rows on the profiler, S3-87 to S3-106, eager and with the body under ``@aj.jit``.

Under jit a row's body is a compiled step: its rows are the step, its native call and the kernels. Inside a step no
nodes and sequence numbers are left; a compiled call whose result is differentiated later is one op of the history, with
a number like every other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import autojit as aj
from autojit.autograd import profiler
from autojit.core.errors import UsageError
from autojit.tensor.state import state
from tests.autograd.modes import Mode
from tests.autograd.profiler_stubs import StubNvtx, stub_driver, stub_nvtx, write_nvprof

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def nvtx() -> Iterator[StubNvtx]:
    with stub_nvtx() as stub:
        yield stub


def squares(x: aj.Tensor) -> aj.Tensor:
    return ((x * 2 + 1) * x).sum()


def step(x: aj.Tensor) -> Any:
    y = squares(x)
    (g,) = aj.autograd.grad(y, x)
    return y, g


def warmed(mode: Mode, function: Any, *arguments: Any) -> Any:
    called = mode(function)
    for _ in range(3 if mode.is_jit else 0):
        called(*arguments)
    return called


def leaf(n: int = 3) -> aj.Tensor:
    return aj.ones(n, requires_grad=True)


def names(prof: Any) -> list[str]:
    return [event.name for event in prof.function_events]


def test_S3_87_profile_and_emit_nvtx_exist(mode: Mode, nvtx: StubNvtx) -> None:
    x = leaf()
    f = warmed(mode, step, x)
    with aj.autograd.profiler.profile() as prof:
        f(x)
    assert len(prof.function_events) >= 3
    with aj.autograd.profiler.emit_nvtx():
        f(x)
    assert len(nvtx.names) == sum("evaluate_function" not in row.name for row in prof.function_events)


def test_S3_88_events_are_there_after_exit_and_nesting_is_refused(mode: Mode) -> None:
    x = leaf()
    f = warmed(mode, step, x)
    with profiler.profile() as prof:
        f(x)
        assert prof.function_events is None
        with pytest.raises(RuntimeError, match="didn't finish"):
            prof.key_averages()
        with pytest.raises(RuntimeError, match="already running in this thread"), profiler.profile():
            pass
        f(x)
    assert names(prof)[: len(names(prof)) // 2] == names(prof)[len(names(prof)) // 2 :]
    with pytest.raises(RuntimeError, match="not reentrant"), prof:
        pass
    with profiler.profile() as again:
        f(x)
    assert again.function_events


def test_S3_89_disabled_does_nothing(mode: Mode) -> None:
    x = leaf()
    f = warmed(mode, step, x)
    before = f.stats()["native_calls"] if mode.is_jit else 0
    with profiler.profile(enabled=False) as prof:
        f(x)
    assert not prof.function_events
    if mode.is_jit:
        assert f.stats()["native_calls"] == before + 1  # the fast way in, as without a profiler

    run, observer = state.run, state.observer
    with profiler.profile(False):  # so ops take the way they take without a block; benchmarks/profiler_overhead.py
        assert state.observer is observer
        assert state.run == run


def test_S3_90_use_cuda_measures_on_the_device_too(mode: Mode) -> None:
    x = leaf()
    f = warmed(mode, step, x)
    with stub_driver() as driver:
        with profiler.profile(True, True) as prof:
            f(x)
        assert driver.calls == ["cuCtxSynchronize"] and driver.events == 0
    assert all(event.device_time_total > 0 for event in prof.function_events)
    assert prof.total_average().self_cuda_time_total > 0
    assert "Self CUDA time total" in str(prof)
    with stub_driver(devices=0), pytest.warns(UserWarning, match="CUDA is not available"):
        without = profiler.profile(use_cuda=True)
    with without:
        f(x)
    assert without.total_average().cuda_time_total == 0


def test_S3_91_the_example_prints_a_table(mode: Mode) -> None:
    x = aj.tensor(3.0, requires_grad=True)

    def example() -> None:
        y = x**2
        y.backward()

    f = warmed(mode, example)
    with aj.autograd.profiler.profile() as prof:
        f()
    shown = str(prof)
    for title in ("Name", "CPU time", "CUDA time"):
        assert title in shown
    expected = (
        ("jit example", "kernel", "mul") if mode.is_jit else ("aten::pow", "GraphRoot", "PowBackward0", "Accumulate")
    )
    for name in expected:
        assert name in shown


def test_S3_92_rows_have_readable_names(mode: Mode) -> None:
    x = leaf()

    def body() -> aj.Tensor:
        y = squares(x.clone())
        y.backward()
        return y

    f = warmed(mode, body)
    with profiler.profile() as prof:
        f()
    if not mode.is_jit:
        assert {"aten::clone", "aten::mul", "aten::add", "aten::sum", "GraphRoot", "MulBackward0"} <= set(names(prof))
        assert names(prof)[-1] == "torch::autograd::AccumulateGrad"
        return
    kernels = [event for event in prof.function_events if event.name.startswith("kernel ")]
    fused = {op for event in kernels for op in event.metadata["ops"]}
    assert {"mul", "add", "sum"} <= fused
    lines = {
        int(line) for event in kernels for line in re.findall(rf"{Path(__file__).name}\((\d+)\)", str(event.stack))
    }
    source = Path(__file__).read_text().splitlines()
    assert any("(x * 2 + 1) * x" in source[line - 1] for line in lines)
    assert all(f"{Path(__file__).name}:" in event.name for event in kernels)


def test_S3_93_the_chrome_trace_follows_the_schema(mode: Mode, tmp_path: Path) -> None:
    x = leaf()
    f = warmed(mode, step, x)
    with profiler.profile(record_shapes=True) as prof:
        f(x)
    prof.export_chrome_trace(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    complete = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert [e["name"] for e in complete] == names(prof)
    for e in complete:
        assert {"ts", "dur", "pid", "tid", "name", "cat", "args"} <= set(e)
        assert all(isinstance(e[k], int) for k in ("pid", "tid"))
        assert e["ts"] >= 0 and e["dur"] >= 0
    for e in trace["traceEvents"]:
        assert e["ph"] in "XMsf" and {"name", "pid", "tid", "ts"} <= set(e)
        if e["ph"] in "sf":  # an end of an arrow lies in a complete event of its thread
            assert any(c["tid"] == e["tid"] and c["ts"] <= e["ts"] <= c["ts"] + c["dur"] for c in complete)


@pytest.mark.parametrize("key", ["cpu_time", "cuda_time", "cpu_time_total", "cuda_time_total", "count"])
def test_S3_94_every_key_sorts(mode: Mode, key: str) -> None:
    x = leaf()
    f = warmed(mode, step, x)
    with stub_driver(), profiler.profile(use_cuda=True) as prof:
        f(x)
        f(x)
    averages = prof.key_averages()
    order = [e.key for e in sorted(averages, key=lambda e: getattr(e, key), reverse=True)]
    shown = averages.table(sort_by=key, max_name_column_width=None)
    assert [line.split("  ")[0] for line in map(str.strip, shown.splitlines()[3 : 3 + len(order)])] == order
    by_time = averages.table(max_name_column_width=None)
    first = [line.strip().split("  ")[0] for line in by_time.splitlines()[3 : 3 + len(order)]]
    assert first == list(dict.fromkeys(names(prof)))  # without a key: in order of appearance


def test_S3_94_an_unknown_key_lists_the_valid_ones(mode: Mode) -> None:
    mode.does_not_apply("the table is made outside the step")
    with profiler.profile() as prof:
        leaf() + 1
    for error in (AttributeError, ValueError):
        with pytest.raises(error, match="cpu_time, cuda_time, cpu_time_total, cuda_time_total, count"):
            prof.table(sort_by="speed")


def test_S3_95_table_returns_a_string(mode: Mode) -> None:
    x = leaf()
    f = warmed(mode, step, x)
    with profiler.profile() as prof:
        f(x)
    assert isinstance(prof.table(), str)
    assert prof.table() == str(prof) == str(prof.function_events)


def test_S3_96_averages_are_sums_over_counts(mode: Mode) -> None:
    x = leaf()
    f = warmed(mode, step, x)
    with profiler.profile() as prof:
        for _ in range(3):
            f(x)
    for row in prof.key_averages():
        same = [e for e in prof.function_events if e.name == row.key]
        assert row.count == len(same) and row.count % 3 == 0
        assert row.cpu_time_total == pytest.approx(sum(e.cpu_time_total for e in same))
        assert row.self_cpu_time_total == pytest.approx(sum(e.self_cpu_time_total for e in same))
        assert row.cpu_time == pytest.approx(row.cpu_time_total / row.count)
    total = prof.total_average()
    assert total.count == len(prof.function_events)
    assert total.cpu_time == pytest.approx(sum(e.cpu_time_total for e in prof.function_events) / total.count)
    assert prof.self_cpu_time_total == pytest.approx(total.self_cpu_time_total)


def test_S3_97_nvtx_ranges_are_balanced(mode: Mode, nvtx: StubNvtx, monkeypatch: pytest.MonkeyPatch) -> None:
    x = leaf()
    f = warmed(mode, step, x)
    with profiler.emit_nvtx(enabled=False):
        f(x)
    assert nvtx.names == []
    with profiler.emit_nvtx():
        f(x)
    assert nvtx.names and nvtx.is_balanced
    with pytest.raises(RuntimeError), profiler.emit_nvtx():
        f(x)
        aj.ones(2) @ aj.ones(3)
    assert nvtx.is_balanced
    aj.cuda.nvtx.set_library(None)
    monkeypatch.setenv("AUTOJIT_NVTX_LIBRARY", "/nowhere/libnvToolsExt.so")
    with pytest.raises(RuntimeError, match="NVTX functions not installed") as caught, profiler.emit_nvtx():
        pass
    assert "AUTOJIT_NVTX_LIBRARY" in str(caught.value)
    f(x)


def test_S3_98_start_and_stop_are_honoured(mode: Mode) -> None:
    x = leaf()
    f = warmed(mode, step, x)
    with stub_driver() as driver:
        aj.cuda.profiler.start()
        f(x)
        aj.cuda.profiler.stop()
        assert driver.calls == ["cuProfilerStart", "cuProfilerStop"]
    page = (ROOT / "docs" / "profiler.md").read_text()
    assert "nvprof --profile-from-start off -o trace.prof -- " in page
    assert "nsys profile" in page and "cudaProfilerApi" in page


def test_S3_99_the_flush_caveat_is_documented(mode: Mode) -> None:
    mode.does_not_apply("a statement of the documentation")
    page = (ROOT / "docs" / "profiler.md").read_text()
    assert re.search(r"nvprof flush.*process has ended", " ".join(page.split()))


def test_S3_100_a_file_is_viewed_with_nvvp_or_loaded(mode: Mode, tmp_path: Path) -> None:
    mode.does_not_apply("the file was written by another program")
    page = (ROOT / "docs" / "profiler.md").read_text()
    assert "nvvp" in page and "load_nvprof" in page
    write_nvprof(tmp_path / "trace.prof", [("mul, seq = 0", 1000, 5000)], [])
    assert [e.name for e in profiler.load_nvprof(str(tmp_path / "trace.prof"))] == ["mul, seq = 0"]


def test_S3_101_the_example_runs(mode: Mode, nvtx: StubNvtx) -> None:
    x = leaf()
    model = warmed(mode, step, x)
    with stub_driver() as driver, aj.cuda.profiler.profile():
        model(x)  # loads what the first call loads
        with aj.autograd.profiler.emit_nvtx():
            model(x)
    assert driver.calls == ["cuProfilerStart", "cuProfilerStop"]
    assert nvtx.names and nvtx.is_balanced


def numbers(ranges: list[str], pattern: str) -> list[int]:
    return [int(found[1]) for name in ranges if (found := re.search(pattern, name))]


FORWARD = r"^(?:aten::)?[a-z_]+, seq = (\d+)$"
STASHED = r"^\w+Backward0, stashed seq=(\d+)"


def ten_ops(mode: Mode) -> Any:
    """A model of ten recorded ops: under jit each is a compiled call, which is one op of the history."""
    sin, double = mode(lambda x: x.sin()), mode(lambda x: x * x)

    def model(x: aj.Tensor) -> aj.Tensor:
        for _ in range(5):
            x = double(sin(x))
        return x

    for _ in range(2):
        model(leaf()).backward(aj.ones(3))
    return model


def test_S3_102_forward_ranges_count_the_recorded_ops(mode: Mode, nvtx: StubNvtx) -> None:
    model = ten_ops(mode)
    x = leaf()
    with profiler.emit_nvtx():
        y = model(x)
    found = numbers(nvtx.names, FORWARD)
    assert found == list(range(found[0], found[0] + 10))
    nvtx.names.clear()
    with profiler.emit_nvtx():
        x.detach() * 2  # not recorded: it leaves the number to the next op
        y * 2
    assert numbers(nvtx.names, FORWARD)[-2:] == [found[-1] + 1] * 2


def test_S3_103_backward_ranges_carry_the_stashed_numbers(mode: Mode, nvtx: StubNvtx) -> None:
    model = ten_ops(mode)
    with profiler.emit_nvtx():
        y = model(leaf())
        forward = numbers(nvtx.names, FORWARD)
        nvtx.names.clear()
        y.backward(aj.ones(3))
    stashed = numbers(nvtx.names, STASHED)
    assert len(set(stashed)) == 10
    assert stashed == forward[::-1]


def test_S3_104_numbers_inside_backward_are_0_without_create_graph(mode: Mode, nvtx: StubNvtx) -> None:
    model = ten_ops(mode)
    with profiler.emit_nvtx():
        y = model(leaf())
        nvtx.names.clear()
        y.backward(aj.ones(3))
    inside = [name for name, depth in zip(nvtx.names, nvtx.depths[-len(nvtx.names) :], strict=True) if depth > 0]
    assert len(inside) >= 10
    assert set(numbers(nvtx.names, r"(?<!stashed) seq = (\d+)$")) == {0}
    assert "`seq = 0`" in (ROOT / "docs" / "profiler.md").read_text()


def test_S3_105_numbers_connect_three_levels(mode: Mode, nvtx: StubNvtx, tmp_path: Path) -> None:
    x = leaf()
    power = mode(lambda x: x * x * x * x)

    def levels() -> Iterator[str]:
        y = power(x).sum()
        yield "forward"
        (g,) = aj.autograd.grad(y, x, create_graph=True)
        yield "backward"
        (h,) = aj.autograd.grad(g.sum(), x, create_graph=True)
        yield "double backward"
        h.sum().backward()
        yield "triple backward"

    for _ in range(2):
        list(levels())
    made: dict[str, set[int]] = {}
    stashed: dict[str, set[int]] = {}
    with profiler.emit_nvtx():
        for level in levels():
            made[level] = set(numbers(nvtx.names, FORWARD))
            stashed[level] = set(numbers(nvtx.names, STASHED))
            nvtx.names.clear()
    assert not stashed["forward"]
    assert stashed["backward"] <= made["forward"]
    assert stashed["double backward"] & (made["backward"] - made["forward"])
    assert stashed["triple backward"] & (made["double backward"] - made["backward"])
    assert all(0 not in made[level] for level in ("backward", "double backward"))

    with profiler.profile() as prof:
        list(levels())
    prof.export_chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    rows = [e for e in events if e["ph"] == "X"]
    starts, ends = ({e["id"]: e for e in events if e["ph"] == ph} for ph in "sf")
    assert set(starts) == set(ends)

    def innermost(arrow: dict[str, Any]) -> dict[str, Any]:
        return max((r for r in rows if r["ts"] <= arrow["ts"] <= r["ts"] + r["dur"]), key=lambda r: r["ts"])

    arrows = [(innermost(starts[k]), innermost(ends[k])) for k in starts]
    for forward, node in arrows:
        assert forward["args"]["Sequence number"] == node["args"]["Sequence number"]
        assert "Backward" in node["name"] and "Backward" not in forward["name"]
    inside = [forward for forward, _ in arrows if any(_holds(node, forward) for _, node in arrows)]
    assert inside  # ops that a derivative computed have derivatives of their own


def _holds(outer: dict[str, Any], inner: dict[str, Any]) -> bool:
    return outer["ts"] < inner["ts"] < outer["ts"] + outer["dur"]


def test_S3_106_load_nvprof_gives_an_event_list(mode: Mode, tmp_path: Path) -> None:
    mode.does_not_apply("the file was written by another program")
    path = tmp_path / "trace.prof"
    ranges = [
        ("mul, seq = 4", 1_000_000, 1_010_000),
        ("MulBackward0, stashed seq=4, seq = 0", 1_020_000, 1_050_000),
        ("mul, seq = 0", 1_025_000, 1_040_000),
        ("never closed", 1_060_000, 0),
    ]
    kernels = [
        ("mul_kernel", 1_002_000, 1_003_000, 1_100_000, 1_107_000),
        ("grad", 1_030_000, 1_031_000, 1_110_000, 1_113_000),
    ]
    write_nvprof(path, ranges, kernels)
    events = profiler.load_nvprof(path)
    assert isinstance(events, profiler.EventList)
    forward, node, inner = events
    assert (forward.key, forward.sequence_nr, forward.cpu_time_total) == ("mul", 4, 10.0)
    assert (node.key, node.sequence_nr, node.cpu_children) == ("MulBackward0", 4, [inner])
    assert [k.name for k in forward.kernels] == ["mul_kernel"]
    assert forward.cuda_time_total == 7.0
    assert (inner.cuda_time_total, node.cuda_time_total, node.self_cuda_time_total) == (3.0, 3.0, 0.0)
    assert [(e.key, e.count) for e in events.key_averages()] == [("mul", 2), ("MulBackward0", 1)]
    assert "CUDA total" in events.table(sort_by="cuda_time_total")
    with pytest.raises(FileNotFoundError):
        profiler.load_nvprof(tmp_path / "missing.prof")
    (tmp_path / "text").write_text("no database " * 100)
    with pytest.raises(ValueError, match="cannot read"):
        profiler.load_nvprof(tmp_path / "text")


def test_S3_88_a_block_inside_a_compiled_function_is_refused(mode: Mode) -> None:
    def body(x: aj.Tensor) -> aj.Tensor:
        with profiler.profile():
            return x * 2

    if mode.is_jit:
        with pytest.raises(UsageError, match="being captured"):
            mode(body)(aj.ones(2))
    else:
        body(aj.ones(2))
