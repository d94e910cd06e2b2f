"""Lowering for GPUs as data: who runs what, in which order, and what a device is told."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import autojit.ops  # noqa: F401
from autojit.codegen.cpu.lower import lower_some
from autojit.codegen.cuda.lower import lower
from autojit.codegen.cuda.machine import CUDA_MACHINE
from autojit.codegen.cuda.target import CudaTarget
from autojit.codegen.lowered import Callback, DeviceCopy, DeviceRun, Launch, LoweredStep, LowerInner, Shared, Transfer
from autojit.core.device import CPU
from autojit.core.sizes import is_counted
from autojit.ir import parse_graph, verify
from autojit.ir.graph import Graph, Value
from autojit.passes.pipeline import optimize
from autojit.runtime.host import cached_host_target
from autojit.schedule.kernels import Kernel
from autojit.schedule.schedule import Schedule
from autojit.schedule.scheduler import schedule

TARGET = CudaTarget("sm_90", 8)


def on_host(plan: Schedule, kernels: Sequence[Kernel], shared: Shared, lower_inner: LowerInner) -> LoweredStep:
    return lower_some(plan, cached_host_target(), kernels, shared, lower_inner)


def lowered(text: str, donated: dict[int, int] | None = None, lasting: Sequence[int] = ()) -> LoweredStep:
    graph: Graph = optimize(verify(parse_graph(text)), CUDA_MACHINE)
    return lower(schedule(graph, CUDA_MACHINE, donated, lasting), TARGET, on_host)


def heads(step: LoweredStep) -> list[str]:
    """Of every entry: the built-in that runs it, or "kernel" of the host, or "callback"."""
    return [
        "callback" if isinstance(e.body, Callback) else e.body if e.body.startswith("@") else "kernel"
        for e in step.single_entries()
    ]


def launches(step: LoweredStep) -> list[Launch]:
    return [part for run in step.device_runs() for part in run.work if isinstance(part, Launch)]


def test_kernels_of_a_device_are_one_entry_and_equal_ones_one_text() -> None:
    layers = "; ".join(
        f"a{k}: f32[8, 8]@cuda:0 = matmul(x{k}, w); x{k + 1}: f32[8, 8]@cuda:0 = tanh(a{k})" for k in range(3)
    )
    step = lowered(f"(x0: f32[8, 8]@cuda:0, w: f32[8, 8]@cuda:0) {{ {layers}; return x3 }}")
    assert heads(step) == ["@aj_device"]
    assert {len(set(kinds)) for kinds in (step.origins, step.writes)} == {1}
    texts = [launch.kernel.text for launch in launches(step)]
    assert len(set(map(id, texts))) == len(set(texts)) < len(texts)
    for launch in launches(step):
        assert len(launch.buffers) == len(launch.kernel.buffers)


def test_numbers_of_the_host_are_computed_before_and_go_to_kernels_as_they_are() -> None:
    lines = "h: f32[] = tanh(n); a: f32[4]@cuda:0 = mul(x, h); b: f32[4]@cuda:0 = amax[axes=(0,)](a)"
    lines = lines.replace("b: f32[4]", "b: f32[]")
    step = lowered(f"(x: f32[4]@cuda:0, n: f32[]) {{ {lines}; return a, b, h }}")
    assert heads(step) == ["kernel", "@aj_device"]
    read = {value.type.device for launch in launches(step) for value in launch.buffers if hasattr(value, "type")}
    assert CPU in read


def test_copies_between_memories_and_ops_without_code_are_entries_of_their_own() -> None:
    lines = "; ".join(
        (
            "a: f64[9, 9]@cuda:0 = to_device[device=device('cuda:0')](x)",
            "b: f64[9, 9]@cuda:0 = tanh(a)",
            "c: f64[9, 9]@cuda:0 = matrix_exp(b)",
            "d: f64[9, 9]@cuda:0 = mul(c, b)",
            "e: f64[9, 9] = to_device[device=device('cpu')](d)",
        )
    )
    step = lowered(f"(x: f64[9, 9]) {{ {lines}; return e }}")
    assert heads(step) == ["@aj_copy_in", "@aj_device", "callback", "@aj_device", "@aj_copy_out"]
    assert step.fallbacks == ("matrix_exp",)
    transfers = [a for e in step.single_entries() for a in e.arguments if isinstance(a, Transfer)]
    assert [(t.source.type.device == CPU, t.target.type.device == CPU) for t in transfers] == [
        (True, False),
        (False, True),
    ]


@pytest.mark.parametrize("is_overwritten", [False, True])
def test_a_few_bytes_of_the_host_go_by_value_unless_they_are_overwritten(is_overwritten: bool) -> None:
    lines = "; ".join(
        (
            "k: i64[2]@cuda:0 = to_device[device=device('cuda:0')](key)",
            "y: i64[2]@cuda:0 = add(x, k)",
            "next: i64[2] = add(key, key)",
        )
    )
    text = f"(x: i64[2]@cuda:0, key: i64[2]) {{ {lines}; return y, next }}"
    step = lowered(text, {1: 1} if is_overwritten else None)
    assert ("@aj_copy_in" in heads(step)) == is_overwritten
    (launch,) = launches(step)
    given = [value for value in launch.buffers if isinstance(value, Value)]
    assert sorted(str(value.type.device) for value in given) == [
        "cpu" if not is_overwritten else "cuda:0",
        *["cuda:0"] * 2,
    ]


def test_what_lasts_is_guarded_behind_what_may_fail_and_codes_name_their_reporters() -> None:
    lines = "; ".join(
        (
            "g: f32[3]@cuda:0 = gather[axis=0](table, i)",
            "new: f32[5]@cuda:0 = add(state, table)",
        )
    )
    types = "table: f32[5]@cuda:0, i: i64[3]@cuda:0, state: f32[5]@cuda:0"
    step = lowered(f"({types}) {{ {lines}; return g, new }}", {1: 2}, (1,))
    (run,) = step.device_runs()
    reporting = [part for part in run.work if isinstance(part, Launch) and part.kernel.reports]
    assert [part.code for part in reporting] == list(range(len(step.reporters))) and reporting
    state = step.schedule.outputs[1]
    writers = [part for part in run.work if isinstance(part, DeviceCopy) and part.target is state]
    writers += [part for part in run.work if isinstance(part, Launch) and state in part.buffers]
    assert len(writers) == 1 and writers[0].commits and writers[0] is run.work[-1]
    assert step.may_fail == (True,)


COUNTING = (
    "(x: bool[7]@cuda:0, w: i64[64, 64]@cuda:0) { "
    "q: i64[7]@cuda:0, n: i64[]@cuda:0 = packed_positions(x); h: i64[] = to_device[device=device('cpu')](n); "
    "e: bool[u0, 0] = extent[count=u0, most=7](h); "
    "p: i64[u0]@cuda:0 = slice[starts=(0,), stops=(u0,), steps=(1,)](q); y: i64[u0]@cuda:0 = neg(p); "
)


def test_a_size_that_a_device_finds_is_copied_to_the_host_which_goes_on_from_there() -> None:
    step = lowered(COUNTING + "return y }")
    assert heads(step) == ["@aj_device", "@aj_copy_out", "kernel", "@aj_sizes", "@aj_device"]
    assert step.counted_sizes() == ("u0",) and not step.fallbacks
    before, behind = (any(map(is_counted, launch.kernel.blocks)) for launch in launches(step))
    assert not before and behind


def test_what_does_not_depend_on_a_counted_size_is_told_apart() -> None:
    wide = "i64[64, 64]@cuda:0"
    products = f"t: i64[]@cuda:0 = sum[axes=(0,)](y); a: {wide} = add(w, t)"
    products += f"; b: {wide} = matmul(a, w); c: {wide} = matmul(b, w)"
    step = lowered(f"{COUNTING}{products}; return c }}")
    assert heads(step)[-2:] == ["@aj_device"] * 2
    tail = step.device_runs()[-1]
    assert len(tail.work) >= 2
    assert not any(is_counted(n) for part in tail.work if isinstance(part, Launch) for n in part.kernel.sizes)


def test_a_step_without_devices_is_the_hosts() -> None:
    text = "(x: f32[4]) { y: f32[4] = tanh(x); return y }"
    step = lowered(text)
    assert heads(step) == ["kernel"]
    assert not any(isinstance(a, DeviceRun) for e in step.single_entries() for a in e.arguments)


def test_an_error_while_lowering_names_the_op(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("autojit.codegen.cuda.lower.print_grid", broken)
    with pytest.raises(Exception, match="lowering failed") as caught:
        lowered("(x: f32[4]@cuda:0) { y: f32[4]@cuda:0 = tanh(x); return y }")
    assert "tanh" in str(caught.value) and "planted" in str(caught.value)
