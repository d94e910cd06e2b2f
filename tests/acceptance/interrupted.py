"""A training loop that is interrupted again and again; exits with 0 when no step was left half done. Not a test itself.

The step keeps three tensors equal: before it all hold k, after it all hold k + 1. Big ones, so that several chunks and
threads write them, and long enough that most interrupts find native code running.
"""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import sys
import threading
import time
from typing import Any

import numpy as np

import autojit as aj

INTERRUPTS = 40
MOST_S = 5.0
PATIENCE_S = 60.0  # less than whoever started the process has: it says itself where it hangs


def make_step(counters: list[Any], is_opaque: bool) -> Any:
    """A fresh capture: long arithmetic, then every counter moves by one.

    A step with an op that NumPy computes (``is_opaque``) commits its state in Python.
    """

    def step(x: Any) -> Any:
        for _ in range(12):
            x = aj.sin(x) + aj.exp(-x * x)
        one = x.sum() * 0 + 1
        if is_opaque:
            one = aj.cumprod(one.reshape(1), 0)[0]
        for counter in counters:
            counter.add_(one)
        return one

    return aj.jit(step)


def check(counters: list[Any], before: int) -> int:
    """The steps done so far; fails when some counter, or part of one, is behind."""
    values = {float(v) for counter in counters for v in np.unique(np.array(counter))}
    assert len(values) == 1, f"a step was left half done: {sorted(values)}"
    (value,) = values
    assert value in (before, before + 1), f"from {before} to {value}"
    return int(value)


def main() -> None:
    """Interrupt steps at random moments: while they are captured, compiled, and run."""
    faulthandler.dump_traceback_later(PATIENCE_S, exit=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.setswitchinterval(1e-4)  # the thread that sends must get its turn while a step is captured
    rng = random.Random(0)
    x = aj.tensor(np.linspace(-1, 1, 300_000))
    counters = [aj.zeros(50_000) for _ in range(3)]
    done = interrupted = 0
    make_step([aj.zeros(1)], True)(x)  # what is imported is not interrupted: Python makes other errors of that
    step = make_step(counters, False)
    until = time.monotonic() + MOST_S
    while interrupted < INTERRUPTS and time.monotonic() < until:
        if rng.random() < 0.3:
            step = make_step(counters, rng.random() < 0.5)
        sender = threading.Timer(rng.uniform(1e-3, 2e-2), os.kill, (os.getpid(), signal.SIGINT))
        try:
            sender.start()
            step(x)
            time.sleep(1.0)  # until the signal comes, if it has not yet
        except KeyboardInterrupt:
            interrupted += 1
        done = check(counters, done)
    step(x)
    check(counters, done)
    assert interrupted >= 5, f"only {interrupted} interrupts hit a step"
    print(f"{interrupted} interrupts, {done} steps")


if __name__ == "__main__":
    main()
