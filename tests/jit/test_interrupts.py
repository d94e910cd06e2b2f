"""Signals during long steps: Python handles them within parts of a second, and a stopped step has changed nothing."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import autojit as aj

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers on this system")


class Rang(Exception):
    """What the alarm raises."""


@pytest.fixture
def alarm() -> Iterator[Callable[[float], None]]:
    """Raise `Rang` in this thread after so many seconds of processor time: of a busy machine a step takes no more."""

    def ring(number: int, frame: Any) -> None:
        raise Rang

    before = signal.signal(signal.SIGPROF, ring)
    try:
        yield lambda after_s: signal.setitimer(signal.ITIMER_PROF, after_s) and None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def waves(x: Any, count: int) -> Any:
    for _ in range(count):
        x = aj.sin(x) + aj.exp(-x * x)
    return x


def long_argument(step: Callable[[Any], Any], n: int = 1 << 18) -> tuple[Any, float]:
    """An argument of ``n`` and more elements that keeps a step busy, and for how long it does."""
    at_least_s = 0.3
    while True:
        x = aj.tensor(np.linspace(-1, 1, n, dtype=np.float32))
        step(x)
        start_s = time.process_time()
        step(x)
        took_s = time.process_time() - start_s
        if took_s > at_least_s:
            return x, took_s
        n = int(n * min(max(1.5 * at_least_s / took_s, 1.5), 8)) // 64 * 64


def interrupted(step: Callable[[Any], Any], x: Any, alarm: Callable[[float], None], after_s: float) -> float:
    """Call the step until the alarm ends it; how late it came."""
    start_s = time.process_time()
    alarm(after_s)
    with pytest.raises(Rang):
        while True:
            step(x)
    return time.process_time() - start_s - after_s


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_long_step_ends_soon_after_a_signal_and_can_run_again(alarm: Callable[[float], None], dynamic: bool) -> None:
    step = aj.jit(lambda x: waves(x, 30).sum(), dynamic=dynamic)
    x, took_s = long_argument(step)
    wanted = step(x).item()
    late = [interrupted(step, x, alarm, 0.3 * took_s) for _ in range(2)]
    assert min(late) < 0.5 * took_s, "at its end it would be 0.7"
    assert step(x).item() == wanted


def test_a_stopped_step_has_changed_nothing(alarm: Callable[[float], None]) -> None:
    weight = aj.nn.Parameter(aj.ones(3))
    optimiser = aj.optim.Adam([weight], lr=0.1)
    count = aj.zeros(1)

    @aj.jit
    def step(x: Any) -> Any:
        optimiser.zero_grad()
        loss = (weight * waves(x, 30).mean()).sum()
        loss.backward()
        optimiser.step()
        count.add_(1)
        return loss.detach()

    x, took_s = long_argument(step)

    def seen() -> list[Any]:
        moments = optimiser.state_dict()["state"][0]
        return [np.array(t.detach()) for t in (weight, weight.grad, count, moments["exp_avg"], moments["exp_avg_sq"])]

    done = int(count.item())
    for k in range(3):
        before = seen()
        interrupted(step, x, alarm, (0.2 + 0.3 * k) * took_s)
        steps, done = int(count.item()) - done, int(count.item())
        is_same = [np.array_equal(a, b) for a, b in zip(before, seen(), strict=True)]
        assert all(is_same) if not steps else not is_same[0]
        assert all(len(np.unique(t)) == 1 for t in seen())  # every element of a tensor has seen the same steps


def test_a_loop_of_many_rounds_ends_soon_after_a_signal(alarm: Callable[[float], None]) -> None:
    from autojit.control_flow import scan

    def body(carry: Any, element: Any) -> tuple[Any, Any]:
        return waves(carry * 0.999 + element, 10), carry.sum()

    step = aj.jit(lambda x: scan(body, aj.ones(256), x)[0].sum())
    x, took_s = long_argument(step, 1 << 10)
    late = [interrupted(step, x, alarm, 0.3 * took_s) for _ in range(2)]
    assert min(late) < 0.5 * took_s


def test_a_handler_that_raises_nothing_changes_nothing() -> None:
    seen: list[int] = []
    step = aj.jit(lambda x: waves(x, 30).sum())
    x, _ = long_argument(step)
    wanted = step(x).item()
    before = signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        assert step(x).item() == wanted
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert seen
