"""Errors, leaks, threads and switches: a step that fails leaves everything as before."""

from __future__ import annotations

import operator
import threading
import warnings
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.core.config import config
from autojit.functions.random import default_generator


def vector(*values: float) -> aj.Tensor:
    return aj.tensor([float(v) for v in values])


def test_an_exception_during_the_capture_leaves_everything_as_before() -> None:
    model = aj.nn.Linear(2, 2)
    optimiser = aj.optim.Adam(model.parameters(), lr=0.1)
    model(vector(1, 2)).sum().backward()
    before = [p.detach().numpy().copy() for p in model.parameters()]
    grads = [p.grad.numpy().copy() for p in model.parameters()]
    key, versions = default_generator._state.tolist(), [p._version for p in model.parameters()]
    fail = True

    @aj.jit
    def step(x: aj.Tensor) -> aj.Tensor:
        optimiser.zero_grad()
        loss = (model(x) + aj.randn(2)).sum()
        loss.backward()
        optimiser.step()
        aj.autograd.set_grad_enabled(False) if fail else None
        if fail:
            raise KeyError("stop")
        return loss

    with pytest.raises(KeyError, match="stop"):
        step(vector(1, 2))
    assert aj.is_grad_enabled()
    assert default_generator._state.tolist() == key
    for p, value, grad, version in zip(model.parameters(), before, grads, versions, strict=True):
        assert np.array_equal(p.detach().numpy(), value) and np.array_equal(p.grad.numpy(), grad)
        assert p._version == version and p.is_leaf
    fail = False
    step(vector(1, 2))
    assert not np.array_equal(before[0], model.weight.detach().numpy())


def test_a_shape_error_inside_a_step_names_the_users_line() -> None:
    step = aj.jit(lambda x, y: x @ y)
    with pytest.raises(RuntimeError, match=r"test_safety\.py"):
        step(aj.ones(2, 3), aj.ones(2, 3))


class _Box:
    """Holds what a step leaks, by a way that is not observed."""

    content: Any = None


def test_a_traced_tensor_that_leaks_is_an_error_that_names_its_line() -> None:
    box = _Box()

    @aj.jit
    def step(x: aj.Tensor) -> aj.Tensor:
        y = x * 2
        operator.call(object.__setattr__, box, "content", (y, y.sum().item()))  # which no capture sees
        return y + 1

    assert step(vector(1)).item() == 3
    tensor, number = box.content
    for use in (lambda: tensor + 1, lambda: tensor.item(), lambda: tensor.numpy()):
        with pytest.raises(RuntimeError, match=r"(?s)captured step.*test_safety\.py:\d+"):
            use()
    for use in (lambda: number + 1, lambda: float(number), lambda: f"{number:.2f}", lambda: number > 0):
        with pytest.raises(RuntimeError, match=r"(?s)captured step.*test_safety\.py:\d+"):
            use()
    with pytest.raises(RuntimeError, match=r"(?s)another capture.*test_safety\.py:\d+"):
        aj.jit(lambda x: x + tensor)(vector(1))
    with pytest.raises(RuntimeError, match=r"(?s)another capture"):
        aj.jit(lambda x: (x, tensor))(vector(1))


def test_an_op_that_is_called_back_and_raises_changes_nothing() -> None:
    weight = vector(1, 2)

    @aj.jit
    def step(x: aj.Tensor) -> aj.Tensor:
        weight.add_(1)
        return aj.linalg.cholesky(x).sum() + weight.sum()

    good = aj.eye(2) * 4
    assert step(good).item() == pytest.approx(4 + 5)
    for _ in range(2):
        with pytest.raises(Exception, match=r"(?i)positive|cholesky"):
            step(-good)
        assert weight.tolist() == [2.0, 3.0]
    assert step(good).item() == pytest.approx(4 + 7)


def test_eight_threads_call_one_step() -> None:
    total = vector(0, 0)

    @aj.jit
    def step(x: aj.Tensor) -> aj.Tensor:
        total.add_(x)
        return x * 2 + aj.tanh(x).sum() * 0

    wrong: list[Any] = []

    def work(k: int) -> None:
        try:
            for i in range(100):
                found = step(vector(k, i))
                if found.tolist() != [2.0 * k, 2.0 * i]:
                    wrong.append((k, i, found))
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert not wrong and not any(t.is_alive() for t in threads)
    assert total.tolist() == [100.0 * sum(range(8)), 8.0 * sum(range(100))]


def test_switching_it_off() -> None:
    seen: list[str] = []

    @aj.jit
    def step(x: aj.Tensor) -> aj.Tensor:
        seen.append(type(x._array).__name__)
        return x * 2

    step(vector(1))
    step(vector(1))
    with aj.eager():
        step(vector(1))
        with aj.eager():
            step(vector(1))
        step(vector(1))
    step(vector(1))
    assert seen == ["NoneType", "ndarray", "ndarray", "ndarray"] or seen.count("ndarray") == 3
    config.disable = True
    try:
        step(vector(1))
    finally:
        config.disable = False
    assert seen.count("ndarray") == 4


def test_ctrl_c_arrives_before_or_after_a_step_never_within() -> None:
    import signal

    state = aj.zeros(4, 3, dtype=aj.float64).t()  # not contiguous: the step writes it in two moves
    count = aj.zeros(1, dtype=aj.float64)

    @aj.jit
    def step() -> None:
        state.add_(1)
        count.add_(1)

    step()
    interrupted = 0
    for delay in np.linspace(1e-6, 3e-4, 40):
        before = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
        try:
            signal.setitimer(signal.ITIMER_REAL, float(delay))
            for _ in range(100_000):  # far longer than the delay, so that the interrupt never comes after the loop
                step()
        except KeyboardInterrupt:
            interrupted += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert (state == count).all(), "between"
    assert interrupted == 40


def test_verify_compares_outputs_state_and_gradients() -> None:
    model = aj.nn.Linear(2, 2)

    @aj.jit(verify="first")
    def step(x: aj.Tensor) -> aj.Tensor:
        model.zero_grad()
        loss = model(x).tanh().sum()
        loss.backward()
        with aj.no_grad():
            model.weight.sub_(model.weight.grad)
        return loss.detach()

    for _ in range(3):
        step(vector(1, 2))
    assert step.stats()["captures"] == 1
    with pytest.raises(ValueError, match="verify"):
        aj.jit(lambda x: x, verify="sometimes")


def test_stages_memory_and_counters() -> None:
    step = aj.jit(lambda x: (x * 2).tanh().sum())
    with pytest.raises(RuntimeError, match="not been called"):
        step.show()
    x = aj.ones(100)
    for _ in range(5):
        step(x)
    assert "tanh" in step.show() and "tanh" in step.show("optimised")
    assert step.show("schedule") and "define" in step.show("llvm") and step.show("asm")
    assert step.memory()["result_bytes"] == 4
    stats = step.stats()
    assert stats["captures"] == 1 and stats["native_calls"] == 4 and stats["fallbacks"] == 0
    with pytest.raises(ValueError, match="unknown stage"):
        step.show("nothing")


def test_no_warnings_and_no_growth_over_many_calls() -> None:
    import resource

    weight = aj.nn.Parameter(aj.ones(50, 50))
    optimiser = aj.optim.SGD([weight], lr=0.001)

    @aj.jit
    def step(x: aj.Tensor) -> float:
        optimiser.zero_grad()
        loss = (x @ weight).tanh().mean()
        loss.backward()
        optimiser.step()
        return loss.item()

    forward = aj.jit(lambda x: (x @ weight).tanh().mean())
    x = aj.ones(4, 50)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for k in range(3000):
            step(x)
            if k % 10 == 0:
                weight.grad = None
                forward(x).backward()
            if k == 500:
                before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 4096
