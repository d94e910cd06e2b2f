"""The first line of ``explain()`` says what somebody should know first; call-backs have lines, sizes have names."""

from __future__ import annotations

import math
from typing import Any

import pytest

import autojit as aj
from autojit.core.errors import ArgumentError, UsageError
from autojit.jit.timing import KernelTime


def first_line(step: Any) -> str:
    return str(step.explain()).partition("\n")[0]


def test_a_step_that_is_one_native_call_is_said_to_be_that() -> None:
    step = aj.jit(lambda x: x + 1)
    assert "call it" in first_line(step)
    step(aj.ones(2))
    assert first_line(step).endswith("compiled: a call is one native call")


def test_calls_line_by_line_come_before_all_else() -> None:
    step = aj.jit(lambda x: len(str(x)))
    step(aj.ones(2))
    assert "nothing is compiled" in first_line(step)
    assert "test_explained.py:" in first_line(step)


def test_call_backs_are_told_with_op_line_and_module() -> None:
    class Told(aj.nn.Module):
        def forward(self, x: Any) -> Any:
            aj.debug.callback(lambda value: None, x)
            return x * 2

    inner = Told()
    model = aj.nn.Sequential(aj.nn.Identity(), inner)
    step = aj.jit(lambda x: model(x))
    step(aj.ones(2))
    assert "Python: debug.callback at test_explained.py:" in first_line(step)
    assert "(1)" in first_line(step)
    assert "called back: debug.callback at test_explained.py:" in step.explain()
    assert "called back from the step: debug.callback at test_explained.py:" in step.explain(verbose=True)


def test_a_decision_of_python_is_told_with_its_line() -> None:
    step = aj.jit(lambda x: x * 2 if x.sum() > 0 else x)
    step(aj.ones(2))
    assert "Python decides 1 time(s)" in first_line(step)
    assert "test_explained.py:" in first_line(step)


def test_captures_over_and_over_are_told_with_their_reason() -> None:
    class Settings:
        scale = 0

    settings = Settings()
    step = aj.jit(lambda x: x * {settings.scale: 1}[settings.scale])
    for k in range(5):
        settings.scale = k
        step(aj.ones(2))
    assert f"captured {step.stats()['captures']} times" in first_line(step)


def test_open_sizes_have_names_of_arguments_and_the_first_is_the_batch() -> None:
    step = aj.jit(lambda images, labels: (images.sum(1) * labels).sum(), dynamic=True)
    for n, width in ((4, 3), (5, 7)):
        step(aj.ones(n, width), aj.ones(n))
    assert "step(f32[batch, images.shape[1]], f32[batch])" in step.explain()
    verbose = step.explain(verbose=True)
    assert "where      batch is images.shape[0], labels.shape[0]" in verbose
    assert not any(line.lstrip().startswith("step(f32[s") for line in verbose.splitlines())


def test_timing_counts_calls_kernels_and_captures_apart_and_changes_no_result() -> None:
    weight = aj.zeros(3)

    @aj.jit
    def step(x: Any) -> Any:
        weight.add_(x)
        return (weight @ x).tanh()

    with step.timing() as timing:
        results = [step(aj.ones(3)).item() for _ in range(20)]
    assert results == pytest.approx([math.tanh(3 * k) for k in range(1, 21)])
    assert weight.tolist() == [20.0] * 3
    assert timing.captures == 1
    assert len(timing.calls_ns) + timing.captures + timing.by_kernels == 20
    assert timing.by_kernels > 0
    assert all(s > 0 for s in timing.percentiles().values())
    kernels = timing.of_step(step.last_step().segment.executable.table_address)
    assert kernels
    assert all(isinstance(kernel, KernelTime) and len(kernel.elapsed_ns) == timing.by_kernels for kernel in kernels)
    assert sum(count for _, count, _ in timing.classes()) == len(kernels)
    assert timing.headline() in step.explain()
    assert "kernels:" in step.explain()


def test_after_the_block_and_after_an_error_calls_are_native_again() -> None:
    step = aj.jit(lambda x: x[aj.tensor([5])])
    step(aj.ones(6))
    before = list(step._entries)
    with pytest.raises(IndexError), step.timing(kernels_every=2):
        for _ in range(4):
            step(aj.ones(2))
    assert step._entries == before
    step(aj.ones(6))
    calls = step.stats()["native_calls"]
    step(aj.ones(6))
    assert step.stats()["native_calls"] == calls + 1


def test_timing_without_kernels_runs_none_apart() -> None:
    step = aj.jit(lambda x: x * 2)
    with step.timing(kernels_every=0) as timing:
        for _ in range(12):
            step(aj.ones(2))
    assert timing.by_kernels == 0
    assert not timing.kernels
    assert len(timing.calls_ns) == 11


def test_timing_of_nothing_says_so() -> None:
    timing = aj.jit(lambda x: x).timing()
    assert all(math.isnan(s) for s in timing.percentiles().values())
    assert "no call was timed" in str(timing)
    assert "<pre>" in timing._repr_html_()


def test_blocks_of_one_function_do_not_nest_and_refuse_odd_numbers() -> None:
    step = aj.jit(lambda x: x)
    with step.timing(), pytest.raises(UsageError, match="timed already"), step.timing():
        pass
    for odd in (1, -1, 1.5, True):
        with pytest.raises(ArgumentError, match="kernels_every"):
            step.timing(kernels_every=odd)  # type: ignore[arg-type]


def test_verified_calls_are_compared_while_they_are_timed() -> None:
    step = aj.jit(lambda x: x * 2, verify="always")
    with step.timing() as timing:
        for _ in range(12):
            assert step(aj.ones(2)).tolist() == [2.0, 2.0]
    assert len(timing.calls_ns) + timing.captures + timing.by_kernels == 12
