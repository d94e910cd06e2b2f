"""Nothing piles up: not in 2,000 steps, eager or compiled, and not in cycles that only the garbage collector frees."""

from __future__ import annotations

import gc
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.dispatch.awaited_kernels import awaited
from tests.acceptance.programs import PROGRAMS

STEPS = 2_000
MOST_BLOCKS = 300  # of Python's allocator: caches of NumPy and the interpreter move by some


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096


def growth(call: Callable[[], Any], warm: int, steps: int) -> tuple[int, int]:
    """(allocator blocks, resident bytes) that ``steps`` calls left behind."""
    for _ in range(warm):
        call()
    gc.collect()
    blocks, resident = sys.getallocatedblocks(), resident_bytes()
    for _ in range(steps):
        call()
    gc.collect()
    return sys.getallocatedblocks() - blocks, resident_bytes() - resident


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("name", ["mlp_sgd", "newton_solve"])
def test_compiled_steps_leave_nothing_behind(name: str) -> None:
    run = PROGRAMS[name].build("tiny")
    step = aj.jit(run.step)
    blocks, resident = growth(lambda: step(*run.args), 50, STEPS)
    assert blocks < MOST_BLOCKS
    assert resident < 4 << 20


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("passes", ["the engine's", "native"])
def test_eager_steps_leave_nothing_behind_although_nobody_collects(passes: str) -> None:
    aj.manual_seed(0)
    weight = aj.randn(8, 8).requires_grad_(True)
    optimizer = aj.optim.SGD([weight], lr=0.01, momentum=0.9)
    x = aj.randn(4, 8)

    def step() -> None:
        optimizer.zero_grad()
        ((x @ weight).tanh() ** 2).mean().backward()
        optimizer.step()

    if passes == "native":
        for _ in range(100):  # until the pass is known, and compiled beside
            step()
        while awaited.is_working:
            time.sleep(0.01)
    with awaited.settled() if passes != "native" else aj.enable_grad():
        blocks, resident = growth(step, 20, STEPS)
    assert blocks < MOST_BLOCKS
    assert resident < 4 << 20


@pytest.mark.usefixtures("no_collector")
def test_a_history_dies_with_its_tensors_without_the_collector() -> None:
    x = aj.ones(3).requires_grad_(True)
    hidden = x * 2
    loss = (hidden * hidden).sum()
    loss.backward()
    seen = [weakref.ref(hidden), weakref.ref(loss)]
    del hidden, loss
    assert [ref() for ref in seen] == [None, None]


@pytest.mark.usefixtures("no_collector")
def test_higher_derivatives_die_with_their_tensors_without_the_collector() -> None:
    x = aj.ones(3).requires_grad_(True)
    y = (x**3).sum()
    (first,) = aj.autograd.grad(y, (x,), create_graph=True)
    (second,) = aj.autograd.grad(first.sum(), (x,))
    seen = [weakref.ref(t) for t in (y, first, second)]
    del y, first, second
    assert [ref() for ref in seen] == [None] * 3


@pytest.mark.usefixtures("no_collector")
def test_results_of_compiled_steps_die_when_nobody_holds_them() -> None:
    step = aj.jit(lambda x: (x * 2, x.sum()))
    x = aj.ones(1_000_000)  # 4 MB each: keeping 300 of them would show
    _, resident = growth(lambda: step(x), 20, 300)
    assert resident < 64 << 20


def test_results_that_are_held_keep_their_values() -> None:
    step = aj.jit(lambda x: x * 2)
    inputs = [aj.tensor(np.full(5, k, np.float32)) for k in range(40)]
    held = [step(x) for x in inputs]
    for k, found in enumerate(held):
        np.testing.assert_array_equal(found.numpy(), np.full(5, 2 * k))


def test_captures_die_with_their_function() -> None:
    def capture() -> weakref.ref[Any]:
        weight = aj.ones(4).requires_grad_(True)
        step = aj.jit(lambda x: (x * weight).sum().detach())
        step(aj.ones(4))
        step(aj.ones(4))
        return weakref.ref(weight)

    seen = capture()
    gc.collect()
    assert seen() is None


class Calls:
    """Counts Python functions that start while it is active."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __enter__(self) -> Calls:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: Any, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name != "__exit__":
            self.names.append(frame.f_code.co_name)


def test_a_compiled_step_runs_no_python_but_its_own_call() -> None:
    run = PROGRAMS["mlp_sgd"].build("tiny")
    step, args = aj.jit(run.step), run.args
    step(*args)
    step(*args)
    with Calls() as calls:
        step(*args)
    assert calls.names in ([], ["__call__"])


def test_a_small_eager_op_runs_few_python_functions() -> None:
    x, y = aj.ones(4), aj.ones(4)
    x * y
    with Calls() as calls:
        x * y
    assert len(calls.names) <= 4, calls.names
    x.requires_grad_(True)
    x * y
    with Calls() as calls:
        x * y
    assert len(calls.names) <= 12, calls.names
