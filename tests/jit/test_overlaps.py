"""Memory that arguments and state share through NumPy: every call is as in eager mode, or refused as there."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from tests.jit.agreement import Program, agree

PARTS: dict[str, Callable[[Any], Any]] = {
    "first": lambda b: b[:3],
    "shifted": lambda b: b[1:4],
    "apart": lambda b: b[4:7],
    "every other": lambda b: b[0:6:2],
    "the others": lambda b: b[1:7:2],
}
STEPS: dict[str, Callable[..., Any]] = {
    "writes both": lambda x, y: (x.add_(1), y.mul_(2), x + y)[2],
    "writes one": lambda x, y: (x.add_(y), y.clone(), x * 2)[1:],
    "writes a part": lambda x, y: (x[1:].copy_(y[:-1]), x + y)[1],
    "reads": lambda x, y: (x * y, x - y),
}


def memory() -> Any:
    return np.arange(8, dtype=np.float32)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("kind", ["tensors", "arrays"])
def test_arguments_over_one_buffer(step: str, kind: str) -> None:
    pairs = list(itertools.product(PARTS, PARTS))
    buffers = [memory() for _ in pairs]

    def make() -> Program:
        calls = []
        for (first, second), buffer in zip(pairs, buffers, strict=True):
            buffer[...] = memory()
            given = [PARTS[first](buffer), PARTS[second](buffer)]
            calls.append(tuple(map(aj.from_numpy, given)))
        return Program(STEPS[step], calls)

    agree(make)
    if kind == "arrays":
        eager = lambda x, y: STEPS[step](aj.from_numpy(x), aj.from_numpy(y))
        compiled = aj.jit(eager)
        for first, second in pairs:
            one, other = memory(), memory()
            compiled(PARTS[first](one), PARTS[second](one))
            eager(PARTS[first](other), PARTS[second](other))
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("part", PARTS)
def test_state_and_arguments_over_one_buffer(part: str) -> None:
    def make() -> Program:
        buffer = memory()
        state = aj.from_numpy(buffer[:3])
        apart, shared = aj.ones(3), aj.from_numpy(PARTS[part](buffer))
        calls = [(apart,)] * 4 + [(shared,), (apart,), (shared,), (aj.from_numpy(buffer)[2:5],), (state,), (apart,)]

        def step(x: aj.Tensor) -> Any:
            y = x * 2
            state.add_(x)
            return y, state * x

        return Program(step, calls, [state])

    agree(make)


def test_a_native_call_sees_that_an_argument_is_memory_which_the_step_writes() -> None:
    buffer = memory()
    state = aj.from_numpy(buffer[2:5])
    step = aj.jit(lambda x: (state.add_(1), x * 2)[1])
    for _ in range(3):
        step(aj.ones(3))
    before = step.stats()["native_calls"]
    for start in range(6):
        found = step(aj.from_numpy(buffer[start : start + 3]))
        np.testing.assert_array_equal(found.numpy(), buffer[start : start + 3] * 2)
    assert step.stats()["native_calls"] - before == 1  # of buffer[5:8], the only one that lies apart
    assert "share memory" in step.explain()


@pytest.mark.parametrize(
    "make",
    [
        lambda: aj.arange(3.0).expand(2, 3),
        lambda: aj.arange(3.0).unsqueeze(1).expand(3, 2),
        lambda: aj.from_numpy(np.broadcast_to(np.arange(3, dtype=np.float32), (2, 3))),
        lambda: aj.arange(6.0).reshape(2, 3),
        lambda: aj.arange(8.0).unfold(0, 4, 2),
    ],
)
@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.add_(1),
        lambda x: x[-1].add_(1),
        lambda x: x[:, 0].mul_(2),
        lambda x: x.zero_(),
        lambda x: x[0, 0].fill_(7),
        lambda x: x.t().copy_(x.t().clone()),
    ],
)
@pytest.mark.filterwarnings("ignore:The given NumPy array")
def test_tensors_whose_elements_share_memory_are_written_or_refused_as_in_eager_mode(
    make: Callable[[], aj.Tensor], write: Callable[[aj.Tensor], Any]
) -> None:
    def step(x: aj.Tensor) -> Any:
        write(x)
        return x.sum(), x * 2

    expected, given = make(), make()
    try:
        first = step(expected)
    except RuntimeError as error:
        with pytest.raises(type(error), match=r"single memory location|read-only"):
            aj.jit(step)(given)
    else:
        second = aj.jit(step)(given)
        for a, b in zip((*first, expected), (*second, given), strict=True):
            assert a.tolist() == b.tolist()
