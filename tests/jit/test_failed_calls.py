"""Calls that fail leave optimisers as they were, whatever fails and whenever; the next call goes on as eagerly."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import autojit as aj
from autojit import nn, optim
from autojit.core.errors import TraceError
from autojit.jit.step import CompiledStep

OPTIONS: dict[str, dict[str, Any]] = {"SGD": {"momentum": 0.9}}
NAMES = (
    "SGD", "NAdam", "Adam", "RAdam", "Rprop", "RMSprop", "Adagrad", "Adadelta", "Adamax", "ASGD", "AdamW", "Adafactor",
    "Muon",
)  # fmt: skip


def made(name: str, jit: Any, fails: list[str]) -> tuple[Any, nn.Parameter, optim.Optimizer]:
    """A step that fails in the way that ``fails`` tells, after the optimiser's step or in the middle of what runs."""
    w = nn.Parameter(aj.arange(9.0).reshape(3, 3) * 0.1 + 0.1)
    optimizer = getattr(optim, name)([w], lr=0.1, **OPTIONS.get(name, {}))

    @jit
    def step(x: aj.Tensor, index: aj.Tensor) -> aj.Tensor:
        optimizer.zero_grad()
        loss = ((w * x).sum() ** 2) + w[index].sum()
        loss.backward()
        optimizer.step()
        if "refused" in fails:
            return iter([loss])  # which can be walked only once
        if "user" in fails:
            raise ValueError("of the user's")
        return loss.detach()

    return step, w, optimizer


def told(optimizer: optim.Optimizer, w: nn.Parameter) -> str:
    return repr((optimizer.state_dict(), optimizer.state, w, w._version, optimizer._step_calls))


GOOD, BAD = aj.tensor([0, 2]), aj.tensor([0, 7])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("how", ["refused", "user", "runs"])
def test_a_first_call_that_fails_leaves_an_optimiser_as_it_was(name: str, how: str) -> None:
    fails = [how]
    step, w, optimizer = made(name, aj.jit, fails)
    other, v, twin = made(name, lambda f: f, [])
    before = told(optimizer, w)
    for _ in range(2):
        with pytest.raises((TraceError, ValueError, IndexError)):
            step(aj.ones(3), BAD if how == "runs" else GOOD)
        assert told(optimizer, w) == before
    fails.clear()
    for k in range(3):
        given = aj.ones(3) + k
        aj.testing.assert_close(step(given, GOOD), other(given, GOOD))
    aj.testing.assert_close(w, v)
    assert list(optimizer.state_dict()["state"]) == list(twin.state_dict()["state"])


@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_a_call_that_fails_with_state_cleared_leaves_it_cleared(name: str) -> None:
    step, w, optimizer = made(name, aj.jit, [])
    step(aj.ones(3), GOOD)
    optimizer.state.clear()
    before = told(optimizer, w)
    with pytest.raises(IndexError):
        step(aj.ones(3), BAD)
    assert told(optimizer, w) == before
    other, v, twin = made(name, lambda f: f, [])
    other(aj.ones(3), GOOD)
    twin.state.clear()
    for _ in range(2):
        aj.testing.assert_close(step(aj.ones(3), GOOD), other(aj.ones(3), GOOD))
    aj.testing.assert_close(w, v)


def test_an_interrupted_call_that_has_run_keeps_what_it_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    step, _, optimizer = made("Adam", aj.jit, [])
    run, caller = CompiledStep.run, threading.current_thread()

    def interrupted(self: CompiledStep, *args: Any) -> Any:
        found = run(self, *args)
        if threading.current_thread() is caller:  # kernels that earlier tests have asked for may be made beside
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(CompiledStep, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        step(aj.ones(3), GOOD)
    assert optimizer.state_dict()["state"][0]["step"] == 1


def test_a_call_whose_gradients_cannot_go_on_through_an_argument_changes_nothing() -> None:
    w = nn.Parameter(aj.ones(3))
    optimizer = optim.Adam([w], lr=0.1)

    @aj.jit
    def step(h: aj.Tensor) -> None:
        optimizer.zero_grad()
        (w * h).sum().backward()
        optimizer.step()

    a = aj.ones(3, requires_grad=True)
    step(a * 2)
    h = a * a
    h.sum().backward()
    before = told(optimizer, w)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="a second time"):
            step(h)
        assert told(optimizer, w) == before
    step(a * 2)


@pytest.mark.parametrize("fails_in", ["capture", "run"])
@pytest.mark.parametrize("how", ["detach_", "zero_grad"])
def test_a_call_that_fails_leaves_histories_to_the_tensors_outside_that_it_detached(how: str, fails_in: str) -> None:
    """``zero_grad(set_to_none=False)`` detaches gradients in place (seeds 2000930, 4006770)."""
    divisor = aj.tensor(0)
    w = aj.ones(3, requires_grad=True)
    optimizer = aj.optim.SGD([w], lr=0.1)
    outside = w * 2

    @aj.jit
    def step(fails: bool) -> aj.Tensor:
        if how == "detach_":
            outside.detach_()
        else:
            optimizer.zero_grad(set_to_none=False)
        if fails and fails_in == "capture":
            raise ValueError("stopped")
        return aj.tensor(7) // divisor

    w.grad = w * 3
    for t in (outside, w.grad):
        before = t.requires_grad, t.grad_fn, t._version
        with pytest.raises((ValueError, RuntimeError), match="stopped" if fails_in == "capture" else "by zero"):
            step(True)
        assert (t.requires_grad, t.grad_fn, t._version) == before
    divisor += 2
    step(False)
    detached = outside if how == "detach_" else w.grad
    assert (detached.requires_grad, detached.grad_fn) == (False, None)
