"""``@aj.jit(background=True)``: whenever a step gets ready, calls give and change what eager mode does, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.core.errors import CompileError
from autojit.jit import compiled_beside

CALLS = 5
PATIENCE_S = 60.0


def _wait(step: Any) -> None:
    for root in tuple(step.roots.values()):
        for job in tuple(root.compiling.values()):
            assert job.done.wait(PATIENCE_S)


def _training(log: list[Any]) -> tuple[Callable[..., Any], list[Any]]:
    model = aj.nn.Sequential(aj.nn.Linear(3, 4), aj.nn.Dropout(0.5), aj.nn.Linear(4, 1)).double()
    optimizer = aj.optim.Adam(model.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        log.append(len(log))
        return loss.detach()

    return step, list(model.parameters())


def _deciding(log: list[Any]) -> tuple[Callable[..., Any], list[Any]]:
    total = aj.zeros(3, dtype=aj.float64)

    def step(x: Any) -> Any:
        total.add_(x.sum(0))
        if total.sum() > 3.0:
            total.mul_(0.25)
            log.append("less")
        return total * 2

    return step, [total]


def _differentiated(log: list[Any]) -> tuple[Callable[..., Any], list[Any]]:
    w = aj.ones(3, dtype=aj.float64, requires_grad=True)
    return (lambda x: (x * w).sin().sum()), [w]


PROGRAMS = (_training, _deciding, _differentiated)


def _run(program: Any, wrap: Callable[[Any], Any], ready: int) -> tuple[list[Any], list[Any], Any]:
    aj.manual_seed(0)
    log: list[Any] = []
    function, state = program(log)
    step, seen = wrap(function), list[Any]()
    for k in range(CALLS):
        x = aj.arange((3 + k % 2) * 3, dtype=aj.float64).reshape(-1, 3) / 10
        found = step(x)
        if found.requires_grad:
            found.backward()
            seen.append(state[0].grad.numpy().copy())
        seen += [found.detach().numpy().copy(), *(t.detach().numpy().copy() for t in state)]
        if k >= ready:
            _wait(step)
    return seen, log, step


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__[1:])
def test_calls_before_and_after_a_step_is_ready_are_those_of_eager_mode(program: Any) -> None:
    wanted, told, _ = _run(program, lambda function: function, CALLS)
    for ready in (0, 1, CALLS):
        found, log, step = _run(program, aj.jit(background=True), ready)
        assert log == told
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
        if ready == 0:
            stats = step.stats()
            assert stats["eager_calls"] >= 1 and stats["captures"] >= 1
            assert "while steps were compiled beside" in step.explain()
        _wait(step)


def test_the_call_after_raises_what_went_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    step = aj.jit(lambda x: x * 2, background=True)

    def fail(*given: object) -> Any:
        raise CompileError("no such instruction")

    with monkeypatch.context() as patched:
        patched.setattr(compiled_beside, "build_path", fail)
        assert aj.equal(step(aj.ones(2)), aj.full((2,), 2.0))
        _wait(step)
    with pytest.raises(CompileError, match="no such instruction"):
        step(aj.ones(2))
    assert aj.equal(step(aj.ones(2)), aj.full((2,), 2.0))  # which compiles again
    _wait(step)
    step(aj.ones(2))
    assert step.stats()["captures"] == 1


def test_what_the_function_itself_raises_is_raised_by_its_call() -> None:
    step = aj.jit(lambda x: x @ x, background=True)
    with pytest.raises(RuntimeError, match="inner axes"):
        step(aj.ones(2, 3))


def test_modules_and_bytes_told_beforehand() -> None:
    model = aj.jit(aj.nn.Linear(3, 2), background=True)
    x = aj.ones(4, 3)
    first = model(x)
    assert aj.jit(lambda x: x.exp().sum(), background=True).memory(x)["result_bytes"] == 4
    for _ in range(3):
        assert aj.allclose(model(x), first)
