"""The profiler: the tree of rows, their sums, what compiled steps show, and that observing changes nothing."""

from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.autograd import Function
from autojit.autograd.profiler import EventList, FunctionEvent, FunctionEventAvg, profile, record_function
from autojit.autograd.profiler.events import format_memory, format_share, format_time
from autojit.core.errors import ArgumentError
from autojit.tensor.state import state


def event(number: int, start: float, end: float, thread: int = 0, name: str = "op") -> FunctionEvent:
    return FunctionEvent(id=number, name=name, thread=thread, start_us=start, end_us=end, node_id=0)


def names(prof: Any) -> list[str]:
    return [e.name for e in prof.function_events]


def outermost(prof: Any) -> list[FunctionEvent]:
    """Rows below no other: on a device what an op launches is below the op."""
    return [e for e in prof.function_events if e.cpu_parent is None]


# -- rows


def test_a_row_hangs_below_the_shortest_one_that_holds_it() -> None:
    events = EventList([event(0, 0, 10), event(1, 1, 4), event(2, 2, 3), event(3, 5, 9), event(4, 2, 3, thread=1)])
    events._populate_cpu_children()
    assert [[c.id for c in e.cpu_children] for e in events] == [[1, 3], [2], [], [], []]
    assert [e.self_cpu_time_total for e in events] == [3, 2, 1, 4, 1]
    assert events[2].cpu_parent is events[1]
    assert events.self_cpu_time_total == 11


def test_rows_that_overlap_without_holding_each_other_are_neighbours() -> None:
    events = EventList([event(0, 0, 2), event(1, 1, 2), event(2, 1, 3)])
    events._populate_cpu_children()
    assert [[c.id for c in e.cpu_children] for e in events] == [[], [], [1]]


def test_sums_divide_into_averages_and_keep_one_key() -> None:
    total = FunctionEventAvg()
    total.add(event(0, 10, 15)).add(event(1, 20, 30))
    total.add(total)
    assert (total.key, total.count, total.cpu_time_total, total.cpu_time) == ("op", 4, 30, 7.5)
    with pytest.raises(ValueError, match="one key"):
        total += event(2, 0, 1, name="other")
    assert FunctionEventAvg().cpu_time == 0


def test_numbers_are_shown_in_the_largest_unit() -> None:
    assert [format_time(t) for t in (0.5, 1500, 2.5e6)] == ["0.500us", "1.500ms", "2.500s"]
    assert [format_memory(n) for n in (12, 3 << 10, -(5 << 20), 1 << 30)] == ["12 b", "3.00 Kb", "-5.00 Mb", "1.00 Gb"]
    assert (format_share(1, 4), format_share(0, 0)) == ("25.00%", "NaN")
    with pytest.raises(ValueError, match="total of 0"):
        format_share(1, 0)


def test_the_table_limits_rows_and_widths() -> None:
    events = EventList([event(k, 10 * k, 10 * k + k + 1, name="a" * 80) for k in range(5)])
    assert len(events.table(row_limit=2, header="Rows").splitlines()) == 8
    assert "a" * 52 + "..." in events.table() and "a" * 80 in events.table(max_name_column_width=None)
    assert "0.005ms" in events.table(time_unit="ms")
    assert EventList().table() == ""
    with pytest.raises(ArgumentError, match="time unit"):
        events.table(time_unit="weeks")


def test_only_top_rows_are_shown_on_request() -> None:
    with profile() as prof, record_function("outer"):
        aj.ones(2) * 2
    shown = prof.table(top_level_events_only=True)
    assert "outer" in shown and "mul" not in shown


# -- eager code


def test_ops_are_seen_in_order_and_apart() -> None:
    x = aj.randn(10, 10)
    with profile() as prof:
        x * 2 + 4
    mul, add = outermost(prof)
    assert [mul.name, add.name] == ["aten::mul", "aten::add"]
    assert 0 < mul.cpu_interval.start < mul.cpu_interval.end < add.cpu_interval.start


def test_forward_and_backward_carry_one_number() -> None:
    x = aj.randn(3, requires_grad=True)
    with profile() as prof:
        (x.exp() * 2).sum().backward()
    tops = [row for e in prof.function_events if e.cpu_parent is None for row in (e, *_evaluated(e))]
    number = {e.name: e.sequence_nr for e in tops}
    for op, node in (("aten::exp", "ExpBackward0"), ("aten::sum", "SumBackward0")):
        assert number[op] == number[node] >= 0
    assert number["torch::autograd::AccumulateGrad"] == number["GraphRoot"] == -1
    inside = [e for e in prof.function_events if e.cpu_parent is not None and e not in tops]
    assert inside and all(e.sequence_nr == -1 for e in inside)


def _evaluated(row: FunctionEvent) -> list[FunctionEvent]:
    """The node's own row below the engine's."""
    return row.cpu_children if row.name.startswith("autograd::engine::evaluate_function: ") else []


def test_a_layer_is_a_row_with_its_operands_and_its_ops_below() -> None:
    layer, x = aj.nn.Linear(6, 5), aj.randn(4, 6)
    for options in ({}, {"bias": False}):
        layer = aj.nn.Linear(6, 5, **options)
        with profile(record_shapes=True, with_flops=True) as prof:
            layer(x)
        (row,) = outermost(prof)
        assert (row.name, row.input_shapes[:2]) == ("aten::linear", [[4, 6], [5, 6]])
        product = next(e for e in row.cpu_children if e.name in ("aten::addmm", "aten::mm"))
        assert product.flops == 2 * 4 * 6 * 5


def test_every_node_runs_below_a_row_of_the_engine() -> None:
    x = aj.randn(3, requires_grad=True)
    with profile() as prof:
        (x * 2).sum().backward()
    for node in ("MulBackward0", "SumBackward0", "torch::autograd::AccumulateGrad"):
        row = next(e for e in prof.function_events if e.name == f"autograd::engine::evaluate_function: {node}")
        (inner,) = row.cpu_children
        assert (inner.name, inner.sequence_nr) == (node, row.sequence_nr)
        assert (inner.fwd_thread, row.fwd_thread) == (int(row.sequence_nr >= 0),) * 2


def test_views_and_writes_carry_the_numbers_of_their_nodes() -> None:
    x = aj.randn(4, 6, requires_grad=True)
    model = aj.nn.Sequential(aj.nn.Linear(6, 5), aj.nn.GELU(), aj.nn.Linear(5, 3))

    def loss() -> aj.Tensor:
        y = model(x).log_softmax(-1).clone()
        y.mul_(2)
        y[0] = y[1] * 3
        y.view(-1).add_(1)
        a, b = aj.cat([y.t().contiguous(), y.t() * 2]).split(3)
        return (a + b).max(dim=1)[0].unsqueeze(1).square().mean()

    loss().backward()
    with profile() as prof:
        y = loss()
        with record_function("backward"):
            y.backward()
    place = next(e for e in prof.function_events if e.name == "backward").id
    forward = {e.sequence_nr for e in prof.function_events[:place]} - {-1}
    stashed = {e.sequence_nr for e in prof.function_events[place:]} - {-1}
    assert len(stashed) > 20 and stashed <= forward
    assert forward == set(range(min(forward), max(forward) + 1))


def test_a_function_of_the_user_is_a_row_with_its_node() -> None:
    class Twice(Function):
        @staticmethod
        def forward(ctx: Any, x: aj.Tensor) -> aj.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, y_bar: aj.Tensor) -> aj.Tensor:
            return y_bar * 2

    x = aj.ones(3, requires_grad=True)
    with profile() as prof:
        Twice.apply(x).sum().backward()
    forward = next(e for e in prof.function_events if e.name == "Twice")
    node = next(e for e in prof.function_events if e.name == "TwiceBackward")
    assert forward.sequence_nr == node.sequence_nr >= 0
    assert [c.name for c in forward.cpu_children] == ["aten::mul"]
    assert "aten::mul" in [c.name for c in node.cpu_children]


def test_writing_into_memory_is_seen() -> None:
    x = aj.ones(3)
    with profile(record_shapes=True) as prof:
        x.add_(1)
        x[0] = 5
    assert names(prof)[0] in (
        "aten::add_",
        "aten::add",
    )  # the latter on devices, whose kernels have results of their own
    assert "aten::copy_" in names(prof)
    assert prof.function_events[0].input_shapes == [[3], []]


def test_shapes_group_apart() -> None:
    a, b, c = aj.ones(8, 4), aj.ones(4, 3), aj.ones(4, 5)
    with profile(record_shapes=True) as prof:
        a @ b
        a @ c
        a @ c
    assert [e.input_shapes for e in outermost(prof)] == [[[8, 4], [4, 3]], [[8, 4], [4, 5]], [[8, 4], [4, 5]]]
    assert [e.count for e in prof.key_averages() if e.key == "aten::mm"] == [3]
    assert [e.count for e in prof.key_averages(group_by_input_shape=True) if e.key == "aten::mm"] == [1, 2]
    assert "[[8, 4], [4, 5]]" in prof.table()


def test_places_in_user_code_group_apart_and_are_exported(tmp_path: Path) -> None:
    x = aj.ones(300, 300)

    def first() -> None:
        x + 1

    def second() -> None:
        x + 1

    with profile(with_stack=True) as prof:
        first()
        second()
    assert [e.stack[0].partition(": ")[2] for e in outermost(prof)] == ["first", "second"]
    assert [e.count for e in prof.key_averages(group_by_stack_n=1) if e.key == "aten::add"] == [1, 1]
    prof.export_stacks(tmp_path / "stacks.txt", "self_cpu_time_total")
    lines = (tmp_path / "stacks.txt").read_text().splitlines()
    assert any("first" in line and int(line.rpartition(" ")[2]) > 0 for line in lines)
    with pytest.raises(ValueError, match="self_cpu_time_total"):
        prof.export_stacks(tmp_path / "stacks.txt", "colour")


def test_memory_and_operations_are_counted() -> None:
    a, b = aj.ones(8, 4), aj.ones(4, 3)
    with profile(profile_memory=True, with_flops=True) as prof:
        with record_function("all"):
            a @ b
            a.T
        a + 1
    by_name = {e.name: e for e in prof.function_events}
    assert by_name["aten::mm"].cpu_memory_usage == 8 * 3 * 4 == by_name["all"].cpu_memory_usage
    assert by_name["all"].self_cpu_memory_usage == 0 and by_name["aten::permute"].cpu_memory_usage == 0
    assert by_name["aten::mm"].flops == 2 * 8 * 4 * 3 and by_name["aten::add"].flops == 32
    assert "CPU Mem" in prof.table() and "FLOPs" in prof.table()


def test_a_label_is_a_row_as_a_block_and_as_a_decorator() -> None:
    @record_function("work", "fast")
    def work(n: int) -> int:
        aj.ones(2) + n
        return 1 if n == 0 else work(n - 1)

    assert work(1) == 1  # nothing is open: nothing happens
    with profile() as prof:
        assert work(1) == 1
    outer = prof.function_events[0]
    assert outer.name == "work(fast)" and outer.is_user_annotation
    assert [c.name for c in outer.cpu_children if c.name != "aten::full"] == ["aten::add", "work(fast)"]


def test_a_label_that_outlives_the_block_ends_with_it() -> None:
    label = record_function("long")
    with profile() as prof:
        label.__enter__()
        aj.ones(2) + 1
    label.__exit__(None, None, None)
    (row,) = [e for e in prof.function_events if e.name == "long"]
    assert row.cpu_children and row.cpu_time_total > 0


def test_an_error_leaves_rows_and_no_trace_of_the_observer() -> None:
    quiet, run = state.quiet, state.run
    with pytest.raises(RuntimeError), profile() as prof:
        aj.ones(2) * 2
        aj.ones(2, 3) @ aj.ones(2, 3)
    assert state.observer is None and state.detour is None
    assert state.quiet is quiet and state.run == run
    assert names(prof).count("aten::mul") == 1 and "aten::mm" in names(prof)


def test_other_threads_are_left_alone() -> None:
    with profile() as prof:
        job = threading.Thread(target=lambda: aj.ones(2) * 2)
        job.start()
        job.join()
        aj.ones(2) + 1
    assert "aten::mul" not in names(prof) and "aten::add" in names(prof)


def test_two_threads_profile_at_once() -> None:
    found: dict[str, list[str]] = {}

    def work(name: str) -> None:
        x = aj.ones(3, requires_grad=True)
        with profile() as prof:
            for _ in range(50):
                getattr(x, name)().sum().backward()
        found[name] = names(prof)

    jobs = [threading.Thread(target=work, args=(name,)) for name in ("exp", "sin")]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert found["exp"].count("aten::exp") >= 50 and "aten::sin" not in found["exp"]
    assert found["sin"].count("SinBackward0") == 50


def test_deeply_nested_backward_passes_are_told() -> None:
    def nested(depth: int) -> None:
        with aj.enable_grad():
            x = aj.ones(1, requires_grad=True)
            y = x * 2
        if depth:
            y.register_hook(lambda _: nested(depth - 1))
        y.backward()

    with profile() as prof:
        nested(30)
    assert names(prof).count("torch::autograd::AccumulateGrad") == 31


def test_results_are_the_same_while_observed() -> None:
    def run() -> Any:
        x = aj.linspace(-1, 1, 12, requires_grad=True).reshape(3, 4)
        y = (x @ x.T).tanh().log_softmax(1)
        (g,) = aj.autograd.grad(y.square().sum(), x, create_graph=True)
        (h,) = aj.autograd.grad(g.square().sum(), x)
        return y.detach().numpy(), g.detach().numpy(), h.numpy()

    plain = run()
    with profile(record_shapes=True, with_stack=True, profile_memory=True, with_flops=True):
        observed = run()
    for a, b in zip(plain, observed, strict=True):
        np.testing.assert_array_equal(a, b)


def test_rows_keep_no_tensor_alive() -> None:
    x = aj.ones(3, requires_grad=True)
    gc.disable()
    try:
        with profile(record_shapes=True) as prof:
            y = (x * 2).sum()
            y.backward()
            dead = weakref.ref(y)
            del y
            assert dead() is None
        assert prof.function_events
    finally:
        gc.enable()


# -- compiled steps


def make_step(w: aj.Tensor) -> Any:
    @aj.jit
    def step(x: aj.Tensor) -> aj.Tensor:
        w.grad = None
        loss = (x @ w).relu().square().sum()
        loss.backward()
        with aj.no_grad():
            w.sub_(w.grad * 0.01)
        return loss

    return step


def test_a_step_shows_its_native_call_and_kernels_and_computes_the_same() -> None:
    runs = []
    for observed in (False, True):
        aj.manual_seed(3)
        w, x = aj.randn(16, 8, requires_grad=True), aj.randn(4, 16)
        step = make_step(w)
        step(x)
        with profile(enabled=observed) as prof:
            losses = [step(x).item() for _ in range(3)]
        losses.append(step(x).item())
        runs.append((losses, w.detach().numpy(), step.stats()))
    np.testing.assert_array_equal(runs[0][1], runs[1][1])
    assert runs[0][0] == runs[1][0]
    before, after = runs[0][2], runs[1][2]
    assert (after["fallbacks"], after["captures"]) == (0, 1)
    assert after["native_calls"] == before["native_calls"] - 3  # those in the block were entered from Python
    tops = [e for e in prof.function_events if e.cpu_parent is None]
    assert [e.name for e in tops] == ["jit step"] * 3
    (native,) = tops[0].cpu_children
    assert native.name == f"native call of {len(native.cpu_children)} kernels"
    fused = [op for e in native.cpu_children for op in e.metadata["ops"]]
    assert {"matmul", "relu", "square", "sum", "sub"} <= set(fused)
    assert all(Path(__file__).name in e.name and e.stack for e in native.cpu_children)


def test_a_capture_is_a_row_of_its_own_without_traced_ops() -> None:
    w, x = aj.randn(16, 8, requires_grad=True), aj.randn(4, 16)
    with profile() as prof:
        make_step(w)(x)
    assert names(prof)[:2] == ["jit step", "capture step"]
    assert not any("Backward" in name for name in names(prof))


def test_a_step_with_a_decision_shows_every_native_call() -> None:
    @aj.jit
    def step(x: aj.Tensor) -> aj.Tensor:
        y = x * 2
        return y.exp() if y.sum() > 0 else y.sin()

    x = aj.ones(5)
    expected = step(x).numpy()
    with profile() as prof:
        found = step(x).numpy()
    np.testing.assert_array_equal(found, expected)
    assert sum(name.startswith("native call") for name in names(prof)) == 2


def test_a_compiled_result_is_differentiated_as_one_op() -> None:
    f = aj.jit(lambda x: (x * x).sum())
    x = aj.ones(3, requires_grad=True)
    for _ in range(2):
        f(x).backward()
    with profile() as prof:
        f(x).backward()
    op = next(e for e in prof.function_events if e.name == "compiled_call")
    node = next(e for e in prof.function_events if e.name == "CompiledCallBackward0")
    assert op.sequence_nr == node.sequence_nr >= 0
    assert any(e.name.startswith("kernel ") for e in _below(node))


def _below(row: Any) -> list[Any]:
    return [e for child in row.cpu_children for e in (child, *_below(child))]


def test_an_error_in_a_kernel_is_raised_and_the_state_stays() -> None:
    table = aj.zeros(4)

    @aj.jit
    def step(index: aj.Tensor) -> aj.Tensor:
        picked = aj.arange(4.0)[index]
        table.add_(1)
        return picked

    step(aj.tensor([1, 2]))
    with pytest.raises(IndexError), profile():
        step(aj.tensor([1, 7]))
    np.testing.assert_array_equal(step(aj.tensor([1, 3])).numpy(), [1, 3])


def test_eager_blocks_and_observed_blocks_nest() -> None:
    f = aj.jit(lambda x: x * 2 + 1)
    x = aj.ones(3)
    f(x)
    with profile() as prof, aj.eager():
        f(x)
    assert [e.name for e in outermost(prof)] == ["aten::mul", "aten::add"]
    with aj.eager(), profile() as prof:
        f(x)
    assert [e.name for e in outermost(prof)] == ["aten::mul", "aten::add"] and state.detour is None


def test_steps_take_the_native_way_again_after_a_block() -> None:
    f = aj.jit(lambda x: x * 2)
    x = aj.ones(3)
    for _ in range(3):
        f(x)
    with profile():
        f(x)
    before = f.stats()["native_calls"]
    f(x)
    assert f.stats()["native_calls"] == before + 1


def test_attention_of_every_kind_is_a_row() -> None:
    q, k, v = aj.randn(2, 2, 5, 8, requires_grad=True), aj.randn(2, 2, 6, 8), aj.randn(2, 2, 6, 8)
    attend = aj.nn.functional.scaled_dot_product_attention
    with profile() as found:
        for options in ({}, {"is_causal": True}, {"attn_mask": aj.ones(5, 6)}, {"dropout_p": 0.5}):
            attend(q, k, v, **options).sum().backward()  # type: ignore[arg-type]
    names = [event.name for event in found.function_events]
    assert sum(name.startswith("aten::attention") for name in names) >= 4
